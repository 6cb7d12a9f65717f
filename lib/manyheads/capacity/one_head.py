"""One head of any width, decided exactly: can it store a given graph or not?

A head scores a pair by x_i^T M x_j with M = W_Q W_K^T, and with key_dim = d_model
M is any matrix. Whether some head stores a graph is then a question of linear
feasibility in M and the thresholds, and either answer has a proof: a head whose
certified margin is positive, or a dual ray, non-negative multipliers with which
the required inequalities add up to 0 > 0.
"""

__all__ = ["OneHead", "single_head_feasible"]

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from manyheads._checks import refuse
from manyheads.capacity.certificates import score_error_bound
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.dual_ray import refutes, requirements
from manyheads.capacity.graphs import RelationalGraph

_STEPS = 200  # Newton steps; random graphs at their limit take 10 to 50
_MOST_DIMENSIONS = 64  # a step holds a few (d² + m)² matrices


@dataclass(frozen=True, eq=False)
class OneHead:
    """An answer of `single_head_feasible` with its proof; as a truth value, the answer.

    Attributes
    ----------
    feasible : bool or None
        None when neither answer could be proved in floating point; reading that
        as a truth value is refused with a ValueError.
    channel : KeyQueryChannel or None
        If feasible: one head of key_dim = d_model, scaled to margin 1 ("global")
        or row margin 1 ("row"). It is *a* head, not the one of widest margin.
    ray : (m, m) float64 array or None
        If infeasible: the multipliers of the pairs (query, key), accepted by
        `check_dual_ray`.
    steps : int
        Newton steps taken.
    """

    feasible: bool | None
    channel: KeyQueryChannel | None = field(default=None, repr=False)
    ray: np.ndarray | None = field(default=None, repr=False)
    steps: int = 0

    def __bool__(self) -> bool:
        if self.feasible is None:
            refuse("one head", "decided to be read as True or False", self)
        return self.feasible


def single_head_feasible(
    graph: RelationalGraph, embeddings: Float[Tensor, "m d_model"], *,
    criterion: str = "global", free: RelationalGraph | None = None,
) -> OneHead:
    """Decide whether one head of any width can store a graph.

    With y_ij = 1 on edges and -1 elsewhere, the question is whether some M and
    θ have y_ij (x_i^T M x_j - θ) >= 1 for all pairs ("global": recovery of every
    context), or the same with a θ_i for every query that has a key ("row":
    each edge scores above all non-edges of its row).

    The sum of squared violations is minimised by Newton's method with an exact
    line search. It is piecewise quadratic, so that finitely many steps end at
    its minimum; where that is not 0, the violations there are a dual ray.
    Time O(m d⁴ + (d² + m)³), memory O(m² + (d² + m)²) a step.

    Parameters
    ----------
    graph : RelationalGraph
        With at least one edge and one non-edge.
    embeddings : (m, d_model) tensor
        Spanning at most 64 dimensions, unless they are linearly independent.
        The channel gets their dtype and device; float64 decides more.
    criterion : {"global", "row"}
    free : RelationalGraph, optional
        Its edges are pairs that the head may score as it likes.

    Returns
    -------
    OneHead

    Raises
    ------
    ValueError
        If sizes do not match, no edge or no non-edge is left to the head, or
        the embeddings span too many dimensions.

    Examples
    --------
    With numbers for embeddings every score is a multiple of x_i x_j: a head can
    single out the largest product or the smallest, not one in between.

    >>> numbers = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    >>> [bool(single_head_feasible(RelationalGraph(3, [(i, i)]), numbers)) for i in range(3)]
    [True, False, True]

    References
    ----------
    Ours. The dual ray is Gordan's alternative; the method is the finite Newton
    method of Mangasarian, Optim. Methods Softw. 17 (2002) 913.
    """
    signs, x, scale = requirements(graph, embeddings, criterion, free)
    by_row = criterion == "row"
    basis, back = _basis(x)
    back *= scale  # embeddings @ back = basis
    m, span = basis.shape
    if _MOST_DIMENSIONS < span < m:
        refuse("embeddings", f"spanning at most {_MOST_DIMENSIONS} dimensions, or independent",
               f"{m} in {span} dimensions")
    # To begin with, least squares: exact if the embeddings are independent.
    matrix = basis.T @ (signs > 0) @ basis * (span / m) ** 2
    thresholds = np.full(m, 0.5)
    for step in range(_STEPS if span <= _MOST_DIMENSIONS else 1):
        scores = basis @ matrix @ basis.T
        margin = _margin(scores, signs, by_row)
        if margin > 0:
            channel = _certified(back @ matrix @ back.T / margin, signs, embeddings, by_row)
            if channel is not None:
                return OneHead(True, channel=channel, steps=step)
        violation = np.where(signs != 0, 1 - signs * (scores - thresholds[:, None]), 0.0)
        ray = np.maximum(violation, 0)
        if np.linalg.norm(_slope(basis, signs * ray, by_row)) < 1e-7 * ray.sum():
            polished = _polished(x, ray, signs, by_row)
            if refutes(polished, signs, x, by_row):
                return OneHead(False, ray=polished, steps=step)
        if span > _MOST_DIMENSIONS or not ray.any():
            break
        matrix_step, threshold_step = _newton_step(basis, ray, signs, by_row)
        change = signs * (basis @ matrix_step @ basis.T - threshold_step[:, None])
        length = _line_search(violation, change)
        matrix = matrix + length * matrix_step
        thresholds = thresholds + length * threshold_step
    return OneHead(None, steps=step)


def _basis(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x @ back with orthogonal columns and rows of mean square length 1, and back."""
    left, sizes, right = np.linalg.svd(x, full_matrices=False)
    span = int((sizes > sizes[0] * max(x.shape) * np.finfo(float).eps).sum())
    scale = math.sqrt(len(x) / max(span, 1))
    return left[:, :span] * scale, right[:span].T / sizes[:span] * scale


def _margin(scores, signs, by_row: bool) -> float:
    """Lowest edge score minus highest non-edge score, overall or the least over rows."""
    lowest = np.where(signs > 0, scores, np.inf).min(axis=1)
    highest = np.where(signs < 0, scores, -np.inf).max(axis=1)
    return float((lowest - highest).min() if by_row else lowest.min() - highest.max())


def _certified(matrix, signs, embeddings, by_row: bool) -> KeyQueryChannel | None:
    """The head that M is, in the dtype of the embeddings, if rounding cannot undo it."""
    query = torch.from_numpy(matrix[None]).to(embeddings)
    eye = torch.eye(len(matrix)).to(embeddings)[None]
    if not torch.isfinite(query).all():
        return None
    scores = KeyQueryChannel(query, eye, 0.0).scores(embeddings)[0].double().cpu().numpy()
    decisive = [scores[signs > 0].min(), scores[signs < 0].max()] if signs.any() else [0.0]
    channel = KeyQueryChannel(query, eye, float(np.mean(decisive)))
    # Twice what is needed: `certify` may add up in another order than we did.
    safe = 4 * score_error_bound(channel, embeddings)
    return channel if _margin(scores, signs, by_row) > safe else None


def _slope(x, signed_ray, by_row: bool) -> np.ndarray:
    """Gradient in (M, θ) of half the sum of squared violations: -Σ λ z."""
    by_threshold = signed_ray.sum(axis=1)
    return np.append(-x.T @ signed_ray @ x, by_threshold if by_row else by_threshold.sum())


def _newton_step(x, ray, signs, by_row: bool) -> tuple[np.ndarray, np.ndarray]:
    """The step in M (d, d) and θ (m,) to the minimum over the pairs now violated."""
    m, d = x.shape
    violated = (ray > 0).astype(float)
    squares = (x[:, :, None] * x[:, None, :]).reshape(m, d * d)
    pairs = (squares.T @ (violated @ squares)).reshape(d, d, d, d)  # Σ x_i x_i x_j x_j
    singles = (x[:, :, None] * (violated @ x)[:, None, :]).reshape(m, d * d)
    count = violated.sum(axis=1)
    if not by_row:
        singles, count = singles.sum(axis=0, keepdims=True), count.sum(keepdims=True)
    hessian = np.block([[pairs.transpose(0, 2, 1, 3).reshape(d * d, d * d), -singles.T],
                        [-singles, np.diag(count)]])
    # Where no violated pair looks, stay: a damping far below the rest.
    hessian[np.diag_indices_from(hessian)] += 1e-10 * hessian.trace() / len(hessian) + 1e-300
    step = -cho_solve(cho_factor(hessian, overwrite_a=True, check_finite=False),
                      _slope(x, signs * ray, by_row), check_finite=False)
    return step[: d * d].reshape(d, d), np.broadcast_to(step[d * d :], m)


def _line_search(violation, change) -> float:
    """The t that minimises the sum of squares of the positive part of violation - t change."""

    def slope(t):
        return -(np.maximum(violation - t * change, 0) * change).sum()

    flat = 1e-12 * slope(0.0)  # on level ground, rounding errors point nowhere
    low, high = 0.0, 1.0
    while slope(high) < flat and high < 2.0**30:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < flat else (low, middle)
    return high


def _polished(x, ray, signs, by_row: bool) -> np.ndarray:
    """The nearest multipliers that sum the z to 0, the tiniest left out."""
    ray = np.where(ray > 1e-5 * ray.max(), ray, 0)
    for _ in range(3):
        matrix, thresholds = _newton_step(x, ray, signs, by_row)
        change = signs * (x @ matrix @ x.T - thresholds[:, None])
        ray = np.where(ray > 0, np.maximum(ray - change, 0), 0)
    return ray
