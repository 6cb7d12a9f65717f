"""Dual rays: proofs that no single head stores a graph, checked with rounding included.

A head of any width is a linear question in M = W_Q W_K^T and its thresholds, so
that its impossibility has a short proof (Gordan 1873): non-negative multipliers
with which the required inequalities add up to a contradiction.
"""

__all__ = ["check_dual_ray"]

import math
from fractions import Fraction

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cholesky
from torch import Tensor

from manyheads._checks import check_choice, check_tensor, refuse
from manyheads.capacity.certificates import check_pair
from manyheads.capacity.graphs import RelationalGraph

_FRACTIONS = 100_000  # operations up to which a dual ray is corrected exactly


def check_dual_ray(
    graph: RelationalGraph, embeddings: Float[Tensor, "m d_model"], ray: np.ndarray, *,
    criterion: str = "global", free: RelationalGraph | None = None,
) -> bool:
    """Whether a dual ray proves that no head of any width can store a graph.

    With z_ij = y_ij (x_i ⊗ x_j, -e), e the unit vector of the pair's threshold,
    a head needs <z_ij, (M, θ)> >= 1 for all pairs. Multipliers λ >= 0, not all 0,
    with Σ λ z = 0 rule it out: the same sum of scores would be 0 and at least Σ λ.
    Rounded multipliers leave a residual r = Σ λ z. They prove it all the same
    if ‖r‖ < σ min λ, over the pairs with λ > 0, with σ the least singular value of the
    matrix of their z: then a correction of λ by at most ‖r‖ / σ makes the sum 0
    and leaves each λ positive. All sides are bounded with their rounding
    errors, σ by a Cholesky factorisation (Rump, BIT 46 (2006) 433). A few pairs
    that do not span the space are instead corrected in exact fractions.

    Parameters
    ----------
    graph, embeddings, criterion, free
        As given to `single_head_feasible`.
    ray : (m, m) array
        The multiplier of every pair (query, key).

    Returns
    -------
    bool
        True is a proof. False means that these multipliers prove nothing.

    Raises
    ------
    ValueError
        As `single_head_feasible` does, or if the ray is no (m, m) array of
        finite numbers.
    """
    signs, x, _ = requirements(graph, embeddings, criterion, free)
    if not isinstance(ray, np.ndarray) or ray.shape != signs.shape or ray.dtype != float:
        refuse("ray", f"a float64 array of shape {signs.shape}", ray)
    if not np.isfinite(ray).all():
        refuse("ray", "finite everywhere", f"an entry {ray[~np.isfinite(ray)][0]}")
    return refutes(ray, signs, x, criterion == "row")


def requirements(graph, embeddings, criterion, free) -> tuple[np.ndarray, np.ndarray, float]:
    """What each pair asks, 1, -1 or 0 (nothing); the embeddings times a scale; the scale.

    The scale is a power of two that rounds nothing and makes no row longer than 1.
    """
    check_tensor("embeddings", embeddings, "m d_model")
    check_pair(graph, embeddings)
    check_choice("criterion", criterion, ("global", "row"))
    signs = np.where(graph.adjacency(), 1.0, -1.0)
    if free is not None:
        if not isinstance(free, RelationalGraph) or free.num_vertices != graph.num_vertices:
            refuse("free", f"a RelationalGraph on {graph.num_vertices} vertices", repr(free))
        signs[free.adjacency()] = 0
    if criterion == "row":  # a query with nothing to tell apart asks nothing
        signs[((signs <= 0).all(axis=1)) | ((signs >= 0).all(axis=1))] = 0
    elif (signs <= 0).all() or (signs >= 0).all():
        refuse("free", "without one of the edges and one of the non-edges", repr(free))
    x = embeddings.detach().cpu().double().numpy()
    power = math.frexp(abs(x).max())[1] + math.ceil(math.log2(x.shape[1]) / 2)
    scaled = np.ldexp(x, -power)
    if abs(power) > 500 or (np.ldexp(scaled, power) != x).any():
        refuse("embeddings", "of entries between 1e-150 and 1e150 in size, or 0", embeddings)
    return signs, scaled, 2.0**-power


def refutes(ray, signs, x, by_row: bool) -> bool:
    """`check_dual_ray` on checked input; shares nothing with the search for the ray."""
    if (ray < 0).any() or not ray.any() or ray[signs == 0].any():
        return False
    ray = np.ldexp(ray, -math.frexp(ray.max())[1])  # at most 1
    rows, columns = np.nonzero(ray)
    signed = (signs * ray)[rows, columns]
    groups = np.unique(rows, return_inverse=True)[1] if by_row else np.zeros_like(rows)
    x = x[:, x.any(axis=0)]
    width = x.shape[1] ** 2
    count, size = len(rows), width + int(groups.max()) + 1
    gram, residual = np.zeros((size, size)), np.zeros(size)
    for start in range(0, count, 1024):
        part = slice(start, start + 1024)
        z = np.zeros((len(rows[part]), size))
        z[:, :width] = (x[rows[part], :, None] * x[columns[part], None, :]).reshape(len(z), width)
        z[np.arange(len(z)), width + groups[part]] = -1
        gram += z.T @ z  # the signs cancel
        residual += z.T @ signed[part]
    # Each z is at most sqrt(2) long, so the trace is at most 2 count. Rounding errors,
    # with room to spare: of the sums, and of the factorisation of a matrix this large.
    sums, factors = _gamma(2 * count + 8), _gamma(2 * size + 8)
    shift = 1.01 * 2 * count * (sums + factors)
    distance = np.linalg.norm(residual) + 1.5 * sums * abs(signed).sum() + 1e-290
    gram[np.diag_indices(size)] -= shift + 1.01 * (distance / abs(signed).min()) ** 2
    try:
        cholesky(gram, overwrite_a=True)
        return True
    except (LinAlgError, ValueError):  # not positive definite, or not finite
        few = count**2 * size <= _FRACTIONS
        return few and _exactly_corrected(x, rows, columns, groups, signed)


def _gamma(length: int) -> float:
    unit = np.finfo(float).eps / 2
    return length * unit / (1 - length * unit)


def _exactly_corrected(x, rows, columns, groups, signed) -> bool:
    """Whether some multipliers, as many as need be changed, are >= 0 and sum z to exactly 0."""
    exact = [[Fraction(entry) for entry in row] for row in x.tolist()]
    d, count = x.shape[1], len(rows)
    equations = [[exact[i][a] * exact[j][b] for i, j in zip(rows, columns, strict=True)]
                 for a in range(d) for b in range(d)]
    equations += [[Fraction(int(g == group)) for g in groups] for group in range(groups.max() + 1)]
    pivots: dict[int, list[Fraction]] = {}  # of an equation solved for a pair
    for equation in equations:
        for pivot, solved in pivots.items():
            if factor := equation[pivot]:
                equation = [u - factor * v for u, v in zip(equation, solved, strict=True)]
        pivot = next((k for k in range(count) if equation[k]), None)
        if pivot is None:
            continue
        equation = [u / equation[pivot] for u in equation]
        for other, solved in pivots.items():
            if factor := solved[pivot]:
                pivots[other] = [u - factor * v for u, v in zip(solved, equation, strict=True)]
        pivots[pivot] = equation
    values = {k: Fraction(signed[k]) for k in range(count) if k not in pivots}
    values |= {pivot: -sum(solved[k] * values[k] for k in values)
               for pivot, solved in pivots.items()}
    # Each multiplier keeps its sign or vanishes, and not all vanish.
    return any(values.values()) and all(values[k] * Fraction(signed[k]) >= 0 for k in values)
