"""Bounds on the mixing time of a walk, upper and lower, with their constants.

All speak of the worst start and the total variation distance, and use five facts of a
walk: the least and the largest progress p and q of a node other than the sink, the
longest path L, the longest shortest path D, and the largest expected hitting time h.
Every step moves on with a probability from p to q, and the sink takes D to L moves:

=====================  =======  ====================================================
bound                  side     what
=====================  =======  ====================================================
``"binomial"``         upper    least t with P(Bin(t, p) < L) <= ε; met by lazy lines
``"chernoff"``         upper    (m + ℓ + sqrt(ℓ² + 2mℓ)) / p, m = L - 1, ℓ = ln(1/ε)
``"hoeffding"``        upper    the same from Hoeffding's inequality: ℓ/p² for ℓ/p
``"hitting"``          upper    k (h ε^(-1/k) - 1) for the best whole k
``"published"``        (upper)  2L/p; only for ε >= `published_threshold(L)`
``"binomial_lower"``   lower    least t with P(Bin(t, q) < D) <= ε
``"slowest_lower"``    lower    ln(ε) / ln(1 - p)
``"hitting_lower"``    lower    (1 - ε) h
=====================  =======  ====================================================

Proofs are in the chapter "Bounds that meet". Sáez de Ocáriz Borde, arXiv 2507.02944,
Theorem 2.9, has the published one.
"""

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import numpy as np
import sympy
import torch
from jaxtyping import Float, Int
from scipy.special import betaincc
from sympy.codegen.rewriting import log1p_opt, optimize
from torch import Tensor

from manyheads._checks import check_choice, check_count, check_number
from manyheads._formulas import formula, value
from manyheads.synergy.walks import TIE, expected_hitting_times

__all__ = [
    "LOWER_BOUNDS",
    "SYMBOLS",
    "UPPER_BOUNDS",
    "WalkProfile",
    "mixing_time_bound",
    "published_threshold",
    "walk_profile",
]

SYMBOLS = SimpleNamespace(
    p=sympy.Symbol("p", positive=True),  # least progress of a node
    q=sympy.Symbol("q", positive=True),  # largest progress of a node
    L=sympy.Symbol("L", positive=True),  # longest path, in edges
    D=sympy.Symbol("D", positive=True),  # longest shortest path, in edges
    h=sympy.Symbol("h", positive=True),  # largest expected hitting time
    epsilon=sympy.Symbol("epsilon", positive=True),  # distance asked for
    k=sympy.Symbol("k", positive=True),  # stretches that a walk is cut into
    t=sympy.Symbol("t", positive=True),  # steps
)
_S = SYMBOLS
_ell, _m = sympy.log(1 / _S.epsilon), _S.L - 1
_r = sympy.Symbol("r")


def _binomial_tail(progress, moves):
    """P(Bin(t, progress) < moves)."""
    return sympy.Sum(sympy.binomial(_S.t, _r) * progress**_r * (1 - progress)**(_S.t - _r),
                     (_r, 0, moves - 1))


# What is rounded to whole steps; of the binomial bounds the tail that falls to epsilon.
EXPRESSIONS = {
    "binomial": _binomial_tail(_S.p, _S.L),
    "chernoff": (_m + _ell + sympy.sqrt(_ell**2 + 2 * _m * _ell)) / _S.p,
    "hoeffding": _m / _S.p + (_ell + sympy.sqrt(_ell**2 + 8 * _S.p * _m * _ell))
                             / (4 * _S.p**2),
    "hitting": _S.k * (_S.h * _S.epsilon**(-1 / _S.k) - 1),
    "published": 2 * _S.L / _S.p,
    "binomial_lower": _binomial_tail(_S.q, _S.D),
    "slowest_lower": sympy.log(_S.epsilon) / sympy.log(1 - _S.p),
    "hitting_lower": (1 - _S.epsilon) * _S.h,
}
LOWER_BOUNDS = tuple(name for name in EXPRESSIONS if name.endswith("_lower"))
UPPER_BOUNDS = tuple(name for name in EXPRESSIONS if not name.endswith("_lower"))


@dataclass(frozen=True)
class WalkProfile:
    """What the bounds know of a walk; every field has the walk's batch shape (...)."""

    slowest: Float[Tensor, "..."]  # p, float64
    fastest: Float[Tensor, "..."]  # q, float64
    longest: Int[Tensor, "..."]  # L
    shortest: Int[Tensor, "..."]  # D, the longest of the shortest paths
    hitting: Float[Tensor, "..."]  # h, float64


def walk_profile(walk: Float[Tensor, "*batch n n"]) -> WalkProfile:
    """The progress, path lengths and hitting time that the bounds are made of.

    Parameters
    ----------
    walk
        Column-stochastic, lower triangular, shape (..., n, n), n >= 1. For one node
        the progress counts as 1 and the rest is 0.

    Raises
    ------
    ValueError
        As in `expected_hitting_times`.

    Examples
    --------
    >>> walk_profile(torch.tensor([[0.5, 0, 0], [0.25, 0.5, 0], [0.25, 0.5, 1]])).longest
    tensor(2)
    """
    hitting = expected_hitting_times(walk).double().amax(-1)
    nodes = walk.shape[-1]
    progress = walk.double().tril(-1).sum(-2)[..., :-1]
    longest = walk.new_zeros(walk.shape[:-1], dtype=torch.int64)
    shortest = longest.clone()
    for node in range(nodes - 2, -1, -1):
        later, edge = slice(node + 1, None), walk[..., node + 1:, node] > 0
        longest[..., node] = 1 + longest[..., later].masked_fill(~edge, -1).amax(-1)
        # A node that leads nowhere is as far as a path can be long, and p is 0 there.
        shortest[..., node] = 1 + shortest[..., later].masked_fill(~edge, nodes).amin(-1)
    if nodes == 1:
        progress = torch.ones_like(walk[..., 0], dtype=torch.float64)
    return WalkProfile(progress.amin(-1), progress.amax(-1), longest.amax(-1),
                       shortest.amax(-1).clamp(max=nodes), hitting)


def mixing_time_bound(walk: Float[Tensor, "*batch n n"], bound: str = "binomial", *,
                      epsilon: float = 0.25) -> Float[Tensor, "*batch"]:
    """A bound on `mixing_time(walk, epsilon=epsilon)`, in whole steps.

    Parameters
    ----------
    walk
        Column-stochastic, lower triangular, shape (..., n, n).
    bound
        One of `UPPER_BOUNDS` or `LOWER_BOUNDS`, see the module.
    epsilon
        In (0, 1), the total variation distance asked for.

    Returns
    -------
    Tensor
        Shape (...), float64, inf where a node never moves on. Upper bounds are
        rounded up ("hitting" each stretch), and so are lower bounds.
        `mixing_time_bound.expressions` has the formulas, in `SYMBOLS`.

    Raises
    ------
    ValueError
        If `walk` is not a walk matrix, `bound` is none of these, or `epsilon` is
        outside (0, 1).

    Examples
    --------
    Two nodes and progress 1/2, where 2L/p fails: (1/2)^4 is more than 1/100.

    >>> walk = torch.tensor([[0.5, 0.0], [0.5, 1.0]])
    >>> [int(mixing_time_bound(walk, bound, epsilon=0.01)) for bound in
    ...  ("binomial_lower", "slowest_lower", "binomial", "chernoff", "published")]
    [7, 7, 7, 19, 4]
    """
    check_choice("bound", bound, tuple(EXPRESSIONS))
    epsilon = check_number("epsilon", epsilon, least=0, most=1, strict=True)
    facts = walk_profile(walk)
    p, q, moves, least, h = (fact.cpu().numpy() for fact in (
        facts.slowest, facts.fastest, facts.longest, facts.shortest, facts.hitting))
    tie, lost = TIE[walk.dtype], p == 0
    p = np.where(lost, 1.0, p).clip(max=1)
    known = {_S.p: p, _S.L: moves, _S.h: h, _S.epsilon: epsilon}
    with np.errstate(divide="ignore", invalid="ignore"):
        if bound == "binomial":
            steps = _binomial_steps(moves, p, epsilon, tie)
        elif bound == "binomial_lower":
            steps = _binomial_steps(least, q.clip(1e-300, 1), epsilon, tie)
        elif bound == "hitting":
            # The best k is near ln(1/epsilon), or what makes every stretch one step.
            stretches = np.arange(1, int(-2 * np.log(epsilon)) + 3)
            each = np.ceil(h[..., None] * epsilon**(-1 / stretches) * (1 - tie)) - 1
            steps = (stretches * each).min(-1)
        else:
            steps = np.ceil(_numbers(EXPRESSIONS[bound], known) * (1 - tie))
    steps = np.where(lost, np.inf, steps)
    steps = np.where(walk.shape[-1] == 1, 0.0, steps)
    return torch.as_tensor(steps, dtype=torch.float64, device=walk.device)


mixing_time_bound.expressions = dict(EXPRESSIONS)


@formula(sympy.uppergamma(_S.L, 2 * _S.L) / sympy.gamma(_S.L))
def published_threshold(longest: int) -> float:
    """The least ε for which ceil(2L/p) bounds every mixing time with longest path L.

    It is P(Poisson(2L) < L), at most (2/e)^L; above it the bound holds for every p,
    below it a lazy line with small p breaks it.

    Parameters
    ----------
    longest
        L, in edges, at least 1.

    Notes
    -----
    Ours; from Hoeffding, Ann. Math. Statist. 27 (1956), Theorem 4: a tail of Bin(t, c/t)
    below its mean by one or more grows with t, towards that of a Poisson variable.

    Examples
    --------
    >>> round(published_threshold(1), 6)  # exp(-2): good for the usual 1/4
    0.135335
    """
    longest = check_count("longest", longest)
    return value(sympy.Function("gammaincc")(_S.L, 2 * _S.L), {_S.L: longest})


def _numbers(expression: sympy.Expr, known: dict) -> np.ndarray:
    """The expression's value, elementwise in arrays."""
    symbols, twin = _twin(expression)
    return np.asarray(twin(*(known[symbol] for symbol in symbols)))


@cache
def _twin(expression: sympy.Expr):
    """The expression's symbols and its numeric function of them, in that order."""
    symbols = tuple(sorted(expression.free_symbols, key=str))
    # log(1 - p) loses its digits for small p, log1p(-p) does not.
    return symbols, sympy.lambdify(symbols, optimize(expression, [log1p_opt]), "numpy")


def _binomial_steps(moves, progress, epsilon: float, tie: float) -> np.ndarray:
    """The least t with P(Bin(t, progress) < moves) <= epsilon, elementwise, by bisection."""
    moves = moves.astype(float)
    above = _numbers(EXPRESSIONS["chernoff"],
                     {_S.p: progress, _S.L: moves.clip(min=1), _S.epsilon: epsilon})
    below, above = moves - 1, np.ceil(np.maximum(above, moves))
    while (above - below > np.maximum(1, above * 1e-15)).any():
        middle = np.floor((below + above) / 2)
        tail = betaincc(moves, np.maximum(middle - moves + 1, 1), progress)
        enough = (middle >= moves) & (tail <= epsilon * (1 + tie))
        below, above = np.where(enough, below, middle), np.where(enough, middle, above)
    return np.asarray(above)
