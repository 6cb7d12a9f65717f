"""Deciding one head of any width against the linear program that it is.

`measure()` returns rows for `make bench`: times as ratios, taken in one process
with one thread. The whole linear program has m² rows and d² + 1 columns, and HiGHS
gets the instances, at the transition, that the Newton method gets.
"""

import time

import numpy as np
import torch
from scipy.optimize import linprog

from manyheads.capacity import gaussian_embeddings, permutation_graph
from manyheads.capacity.one_head import single_head_feasible


def measure() -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = [against_program(12, 37, seeds=4), against_minute(24, 160)]
    torch.set_num_threads(before)
    return rows


def against_program(d_model: int, m: int, seeds: int) -> dict:
    """Time of the linear program over ours, the median of random permutations."""
    ratios = []
    for seed in range(seeds):
        graph, x = problem(d_model, m, seed)
        program, by_program = timed(lambda: feasible_by_program(graph, x))
        ours, answer = timed(lambda: bool(single_head_feasible(graph, x)))
        if answer != by_program:
            raise AssertionError(f"seed {seed}: {answer}, the linear program {by_program}")
        ratios.append(program / ours)
    return {"name": f"one head, d_model {d_model}, {m} vertices: linear program / Newton (time)",
            "ratio": float(np.median(ratios)), "bound": 5, "direction": "at least"}


def against_minute(d_model: int, m: int) -> dict:
    """The slower criterion's time, over a minute."""
    graph, x = problem(d_model, m, seed=0)
    slowest = max(timed(lambda c=c: single_head_feasible(graph, x, criterion=c).ray.any())[0]
                  for c in ("global", "row"))
    return {"name": f"one head, d_model {d_model}, {m} vertices: time / one minute",
            "ratio": slowest / 60, "bound": 1, "direction": "at most"}


def problem(d_model: int, m: int, seed: int):
    x = gaussian_embeddings(m, d_model, seed=seed, dtype=torch.float64)
    return permutation_graph(m, seed=seed), x


def feasible_by_program(graph, embeddings) -> bool:
    x = embeddings.numpy()
    signs = np.where(graph.adjacency(), 1.0, -1.0).reshape(-1, 1)
    products = (x[:, None, :, None] * x[None, :, None, :]).reshape(len(signs), -1)
    rows = -signs * np.hstack([products, -np.ones_like(signs)])
    answer = linprog(np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)),
                     bounds=(None, None))
    return answer.status == 0


def timed(job) -> tuple[float, object]:
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result
