"""What 32 layers do, exactly and at once, against sampling one quantity of one of them.

`measure()` returns rows for `make bench`. The sampler is of the published kind: walk
after walk and step after step in Python, the next node looked up by NumPy in running
sums, 500 walks from each of 100 starts, at most 100 steps each. What it estimates is the
expected hitting time; here it walks on columns that sum to one, so that its mean can be
checked. Attention is float32, as a model gives it. One thread, times taken alternately.
"""

import random

import numpy as np
import torch
from hitting_times import fastest, random_attention

from manyheads.synergy import (
    HeadSystem, expected_hitting_times, hitting_time_cdf, minimax_fidelity, mixing_time,
)

SYSTEMS, HEADS, TOKENS, WALKS, CAP = 32, 16, 100, 500, 100


def measure(repeats: int = 5) -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        attention = random_attention(SYSTEMS * HEADS, TOKENS, torch.float32)
        attention = attention.reshape(SYSTEMS, HEADS, TOKENS, TOKENS)
        walk = HeadSystem.from_attention(attention).walk_matrix()
        exact = (1 - hitting_time_cdf(walk[0], CAP - 1)).sum(0).mean().item()
        error = abs(mean_time_by_sampling(walk[0]) - exact)
        if error > 0.1:
            raise AssertionError(f"the sampler is {error:.3f} steps off the exact mean")
        sampled, same, three, loop = fastest(
            (lambda: mean_time_by_sampling(walk[0]), 1), (lambda: hitting_times(attention), 5),
            (lambda: everything(attention), 3),
            (lambda: [everything(one) for one in attention], 1), repeats=repeats)
    finally:
        torch.set_num_threads(before)
    size = f"({SYSTEMS}, {HEADS}, {TOKENS}, {TOKENS})"
    return [
        {"name": f"sampling the mean time of one system / exact hitting times of {size}",
         "ratio": sampled / same, "bound": 20, "direction": "at least"},
        {"name": "sampling the mean time of one system / hitting, mixing, fidelity of all",
         "ratio": sampled / three, "bound": 5, "direction": "at least"},
        {"name": f"hitting, mixing, fidelity of {size}: one by one / at once",
         "ratio": loop / three, "bound": 1, "direction": "at least"},
    ]


def hitting_times(attention):
    """Expected hitting times of the mixture of every system."""
    return expected_hitting_times(HeadSystem.from_attention(attention).walk_matrix())


def everything(attention):
    """Hitting times, mixing time and minimax fidelity of the mixture of every system."""
    system = HeadSystem.from_attention(attention)
    walk = system.walk_matrix()
    return (expected_hitting_times(walk), mixing_time(walk),
            minimax_fidelity(system.diffusion_matrix(), TOKENS))


def mean_time_by_sampling(walk, seed=0) -> float:
    """Mean of min(T, CAP) over all starts, walked by hand."""
    draw = random.Random(seed).random
    running = walk.mT.double().cumsum(-1).numpy()
    sink = len(running) - 1
    lengths = np.zeros((len(running), WALKS))
    for start in range(sink):
        for walker in range(WALKS):
            at, steps = start, 0
            while at != sink and steps < CAP:
                at = min(np.searchsorted(running[at], draw()), sink)
                steps += 1
            lengths[start, walker] = steps
    return lengths.mean()


if __name__ == "__main__":
    for row in measure():
        print("{ratio:8.1f}  ({direction} {bound})  {name}".format(**row))
