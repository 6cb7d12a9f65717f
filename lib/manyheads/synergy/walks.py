"""Walk matrices: how long a token's information takes to reach the last token.

A walk matrix W is column-stochastic and lower triangular: from node j the walk
goes to node i with probability W[i, j]. The last node, the sink, keeps every
walk that arrives. Its stationary law is that node alone, so the total variation
distance to it after t steps, starting at j, is P_j(T > t) for the hitting time
T of the sink: mixing times are quantiles of hitting times (and the L1 distance
is twice the total variation).

Everything here is exact up to rounding, and componentwise accurate for slow
walks too, because only the *progress mass* of a column is ever used, the sum of
its entries below the diagonal, never 1 - W[j, j].
"""

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_bool, check_count, check_number
from manyheads.synergy._causal import (
    check_band, check_causal, check_layout, check_stochastic, row_bands,
)

__all__ = ["expected_hitting_times", "hitting_time_cdf", "mixing_time"]

# A survival probability this close to epsilon (relatively) counts as equal to it,
# so that rounding cannot turn a tie into one more step.
TIE = {torch.float32: 1e-6, torch.float64: 1e-13}

# 2^1000 steps, about 1e301, are as good as infinitely many.
MOST_POWERS = 1000

# Matrices of the law are held this many entries at a time.
CHUNK = 2**22


def expected_hitting_times(walk: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n"]:
    """Expected number of steps from every node to the last one.

    One backward pass: h_j = (1 + sum_{i>j} W_ij h_i) / sum_{i>j} W_ij, h = 0 at
    the sink. Differentiable in `walk`.

    Parameters
    ----------
    walk
        Column-stochastic, lower triangular, shape (..., n, n).

    Returns
    -------
    Tensor
        Shape (..., n), in steps. A node that reaches, with positive probability,
        a node that never moves on has the answer inf; so has one whose time
        exceeds the dtype's largest number.

    Raises
    ------
    ValueError
        If `walk` is not a finite, non-negative, lower triangular float tensor
        whose columns sum to 1.

    Examples
    --------
    From node 0 half of the walks stay each time; node 1 is the sink:

    >>> expected_hitting_times(torch.tensor([[0.5, 0.0], [0.5, 1.0]]))
    tensor([2., 0.])
    """
    check_layout("walk", walk)
    cost = walk.new_ones(walk.shape[-1])
    cost[-1] = 0
    times, progress = _accumulate(walk, cost)
    _check_columns(walk, progress + walk.diagonal(dim1=-2, dim2=-1))
    if not times.detach().amax().item() < torch.inf:
        stuck = _stuck(progress)
        times, _ = _accumulate(walk, cost, stuck)
        lost = stuck | (times >= torch.finfo(times.dtype).max)
        times = times.masked_fill(_reaches(walk, lost), torch.inf)
    return times


def hitting_time_cdf(walk: Float[Tensor, "*batch n n"], steps: int) -> Float[Tensor, "*batch t n"]:
    """The law of the hitting time of the sink: P_j(T <= t) for t = 0..steps.

    Parameters
    ----------
    walk
        Column-stochastic, lower triangular, shape (..., n, n).
    steps
        The last t, at least 0.

    Returns
    -------
    Tensor
        Shape (..., steps + 1, n); row t is P_j(T <= t) for every start j.

    Raises
    ------
    ValueError
        If `walk` is not a walk matrix or `steps` is not a whole number >= 0.

    Examples
    --------
    >>> hitting_time_cdf(torch.tensor([[0.5, 0.0], [0.5, 1.0]]), 2)
    tensor([[0.0000, 1.0000],
            [0.5000, 1.0000],
            [0.7500, 1.0000]])
    """
    _check_walk(walk)
    steps = check_count("steps", steps, least=0)
    laws = []
    for law in _laws(walk):
        arrived = law.new_zeros(law.shape[:-2] + (1, law.shape[-1]))
        arrived[..., -1] = 1
        rows = [arrived]
        for _ in range(steps):
            rows.append(rows[-1] @ law)
        laws.append(torch.cat(rows, -2))
    # Rounding must not make a distribution function fall or pass 1.
    cdf = torch.cat(laws).cummax(-2).values.clamp(max=1)
    return cdf.to(walk.dtype).reshape(walk.shape[:-2] + cdf.shape[-2:])


def mixing_time(walk: Float[Tensor, "*batch n n"], *, epsilon: float = 0.25,
                average: bool = False) -> Float[Tensor, "*batch"]:
    """The least t at which the walk is within `epsilon` of its stationary law.

    The distance is total variation, P_j(T > t) from start j; a bound of epsilon
    on it is a bound of 2 epsilon on the L1 distance.

    Parameters
    ----------
    walk
        Column-stochastic, lower triangular, shape (..., n, n).
    epsilon
        In (0, 1).
    average
        False: the worst start must be within `epsilon`. True: the mean over all
        n starts must be, the sink among them (as in Vitvitskyi et al. 2025).

    Returns
    -------
    Tensor
        Shape (...), float64: a whole number of steps, or inf where no t (up to
        1e301) will do.
        A distance that equals `epsilon` up to rounding (relatively 1e-13, or 1e-6
        for a float32 walk) counts as within it.

    Raises
    ------
    ValueError
        If `walk` is not a walk matrix, `epsilon` is outside (0, 1), or `average`
        is not a bool.

    Notes
    -----
    The powers W, W^2, W^4, ... are doubled until the walk is mixed, then a binary
    descent finds the step: log2(T) matrices are held, so T = 1e12 is cheap.

    Examples
    --------
    >>> mixing_time(torch.tensor([[0.5, 0.0], [0.5, 1.0]]), epsilon=0.25)
    tensor(2., dtype=torch.float64)
    """
    _check_walk(walk)
    epsilon = check_number("epsilon", epsilon, least=0, most=1, strict=True)
    check_bool("average", average)
    tie = TIE[walk.dtype]

    def distance(survival):
        return survival.mean((-1, -2)) if average else survival.amax((-1, -2))

    times = []
    for law in _laws(walk):
        stuck = _stuck(law.tril(-1).sum(-2))
        never = _accumulate(law, stuck, stuck)[0].unsqueeze(-2)
        # A limit that is only reached in the limit is not reached.
        hopeless = distance(never).gt(0) & distance(never).ge(epsilon * (1 - tie))
        mixed = lambda survival: distance(survival) <= epsilon * (1 + tie)  # noqa: E731

        survival = law.new_ones(law.shape[:-2] + (1, law.shape[-1]))
        survival[..., -1] = 0
        start_mixed = mixed(survival)
        powers = [law]
        while not (hopeless | mixed(survival @ powers[-1])).all() and len(powers) < MOST_POWERS:
            powers.append(_normalised(powers[-1] @ powers[-1]))
        hopeless = hopeless | ~mixed(survival @ powers[-1])
        steps = torch.zeros_like(start_mixed, dtype=torch.float64)
        for exponent in reversed(range(len(powers))):
            later = survival @ powers[exponent]
            short = ~mixed(later)
            survival = torch.where(short[..., None, None], later, survival)
            steps += short * 2.0**exponent
        steps = torch.where(start_mixed, 0.0, steps + 1)
        times.append(steps.masked_fill(hopeless, torch.inf))
    return torch.cat(times).reshape(walk.shape[:-2])


def _check_walk(walk) -> None:
    """Refuse what is not a walk matrix."""
    _, column_sums = check_causal("walk", walk)
    _check_columns(walk, column_sums)


def _check_columns(walk: Tensor, column_sums: Tensor) -> None:
    """Refuse a walk whose columns do not sum to 1."""
    check_stochastic("walk", walk, column_sums, "column",
                     "HeadSystem(...).walk_matrix() makes walks of attention, or divide by "
                     "walk.sum(-2, keepdim=True)")


def _accumulate(walk: Tensor, cost: Tensor, stuck: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Expected total `cost` (0 at the sink) on the way to the sink; progress masses.

    x_j = (cost_j + sum_{i>j} W_ij x_i) / sum_{i>j} W_ij. Bands of rows are taken
    from the last one up: a band is solved by substitution, in float64, and adds
    its part of both sums to all earlier nodes by one product [1, x] W, so that
    the tensor is read, and checked to be causal, once. All terms are
    non-negative: nothing cancels.

    A node without progress gives inf or NaN unless the mask `stuck` marks it:
    then it pays its cost once, and the dtype's largest number stands for inf.
    """
    carried = walk.new_zeros(walk.shape[:-2] + (2, walk.shape[-1]))
    found, masses = [], []
    for band in reversed(row_bands(walk.shape[-1])):
        # (progress - W) x = cost + carried, written with both signs turned.
        system = walk[..., band, band].to(torch.float64, copy=True)
        diagonal = system.diagonal(dim1=-2, dim2=-1)
        diagonal.zero_()
        progress = system.sum(-2) + carried[..., 0, band]
        masses.insert(0, progress.to(walk.dtype))
        if stuck is not None:
            progress = progress + stuck[..., band]
        diagonal.copy_(progress.neg())
        if not found:
            diagonal[..., -1] = -1  # the sink, where no cost is due
        due = cost[..., band].double() + carried[..., 1, band]
        x = torch.linalg.solve_triangular(system.mT, due.neg().unsqueeze(-1), upper=True).mT
        if stuck is not None:
            x = x.clamp(max=torch.finfo(walk.dtype).max)
        x = x.to(walk.dtype)
        found.insert(0, x)
        sums = torch.cat([torch.ones_like(x), x], -2) @ walk[..., band, :]
        check_band("walk", walk, band, sums[..., 0, :])
        carried = carried + sums
    return torch.cat(found, -1).squeeze(-2), torch.cat(masses, -1)


def _stuck(progress: Tensor) -> Tensor:
    """The nodes, other than the sink, that never move on: shape (..., n), bool."""
    stuck = progress == 0
    stuck[..., -1] = False
    return stuck


def _reaches(walk: Tensor, targets: Tensor) -> Tensor:
    """The nodes from which some node of `targets` (..., n) is reached, targets included."""
    reaches = targets.clone()
    for receiver in range(walk.shape[-1] - 1, 0, -1):
        sends = walk[..., receiver, :receiver] > 0
        reaches[..., :receiver] |= sends & reaches[..., receiver, None]
    return reaches


def _laws(walk: Tensor):
    """The walks in float64, exactly normalised, a few of them at a time (k, n, n)."""
    nodes = walk.shape[-1]
    for part in walk.reshape(-1, nodes, nodes).split(max(1, CHUNK // nodes**2)):
        yield _normalised(part.double())


def _normalised(law: Tensor) -> Tensor:
    """`law` with columns that sum to 1 and each entry below the diagonal accurate.

    Squaring a stochastic matrix doubles the error of a column sum each time. So
    the diagonal, where it is large, is set to what progress leaves; where it is
    small that would cancel, and the column is divided by its sum.
    """
    progress = law.tril(-1).sum(-2)
    stay = law.diagonal(dim1=-2, dim2=-1)
    stay = torch.where(progress <= 0.5, 1 - progress, stay)
    law = torch.diagonal_scatter(law, stay, dim1=-2, dim2=-1)
    return law / (progress + stay).unsqueeze(-2)
