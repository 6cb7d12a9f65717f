"""Hitting times against a Monte Carlo estimate, and against reading the tensor once.

`measure()` returns rows for `make bench`: every row is a ratio of two times taken
alternately in one process, so that it means the same on a slow or a busy machine.
"""

import time

import torch

from manyheads.synergy import HeadSystem, expected_hitting_times

# Two threads halve the pass over a large tensor; the operations on 100 tokens are too
# small to be shared, and waiting for a second thread would only add noise.
SMALL_THREADS, LARGE_THREADS = 1, 2
TOKENS, HEADS, WALKS = 100, 16, 500
LARGE = (16, 2048, 2048)


def measure(repeats: int = 15) -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(SMALL_THREADS)
        rows = against_sampling(min(repeats, 3))
        torch.set_num_threads(LARGE_THREADS)
        return rows + against_one_pass(repeats)
    finally:
        torch.set_num_threads(before)


def against_sampling(repeats: int) -> list[dict]:
    """One mixed system: Monte Carlo time over the time of the exact answer."""
    walk = HeadSystem.from_attention(random_attention(HEADS, TOKENS, torch.float64)).walk_matrix()
    rows = []
    for draw, bound in ((by_multinomial, 1000), (by_table, 50)):
        sampled = hitting_times_by_sampling(walk, WALKS, draw, seed=1)
        exact = expected_hitting_times(walk)
        assert (sampled - exact).abs().max() < 1.5, "the two do not estimate the same thing"
        slow, fast = fastest(
            (lambda: hitting_times_by_sampling(walk, WALKS, draw, seed=1), 1),  # noqa: B023
            (lambda: expected_hitting_times(walk), 100), repeats=repeats)
        name = draw.__name__.replace("_", " ")
        rows.append({"name": f"{TOKENS} tokens, {HEADS} heads: Monte Carlo {name} / exact",
                     "ratio": slow / fast, "bound": bound, "direction": "at least"})
    return rows


def against_one_pass(repeats: int) -> list[dict]:
    """Large attention: time of the answer over the time of one sum over the tensor."""
    attention = random_attention(*LARGE[:2], torch.float32)
    walks = attention / attention.sum(-2, keepdim=True)
    jobs = {
        f"hitting times of {LARGE} walks / one sum": lambda: expected_hitting_times(walks),
        f"from_attention, walk_matrix, hitting times of {LARGE} / one sum":
            lambda: expected_hitting_times(HeadSystem.from_attention(attention).walk_matrix()),
    }
    rows = []
    for name, job in jobs.items():
        slow, fast = fastest((job, 1), (attention.sum, 1), repeats=repeats)
        rows.append({"name": name, "ratio": slow / fast, "bound": 6, "direction": "at most"})
    return rows


def random_attention(heads: int, tokens: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Causal softmax attention of Gaussian scores, shape (heads, tokens, tokens)."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(heads, tokens, tokens, generator=generator, dtype=dtype)
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return scores.masked_fill_(future, -torch.inf).softmax(-1)


def hitting_times_by_sampling(walk, walks, draw, seed):
    """Mean hitting times over `walks` walks from every start; all walks step together."""
    generator = torch.Generator().manual_seed(seed)
    sink = walk.shape[-1] - 1
    next_node = draw(walk, generator)
    start = torch.arange(sink).repeat_interleave(walks)
    node, total, step = start, torch.zeros(sink + 1, dtype=walk.dtype), 0
    while len(node):
        step += 1
        node = next_node(node)
        arrived = node == sink
        total += step * torch.bincount(start[arrived], minlength=sink + 1)
        node, start = node[~arrived], start[~arrived]
    return total / walks


def by_multinomial(walk, generator):
    """Draw next nodes as torch offers it."""
    steps = walk.mT.contiguous()
    return lambda node: torch.multinomial(steps[node], 1, generator=generator).squeeze(-1)


def by_table(walk, generator):
    """Draw next nodes by bisection in one sorted table of all cumulative probabilities."""
    nodes = walk.shape[-1]
    cumulative = walk.mT.cumsum(-1)
    cumulative[:, -1] = 1
    table = (cumulative + torch.arange(nodes).unsqueeze(-1)).flatten()
    return lambda node: torch.searchsorted(
        table, node + torch.rand(len(node), generator=generator, dtype=table.dtype)) % nodes


def fastest(*jobs, repeats):
    """Seconds of each (job, calls), the least over alternating repeats after a warm-up."""
    best = [float("inf")] * len(jobs)
    for _ in range(repeats + 1):
        for at, (job, calls) in enumerate(jobs):
            begin = time.perf_counter()
            for _ in range(calls):
                job()
            best[at] = min(best[at], (time.perf_counter() - begin) / calls)
    return best


if __name__ == "__main__":
    for row in measure():
        print("{ratio:8.1f}  ({direction} {bound})  {name}".format(**row))
