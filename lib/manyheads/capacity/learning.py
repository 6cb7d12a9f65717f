"""Channels found by gradient descent, many runs in one tensor program.

What is learnt is a `KeyQueryChannel` like any other: its certificate, not its
loss, says what it stores.
"""

__all__ = ["Training", "train_channel"]

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from manyheads._checks import check_choice, check_count, check_tensor, refuse
from manyheads.capacity.certificates import Certificate, certify
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.graphs import RelationalGraph
from manyheads.capacity.objectives import OBJECTIVES

_RATE = 3e-2  # of Adam, decayed to zero along a cosine
_SHARPNESS = 3.0  # factor on the scores inside the loss
_CHECK_EVERY = 25  # steps between two looks at the margins
_SAFE = 0.05  # a margin that rounding cannot take away: reason to stop


@dataclass(frozen=True, eq=False)
class Training:
    """What training left behind, run by run.

    Attributes
    ----------
    channels : list of KeyQueryChannel
        The best of each run: with the most rows recovered, then the largest margin.
        The threshold is fitted afterwards: the middle of a positive margin, else
        the one with the best F1.
    certificates : list of Certificate
    row_recovery : list of float
        Share of the queries with keys that score all of them above all others.
    curve : DataFrame
        Columns run, step, loss, margin (lowest edge minus highest non-edge score),
        rows (as row_recovery).
    """

    channels: list[KeyQueryChannel]
    certificates: list[Certificate]
    row_recovery: list[float]
    curve: pd.DataFrame


@torch.enable_grad()
def train_channel(
    graphs: Iterable[RelationalGraph],
    embeddings: Float[Tensor, "... m d_model"],
    *,
    heads: int,
    key_dim: int,
    objective: str = "margin",
    steps: int = 1000,
    seed: int | Iterable[int],
    device: str | torch.device | None = None,
) -> Training:
    """Train one channel for each graph, all at once.

    Adam with cosine decay on one of the losses of `objectives`. A run's best
    weights are kept, and training stops early when every run recovers its graph
    by a safe distance.

    Parameters
    ----------
    graphs : iterable of RelationalGraph
        On the same number m of vertices, each with an edge and a non-edge in
        every row that has an edge.
    embeddings : (m, d_model) tensor, or (runs, m, d_model) with one matrix a graph
        Its dtype is that of the training.
    heads, key_dim : int
    objective : {"margin", "threshold", "softmax"}
        "margin" drives the lowest edge score over the highest non-edge score;
        "threshold" classifies pairs by binary cross-entropy; "softmax" is the
        cross-entropy of the edges among each query's keys, and recovery then
        means rows, not every context.
    steps : int
        At most this many.
    seed : int, or one for each graph
        Run r starts from weights drawn with seed + r (or its own seed), so that it
        is the same run in any company.
    device : optional
        Where to train, "cuda" for example; that of the embeddings when left out.
        The channels come back on it.

    Raises
    ------
    ValueError
        If the graphs differ in size, do not fit the embeddings, or one of them
        has no edge or a row without non-edge.

    Notes
    -----
    Holds runs · heads · m² scores for the gradient. The numbers depend on the
    processor in the last digits and, after many steps, in more: compare
    certificates, not weights.
    """
    graphs = check_runs(graphs, embeddings)
    runs = len(graphs)
    embeddings = embeddings.detach().to(device).expand(runs, -1, -1)
    owed = torch.from_numpy(np.stack([graph.adjacency() for graph in graphs]))  # (runs, m, m)
    owed = owed.to(embeddings.device)
    shape = (2, check_count("heads", heads), embeddings.shape[2], check_count("key_dim", key_dim))
    lossof = OBJECTIVES[check_choice("objective", objective, tuple(OBJECTIVES))]
    # Scores of unit embeddings then start with variance 1.
    start = [np.random.default_rng(s).standard_normal(shape) / shape[-1] ** 0.25
             for s in _seeds(seed, runs)]
    weights = torch.from_numpy(np.stack(start, axis=1)).to(embeddings).requires_grad_()
    threshold = weights.new_zeros(runs, requires_grad=True)
    optimiser = torch.optim.Adam([weights, threshold], lr=_RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, check_count("steps", steps))
    kept, curve = _Kept(weights), []
    for step in range(steps + 1):
        query, key = (embeddings[:, None] @ side for side in weights)  # (runs, heads, m, key_dim)
        best = (query @ key.mT).amax(dim=1)  # (runs, m, m)
        loss = lossof(_SHARPNESS * best, owed, threshold)
        if step % _CHECK_EVERY == 0 or step == steps:
            margin, row_margin, rows = _margins(best.detach(), owed)
            kept.look(weights, rows, row_margin if objective == "softmax" else margin)
            curve += [{"run": run, "step": step, "loss": loss[run].item(),
                       "margin": margin[run].item(), "rows": rows[run].item()}
                      for run in range(runs)]
            if kept.margin.min() > _SAFE or step == steps:
                break
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
        decay.step()
    found = [_certified(kept.weights[:, run], graph, embeddings[run], owed[run])
             for run, graph in enumerate(graphs)]
    return Training(*map(list, zip(*found)), kept.rows.tolist(), pd.DataFrame(curve))


class _Kept:
    """The best weights so far of each run."""

    def __init__(self, weights: Tensor):
        self.weights = weights.detach().clone()
        self.rows = weights.new_full((weights.shape[1],), -1)
        self.margin = weights.new_full((weights.shape[1],), -torch.inf)

    def look(self, weights: Tensor, rows: Tensor, margin: Tensor) -> None:
        # A margin alone will not do: of weights that fail, the smallest have the least negative.
        better = (rows > self.rows) | (rows == self.rows) & (margin > self.margin)
        self.weights[:, better] = weights.detach()[:, better]
        self.rows, self.margin = (torch.where(better, new, old) for new, old in
                                  ((rows, self.rows), (margin, self.margin)))


def _certified(weights: Tensor, graph, embeddings: Tensor, owed: Tensor) -> tuple:
    """The channel with its fitted threshold, and its certificate."""
    channel = KeyQueryChannel(*weights, threshold=0.0)
    certificate = certify(channel, graph, embeddings)
    threshold = certificate.threshold
    if certificate.margin <= 0:
        threshold = _best_f1_threshold(channel.scores(embeddings).amax(dim=0), owed)
    channel = replace(channel, threshold=threshold)
    return channel, certify(channel, graph, embeddings)


def _best_f1_threshold(best: Float[Tensor, "m m"], owed: Bool[Tensor, "m m"]) -> float:
    """Midway between the two neighbouring scores that cut off the set of best F1."""
    scores, order = best.flatten().sort(descending=True)
    hits = owed.flatten()[order].cumsum(0)
    reported = torch.arange(1, len(scores) + 1, device=scores.device)
    f1 = 2 * hits / (reported + owed.sum())
    f1[:-1][scores[:-1] == scores[1:]] = 0  # equal scores are reported together
    cut = f1.argmax()
    return scores[cut : cut + 2].mean().item()


def _margins(best: Tensor, owed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each run: the margin, the least row margin, and the share of rows above zero."""
    lowest = best.masked_fill(~owed, torch.inf).amin(dim=2)
    highest = best.masked_fill(owed, -torch.inf).amax(dim=2)
    asked = owed.any(dim=2)
    margin = lowest.amin(dim=1) - highest.amax(dim=1)
    row_margin = (lowest - highest).masked_fill(~asked, torch.inf)
    rows = ((row_margin > 0) & asked).sum(dim=1) / asked.sum(dim=1)
    return margin, row_margin.amin(dim=1), rows.to(best.dtype)


def _seeds(seed, runs: int) -> list[int]:
    """A seed for each run."""
    if not isinstance(seed, Iterable):
        first = check_count("seed", seed, least=0)
        return list(range(first, first + runs))
    seeds = [check_count("seed", one, least=0) for one in seed]
    if len(seeds) != runs:
        refuse("seed", f"a whole number, or {runs} of them, one for each graph", seeds)
    return seeds


def check_runs(graphs, embeddings: Tensor) -> list[RelationalGraph]:
    """The graphs as a list, once they and the embeddings are what training needs."""
    check_tensor("embeddings", embeddings, "... m d_model")
    graphs = list(graphs) if isinstance(graphs, Iterable) else graphs
    if (not isinstance(graphs, list) or not graphs
            or not all(isinstance(graph, RelationalGraph) for graph in graphs)):
        refuse("graphs", "a non-empty list of RelationalGraph", graphs)
    m = embeddings.shape[-2]
    for graph in graphs:
        if graph.num_vertices != m:
            refuse("graphs", f"on the {m} vertices that have embeddings", repr(graph))
        if graph.num_edges == 0 or graph.out_degrees.max() == m:
            refuse("graphs", "with an edge, and no query related to every key", repr(graph))
    if embeddings.ndim > 2 and embeddings.shape[:-2] != (len(graphs),):
        refuse("embeddings", f"(m, d_model) or ({len(graphs)}, m, d_model)", embeddings)
    return graphs
