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
from torch.nn.functional import softplus

from manyheads._checks import check_count, check_tensor, refuse
from manyheads.capacity.certificates import Certificate, certify
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.graphs import RelationalGraph

_RATE = 3e-2  # of Adam, decayed to zero along a cosine
_SHARPNESS = 3.0  # factor on the scores inside the loss
_CHECK_EVERY = 25  # steps between two looks at the margins


@dataclass(frozen=True, eq=False)
class Training:
    """What training left behind, run by run.

    Attributes
    ----------
    channels : list of KeyQueryChannel
        The best of each run, with the threshold at the middle of its margin.
    certificates : list of Certificate
    curve : DataFrame
        Columns run, step, loss, margin (lowest edge minus highest non-edge score).
    """

    channels: list[KeyQueryChannel]
    certificates: list[Certificate]
    curve: pd.DataFrame


def train_channel(
    graphs: Iterable[RelationalGraph],
    embeddings: Float[Tensor, "... m d_model"],
    *,
    heads: int,
    key_dim: int,
    steps: int = 1000,
    seed: int,
) -> Training:
    """Train one channel for each graph, all at once, to maximise its margin.

    The loss of a run is softplus(L - s) averaged over its edges, where s is the
    edge's best score over the heads and L the log-sum-exp of the best scores of
    all non-edges, plus the same with L over the non-edges of the edge's row.
    Adam, cosine decay; a run's best margin is kept, and training stops early when
    every run has a positive one by a safe distance.

    Parameters
    ----------
    graphs : iterable of RelationalGraph
        On the same number m of vertices, each with an edge and a non-edge in
        every row that has an edge.
    embeddings : (m, d_model) tensor, or (runs, m, d_model) with one matrix a graph
        Its dtype and device are those of the training.
    heads, key_dim : int
    steps : int
        At most this many.
    seed : int
        Run r starts from weights drawn with seed + r, so that it is the same run
        in any company.

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
    check_tensor("embeddings", embeddings, "... m d_model")
    if not isinstance(graphs, Iterable):
        refuse("graphs", "a non-empty list of RelationalGraph", graphs)
    graphs = list(graphs)
    owed = _owed(graphs, embeddings)  # (runs, m, m)
    runs, m = owed.shape[:2]
    embeddings = embeddings.detach().expand(runs, -1, -1)
    shape = (2, runs, check_count("heads", heads), embeddings.shape[2],
             check_count("key_dim", key_dim))
    seed = check_count("seed", seed, least=0)
    draws = [np.random.default_rng(seed + run).standard_normal((2, *shape[2:])) for run in range(runs)]
    # Scores of unit embeddings then start with variance 1.
    start = torch.from_numpy(np.stack(draws, axis=1)) / shape[-1] ** 0.25
    weights = start.to(embeddings).requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=_RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, check_count("steps", steps))
    best_margin, best_weights, curve = [-torch.inf] * runs, weights.detach().clone(), []
    for step in range(steps + 1):
        query, key = (embeddings[:, None] @ side for side in weights)  # (runs, heads, m, key_dim)
        best = (query @ key.mT).amax(dim=1)  # (runs, m, m)
        loss = _margin_loss(_SHARPNESS * best, owed)
        if step % _CHECK_EVERY == 0 or step == steps:
            margins = _margins(best.detach(), owed).tolist()
            for run, margin in enumerate(margins):
                curve.append({"run": run, "step": step, "loss": loss[run].item(), "margin": margin})
                if margin > best_margin[run]:
                    best_margin[run] = margin
                    best_weights[:, run] = weights.detach()[:, run]
            if min(best_margin) > 0.05 or step == steps:
                break
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
        decay.step()
    channels, certificates = [], []
    for run, graph in enumerate(graphs):
        channel = KeyQueryChannel(*best_weights[:, run], threshold=0.0)
        certificate = certify(channel, graph, embeddings[run])
        channel = replace(channel, threshold=certificate.threshold)
        channels.append(channel)
        certificates.append(certify(channel, graph, embeddings[run]))
    return Training(channels, certificates, pd.DataFrame(curve))


def _margin_loss(best: Float[Tensor, "runs m m"], owed: Bool[Tensor, "runs m m"]) -> Tensor:
    """The loss of each run, shape (runs,)."""
    others = best.masked_fill(owed, -torch.inf)
    highest = others.flatten(1).logsumexp(dim=1)[:, None, None]
    highest_in_row = others.logsumexp(dim=2, keepdim=True)
    losses = softplus(highest - best) + softplus(highest_in_row - best)
    return torch.where(owed, losses, 0).sum(dim=(1, 2)) / owed.sum(dim=(1, 2))


def _margins(best: Tensor, owed: Tensor) -> Tensor:
    lowest_edge = best.masked_fill(~owed, torch.inf).amin(dim=(1, 2))
    return lowest_edge - best.masked_fill(owed, -torch.inf).amax(dim=(1, 2))


def _owed(graphs, embeddings: Tensor) -> Bool[Tensor, "runs m m"]:
    """The graphs' adjacency matrices, once the graphs are what training needs."""
    if not graphs or not all(isinstance(graph, RelationalGraph) for graph in graphs):
        refuse("graphs", "a non-empty list of RelationalGraph", graphs)
    m = embeddings.shape[-2]
    for graph in graphs:
        if graph.num_vertices != m:
            refuse("graphs", f"on the {m} vertices that have embeddings", repr(graph))
        if graph.num_edges == 0 or graph.out_degrees.max() == m:
            refuse("graphs", "with an edge, and no query related to every key", repr(graph))
    if embeddings.ndim > 2 and embeddings.shape[:-2] != (len(graphs),):
        refuse("embeddings", f"(m, d_model) or ({len(graphs)}, m, d_model)", embeddings)
    owed = np.stack([graph.adjacency() for graph in graphs])
    return torch.from_numpy(owed).to(embeddings.device)
