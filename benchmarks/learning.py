"""Training many channels at once against a plain loop over the same runs.

`measure()` returns rows for `make bench`: times as ratios, taken in one process
with one thread, the two sides in turns. What batching saves is the overhead of
each step, so the ratio is large where a run is small.
"""

import time

import numpy as np
import torch

from manyheads.capacity import gaussian_embeddings, permutation_graph, train_channel

RUNS, STEPS, ROUNDS = 16, 100, 3


def measure() -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = [against_loop(m, d_model, bound) for m, d_model, bound in
            ((16, 8, 4), (32, 8, 4), (64, 16, 2))]
    torch.set_num_threads(before)
    return rows


def against_loop(m: int, d_model: int, bound: float) -> dict:
    """Time of one run after another over the time of all at once, the median of three."""
    graphs = [permutation_graph(m, seed=seed) for seed in range(RUNS)]
    x = torch.stack([gaussian_embeddings(m, d_model, seed=seed) for seed in range(RUNS)])

    def train(runs):
        # Too narrow to succeed, so that no run stops early.
        return train_channel([graphs[run] for run in runs], x[runs], heads=1, key_dim=1,
                             steps=STEPS, seed=list(runs))

    ratios = []
    for _ in range(ROUNDS):
        together, batch = timed(lambda: train(range(RUNS)))
        loop, alone = timed(lambda: [train([run]) for run in range(RUNS)])
        ratios.append(loop / together)
    for run in range(RUNS):
        torch.testing.assert_close(batch.channels[run].query_weights,
                                   alone[run].channels[0].query_weights, rtol=1e-2, atol=1e-2)
    return {"name": f"training {RUNS} runs, {m} vertices, d_model {d_model}: loop / batch (time)",
            "ratio": float(np.median(ratios)), "bound": bound, "direction": "at least"}


def timed(job) -> tuple[float, object]:
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result
