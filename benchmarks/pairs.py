"""All pairs of small graphs: exact comparisons within a minute, against one pair at a time.

`measure()` returns rows for `make bench`, taken in one process with one thread. The other
way is a pair's times and signals in rational numbers (sympy), for a sample of the pairs.
"""

import time

import sympy
import torch

from manyheads.synergy import HeadSystem, compare_pairs, sink_graphs

NODES, SECONDS, SAMPLE, STEPS = 5, 60, 20, 12


def measure(repeats: int = 3) -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        start = time.perf_counter()
        pairs = sum(len(compare_pairs(nodes)) for nodes in range(3, NODES + 1))
        ours = time.perf_counter() - start
        start = time.perf_counter()
        for at in range(SAMPLE):
            one_pair(HeadSystem(sink_graphs(NODES)[[at, -1 - at]]))
        theirs = (time.perf_counter() - start) / SAMPLE * pairs
    finally:
        torch.set_num_threads(before)
    return [
        {"name": f"all {pairs} pairs on 3 to {NODES} nodes, exactly: time / {SECONDS} s",
         "ratio": ours / SECONDS, "bound": 1, "direction": "at most"},
        {"name": f"one pair after another in sympy ({SAMPLE} pairs) / ours (time)",
         "ratio": theirs / ours, "bound": 20, "direction": "at least"},
    ]


def one_pair(system: HeadSystem) -> None:
    """Hitting times and the signals of a few steps in rational numbers."""
    nodes = system.num_nodes
    inner = system.walk_matrix(exact=True)[:-1, :-1]
    (sympy.eye(nodes - 1) - inner.T).LUsolve(sympy.ones(nodes - 1, 1))
    diffusion = system.diffusion_matrix(exact=True)
    signal = diffusion[-1, :]
    for _ in range(STEPS - 1):
        signal = signal * diffusion


if __name__ == "__main__":
    for row in measure():
        print(row)
