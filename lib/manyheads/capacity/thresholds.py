"""The least key dimension with which training succeeds, run by run."""

__all__ = ["CapacityThreshold", "bootstrap_interval", "capacity_threshold"]

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_bool, check_choice, check_count, check_number, refuse
from manyheads.capacity.graphs import RelationalGraph
from manyheads.capacity.learning import check_runs, train_channel

_RECOVERY = ("certified", "rows", "f1")


@dataclass(frozen=True, eq=False)
class CapacityThreshold:
    """Where training begins to succeed.

    Attributes
    ----------
    total_key_dim : ndarray
        For each run the least D_K that succeeded while key_dim - 1 failed; inf where
        even the largest key_dim failed.
    median, interval : float, (float, float)
        Median over the runs, and its 95 % bootstrap interval.
    tried : DataFrame
        Every training: run, key_dim, total_key_dim, recovery, succeeded.
    """

    total_key_dim: np.ndarray
    median: float
    interval: tuple[float, float]
    tried: pd.DataFrame


def capacity_threshold(
    graphs: Iterable[RelationalGraph],
    embeddings: Float[Tensor, "... m d_model"],
    *,
    heads: int,
    most: int,
    recovery: str = "certified",
    level: float = 0.99,
    objective: str = "margin",
    steps: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> CapacityThreshold:
    """Bracket the least key_dim with which each run's training succeeds, by bisection.

    Runs that are bisected to the same key_dim are trained together. A wider head
    can do whatever a narrower one can, training need not: what is found is an edge
    of success, with a failure one below it.

    Parameters
    ----------
    graphs, embeddings, heads, objective, steps
        As in `train_channel`.
    most : int
        The largest key_dim tried.
    recovery : {"certified", "rows", "f1"}
        What must be reached: recovery of every context, certified; or at least
        `level` of the rows, or of F1 over all pairs.
    level : float
        In (0, 1]; of no effect for "certified".
    seed : int
        Run r trains with seed + r, whatever its company.
    progress : bool
        Lines to stderr, at most one in five seconds.

    Raises
    ------
    ValueError
        As `train_channel`, or if `recovery` or `level` is none of those allowed.

    Examples
    --------
    >>> from manyheads.capacity import gaussian_embeddings, permutation_graph
    >>> found = capacity_threshold([permutation_graph(16, seed=0)],
    ...     gaussian_embeddings(16, 16, seed=0), heads=1, most=8, steps=400)
    >>> bool(found.total_key_dim[0] <= 4)
    True
    """
    check_choice("recovery", recovery, _RECOVERY)
    level = check_number("level", level, least=0, most=1)
    report = _Report(check_bool("progress", progress))
    most, heads = check_count("most", most), check_count("heads", heads)
    graphs = check_runs(graphs, embeddings)
    least, tried = np.full(len(graphs), np.inf), []

    def succeeds(runs: list[int], key_dim: int) -> np.ndarray:
        report(f"{len(tried)} trainings done; {len(runs)} runs at key_dim {key_dim}")
        training = train_channel(
            [graphs[run] for run in runs],
            embeddings if embeddings.ndim == 2 else embeddings[runs],
            heads=heads, key_dim=key_dim, objective=objective, steps=steps,
            seed=[seed + run for run in runs])
        reached = {"certified": [float(c.recovers_every_context) for c in training.certificates],
                   "rows": training.row_recovery,
                   "f1": [c.f1 for c in training.certificates]}[recovery]
        enough = np.array(reached) >= (1 if recovery == "certified" else level)
        tried.extend({"run": run, "key_dim": key_dim, "total_key_dim": heads * key_dim,
                      "recovery": got, "succeeded": bool(yes)}
                     for run, got, yes in zip(runs, reached, enough, strict=True))
        return enough

    todo = [(list(range(len(graphs))), 0, most + 1)]  # runs between a failure and a success
    while todo:
        runs, fails, works = todo.pop()
        if works - fails > 1:
            middle = (fails + works) // 2
            enough = succeeds(runs, middle)
            lower = [run for run, yes in zip(runs, enough, strict=True) if yes]
            upper = [run for run, yes in zip(runs, enough, strict=True) if not yes]
            least[lower] = heads * middle
            todo += [(part, *ends) for part, *ends in
                     ((lower, fails, middle), (upper, middle, works)) if part]
    return CapacityThreshold(least, float(np.median(least)), bootstrap_interval(least, np.median),
                             pd.DataFrame(tried))


def bootstrap_interval(values: np.ndarray, statistic: Callable, *, draws: int = 2000,
                       seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a statistic that takes `axis`, over the values drawn anew.

    Examples
    --------
    >>> bootstrap_interval(np.array([3.0, 3.0, 3.0]), np.mean)
    (3.0, 3.0)
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values):
        refuse("values", "at least one number, in one row", values)
    picks = np.random.default_rng(seed).integers(len(values), size=(draws, len(values)))
    low, high = np.quantile(statistic(values[picks], axis=1), [0.025, 0.975], method="nearest")
    return float(low), float(high)


class _Report:
    """Lines of progress, at most one in five seconds and none in the first five."""

    def __init__(self, wanted: bool):
        self.wanted, self.last = wanted, time.monotonic()

    def __call__(self, line: str) -> None:
        if self.wanted and time.monotonic() - self.last > 5:
            print(line, file=sys.stderr, flush=True)
            self.last = time.monotonic()
