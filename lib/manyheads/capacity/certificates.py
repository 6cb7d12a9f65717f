"""Certificates: does a channel recover its graph in every one of the 2^m contexts?

A score does not depend on the context, so all contexts are recovered exactly
when every edge scores above every non-edge. One pass over m² pairs decides
it, with a proved bound on the floating-point error of what it computes.
"""

__all__ = ["Certificate", "certify"]

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import refuse
from manyheads.capacity.channel import KeyQueryChannel, best_score_tiles
from manyheads.capacity.graphs import RelationalGraph


@dataclass(frozen=True)
class Certificate:
    """What one pass over all pairs found. Scores are max_a S_a, without unit.

    Attributes
    ----------
    lowest_edge_score, highest_non_edge_score : float
        Attained at `worst_edge` and `worst_non_edge`, pairs (query, key).
    row_margin : float
        The least, over queries with a key, of (lowest edge score in the row
        minus highest non-edge score in the row): decides arg-max recovery.
        Infinite when each such query is related to every key.
    error_bound : float
        No computed score is further than this from the exact value of its
        formula on the given weights and embeddings.
    precision, recall, f1 : float
        Of the pairs reported at the channel's own threshold; precision is NaN
        when nothing is reported.
    """

    lowest_edge_score: float
    highest_non_edge_score: float
    row_margin: float
    error_bound: float
    precision: float
    recall: float
    f1: float
    worst_edge: tuple[int, int]
    worst_non_edge: tuple[int, int]

    @property
    def margin(self) -> float:
        """Lowest edge score minus highest non-edge score."""
        return self.lowest_edge_score - self.highest_non_edge_score

    @property
    def threshold(self) -> float:
        """The midpoint between them: the best θ for this channel."""
        return (self.lowest_edge_score + self.highest_non_edge_score) / 2

    @property
    def recovers_every_context(self) -> bool:
        """Whether some threshold is right in all contexts, rounding accounted for.

        True is a proof. False means that no threshold is right, or that the
        exact margin is at most four error bounds.
        """
        return self.margin > 2 * self.error_bound


def certify(
    channel: KeyQueryChannel, graph: RelationalGraph, embeddings: Float[Tensor, "m d_model"]
) -> Certificate:
    """Compare every edge with every non-edge.

    Time O(m² D_K); memory m · D_K numbers and a few tiles (see `best_score_tiles`).

    Parameters
    ----------
    channel : KeyQueryChannel
    graph : RelationalGraph
        The relations the channel should store; at least one edge and one non-edge.
    embeddings : (m, d_model) tensor

    Raises
    ------
    ValueError
        If sizes, dtypes or devices do not match, the graph has no edge or no
        non-edge, or float32 products are set to run at lower precision
        (torch.set_float32_matmul_precision), for which the bound would be wrong.

    Examples
    --------
    >>> eye = torch.eye(2)
    >>> channel = KeyQueryChannel(eye[:1, :, None], eye[1:, :, None], threshold=0.5)
    >>> certificate = certify(channel, RelationalGraph(2, [(0, 1)]), eye)
    >>> certificate.margin, certificate.recovers_every_context
    (1.0, True)
    """
    check_case(channel, graph, embeddings)
    sources, targets = (torch.from_numpy(column.copy()) for column in graph.edges.T)
    edge_scores = embeddings.new_empty(graph.num_edges)
    best_non_edge = embeddings.new_full((len(embeddings),), -math.inf)  # of each query
    highest, worst_non_edge, reported = -math.inf, (0, 0), 0
    for rows, columns, best in best_score_tiles(channel, embeddings):
        inside = _edges_of_tile(graph, rows, columns)
        place = sources[inside] - rows.start, targets[inside] - columns.start
        edge_scores[inside.to(edge_scores.device)] = found = best[place]
        best[place] = -math.inf
        row_best = best.amax(dim=1)
        torch.maximum(best_non_edge[rows], row_best, out=best_non_edge[rows])
        tile_highest = row_best.max().item()
        if tile_highest > highest:
            row = int(row_best.argmax())
            highest = tile_highest
            worst_non_edge = rows.start + row, columns.start + int(best[row].argmax())
        if tile_highest > channel.threshold:
            # In place, and a float sum (exact: a tile has fewer than 2^24 pairs):
            # a boolean tile would cost as much as several heads.
            reported += int(best.gt_(channel.threshold).sum())
    worst = int(edge_scores.argmin())
    true_positives = int((edge_scores > channel.threshold).sum())
    return Certificate(
        lowest_edge_score=edge_scores[worst].item(),
        highest_non_edge_score=highest,
        row_margin=_row_margin(edge_scores, sources, best_non_edge),
        error_bound=score_error_bound(channel, embeddings),
        precision=_ratio(true_positives, true_positives + reported),
        recall=true_positives / graph.num_edges,
        f1=2 * true_positives / (graph.num_edges + true_positives + reported),
        worst_edge=(int(sources[worst]), int(targets[worst])),
        worst_non_edge=worst_non_edge,
    )


def score_error_bound(
    channel: KeyQueryChannel, embeddings: Float[Tensor, "m d_model"]
) -> float:
    """How far a computed score can be from its exact value; proved, not estimated.

    A product of length n computed in any order has entrywise error at most
    γ_n |x| |y| with γ_n = n u / (1 - n u) (Higham 2002, section 3.5; u the
    unit roundoff). For q = x W_Q and k = x W_K, then <q, k>, this gives
    |error| <= ((1 + γ_d)² (1 + γ_dk) - 1) <|x| |W_Q|, |x| |W_K|>, and the
    inner product is at most max|x|² ‖|W_Q|‖₂ ‖|W_K|‖₂.
    """
    unit = torch.finfo(embeddings.dtype).eps / 2
    tiny = torch.finfo(embeddings.dtype).tiny

    def gamma(length):
        return length * unit / (1 - length * unit) if length * unit < 1 else math.inf

    longest = max(rows.double().norm(dim=1).max().item() for rows in embeddings.split(1024))
    norms = [
        torch.linalg.matrix_norm(weights.double().abs(), ord=2)  # (heads,)
        for weights in (channel.query_weights, channel.key_weights)
    ]
    size = longest**2 * (norms[0] * norms[1]).max().item() * (1 + 1e-9)  # 1e-9: of this line
    sums = longest * max(norm.max().item() for norm in norms)  # bounds every partial sum of q, k
    if not max(size, sums) < torch.finfo(embeddings.dtype).max / 4:
        return math.inf  # a sum may overflow, and then nothing is known of the score
    growth = (1 + gamma(channel.d_model)) ** 2 * (1 + gamma(channel.key_dim)) - 1
    # Results below the normal range may lose up to `tiny` each, carried on by the other factor.
    lost = channel.d_model * channel.key_dim * tiny
    return growth * size + lost * (1 + longest * (norms[0] + norms[1]).max().item() + tiny)


def check_case(channel, graph, embeddings) -> None:
    """Refuse a channel, a graph and embeddings that cannot be compared."""
    if not isinstance(channel, KeyQueryChannel):
        refuse("channel", "a KeyQueryChannel", channel)
    channel.check_embeddings(embeddings)
    check_pair(graph, embeddings)


def check_pair(graph: RelationalGraph, embeddings: Tensor) -> None:
    """Refuse a graph that cannot be compared on these embeddings, or inexact products."""
    if not isinstance(graph, RelationalGraph):
        refuse("graph", "a RelationalGraph", graph)
    if graph.num_vertices != len(embeddings):
        refuse("graph", f"on the {len(embeddings)} vertices that have embeddings", repr(graph))
    if not 0 < graph.num_edges < graph.num_vertices**2:
        refuse("graph", "one with at least one edge and one non-edge", repr(graph))
    exact = embeddings.dtype == torch.float64 or torch.get_float32_matmul_precision() == "highest"
    if not exact:
        refuse("torch.get_float32_matmul_precision()", "'highest' for the error bound to hold",
               repr(torch.get_float32_matmul_precision()))


def _edges_of_tile(graph: RelationalGraph, rows: slice, columns: slice) -> Tensor:
    """Indices of the graph's edges that fall into a tile."""
    first, last = np.searchsorted(graph.edges[:, 0], [rows.start, rows.stop])
    targets = graph.edges[first:last, 1]
    return torch.from_numpy(
        first + np.flatnonzero((targets >= columns.start) & (targets < columns.stop))
    )


def _row_margin(edge_scores: Tensor, sources: Tensor, best_non_edge: Tensor) -> float:
    # Subtracted in float64, so that only the scores' own error remains.
    slack = edge_scores.double() - best_non_edge[sources.to(best_non_edge.device)].double()
    return slack.min().item()


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
