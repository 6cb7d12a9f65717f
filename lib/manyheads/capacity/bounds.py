"""What any channel must pay, and what a construction does: formulas and their numbers.

Each formula is one sympy expression, `.expression` of the function that evaluates it;
its symbols are in `SYMBOLS`, named as in the book's notation. Numbers come from the
expression by log-gamma functions, good for a million vertices. Arguments outside their
range are refused with a ValueError.

A lower bound speaks of a class of graphs with m vertices and m' edges:

==================  ============================================  ===========
`graphs`            which                                         how many
==================  ============================================  ===========
``"any"``           all with m' edges                             C(m², m')
``"out_regular"``   every query has m'/m keys                     C(m, m'/m)^m
``"permutations"``  every query has one key, every key one query  m!
==================  ============================================  ===========

With fewer key dimensions than the bound, some graph of the class is out of reach
whatever the embeddings.
"""

__all__ = [
    "SYMBOLS",
    "bits_per_parameter",
    "construction_upper_bound",
    "counting_lower_bound",
    "graph_bits",
    "head_bits",
    "optimal_heads",
    "sign_pattern_lower_bound",
    "single_head_ceiling",
]

import math
from types import SimpleNamespace

import sympy
from scipy.optimize import brentq
from sympy import binomial, factorial, log

from manyheads._checks import check_bool, check_choice, check_count, check_number, refuse
from manyheads._formulas import formula, value

SYMBOLS = SimpleNamespace(
    m=sympy.Symbol("m", positive=True),  # vertices
    m_prime=sympy.Symbol("m'", positive=True),  # edges
    d=sympy.Symbol("d", positive=True),  # d_model
    p=sympy.Symbol("p", positive=True),  # bits to store a weight in
    h=sympy.Symbol("h", positive=True),  # heads
    d_k=sympy.Symbol("d_k", positive=True),  # key_dim
    D_K=sympy.Symbol("D_K", positive=True),  # total_key_dim
    B=sympy.Symbol("B", positive=True),  # bits that name a graph of the class
    C=sympy.Symbol("C", positive=True),  # constant of a construction
)
_S = SYMBOLS

_GRAPH_BITS = {
    "any": log(binomial(_S.m**2, _S.m_prime)) / log(2),
    "out_regular": _S.m * log(binomial(_S.m, _S.m_prime / _S.m)) / log(2),
    "permutations": log(factorial(_S.m)) / log(2),
}
_FREE = _S.d_k * (2 * _S.d - _S.d_k)  # parameters of a head that its scores can tell apart
_LOW_RANK_BITS = log(binomial(2 * _S.m**2 + _FREE, _FREE)) / log(2)
_FULL_WIDTH_BITS = log(binomial(_S.m**2 + _S.d**2, _S.d**2)) / log(2)
_HEAD_BITS = sympy.Min(_LOW_RANK_BITS, _FULL_WIDTH_BITS)


@formula(_GRAPH_BITS["any"])
def graph_bits(num_vertices: int, num_edges: int, *, graphs: str = "any") -> float:
    """Bits that it takes to name one graph of a class: log2 of how many there are.

    Parameters
    ----------
    num_vertices, num_edges : int
        m and m', with m' from 0 to m²; a multiple of m for "out_regular", m for
        "permutations".
    graphs : {"any", "out_regular", "permutations"}
        The class, see the module. `graph_bits.expressions` has the three formulas.

    Examples
    --------
    >>> round(graph_bits(4, 4, graphs="permutations"), 6)  # log2(24)
    4.584963
    """
    check_choice("graphs", graphs, tuple(_GRAPH_BITS))
    num_vertices = check_count("num_vertices", num_vertices)
    num_edges = check_count("num_edges", num_edges, least=0, most=num_vertices**2)
    if graphs == "permutations" and num_edges != num_vertices:
        refuse("num_edges", f"{num_vertices}, as many as vertices, for permutations", num_edges)
    if graphs == "out_regular" and num_edges % num_vertices:
        refuse("num_edges", f"a multiple of {num_vertices} when out-regular", num_edges)
    return value(_GRAPH_BITS[graphs], {_S.m: num_vertices, _S.m_prime: num_edges})


graph_bits.expressions = dict(_GRAPH_BITS)


@formula(_S.B / (2 * _S.d * _S.p))
def counting_lower_bound(
    num_vertices: int, num_edges: int, d_model: int, bits: int | float, *, graphs: str = "any"
) -> float:
    """Least D_K, not rounded, with which weights of `bits` bits can name every graph.

    The 2 · d_model · D_K weights take at most 2^(2 d_model D_K bits) values. The threshold
    is not counted: the number of edges is given, so the scores alone decide the graph.

    Parameters
    ----------
    num_vertices, num_edges, graphs
        The class, as in `graph_bits`; its bits are B in the expression.
    d_model : int
    bits : float
        Positive: 32 for float32 weights, less if fewer of them matter.

    Notes
    -----
    The parameter count of Adler, arXiv 2509.22840, with its constants.

    Examples
    --------
    >>> round(counting_lower_bound(256, 256, 64, bits=1, graphs="permutations"), 2)
    13.16
    """
    values = {
        _S.B: graph_bits(num_vertices, num_edges, graphs=graphs),
        _S.d: check_count("d_model", d_model),
        _S.p: check_number("bits", bits, least=0, strict=True),
    }
    return value(counting_lower_bound.expression, values)


@formula(_HEAD_BITS)
def head_bits(num_vertices: int, d_model: int, key_dim: int | float) -> float:
    """Most bits that one head can hold, however precise its weights.

    log2 of a bound on the number of relations {(i, j): S(i, j) > θ} that a head reports
    as its weights vary; the embeddings and the threshold θ, not 0, are fixed.

    Parameters
    ----------
    num_vertices, d_model : int
        m and d.
    key_dim : float
        d_k, positive; real numbers interpolate. From d_model on, width adds nothing.

    Returns
    -------
    float
        The lesser of `head_bits.low_rank_expression` (quadratics in d_k (2d - d_k)
        variables, free of gauge) and `.full_width_expression` (linear in d² variables).

    Notes
    -----
    Ours: q polynomials of degree at most k, 1 or 2, in n variables have at most
    C(kq + n, n) strict sign patterns (proof in the chapter "What any channel must pay").
    Warren, Trans. Amer. Math. Soc. 133 (1968), has (4ekq/n)^n.
    """
    m, d = check_count("num_vertices", num_vertices), check_count("d_model", d_model)
    key_dim = check_number("key_dim", key_dim, least=0, strict=True)
    return value(_HEAD_BITS, {_S.m: m, _S.d: d, _S.d_k: min(key_dim, d)})


head_bits.low_rank_expression = _LOW_RANK_BITS
head_bits.full_width_expression = _FULL_WIDTH_BITS


@formula((_S.B - 1) / _HEAD_BITS.subs(_S.d_k, 1))
def sign_pattern_lower_bound(
    num_vertices: int,
    num_edges: int,
    d_model: int,
    *,
    heads: int | None = None,
    graphs: str = "any",
    rounded: bool = False,
) -> float:
    """Least D_K of any channel, however precise its weights.

    A channel's graph is the union of its heads', and its threshold can be scaled to 1 or
    -1, so a class of 2^B graphs needs B <= 1 + heads · `head_bits`. Ours, after Warren 1968.

    Parameters
    ----------
    num_vertices, num_edges, graphs
        The class, as in `graph_bits`; its bits are B in the expression.
    d_model : int
    heads : int, optional
        Solves the inequality for key_dim >= 1. Left out: the least over all splits,
        attained at key_dim 1; that is the expression.
    rounded : bool
        Up to what a channel can have: a whole key_dim for each head.

    Returns
    -------
    float
        Infinity if `heads` heads are too few at any width.

    Examples
    --------
    >>> sign_pattern_lower_bound(256, 256, 64, graphs="permutations", rounded=True)
    2.0
    >>> sign_pattern_lower_bound(256, 256, 8, heads=1, graphs="permutations")
    inf
    """
    check_bool("rounded", rounded)
    total = graph_bits(num_vertices, num_edges, graphs=graphs)
    d_model = check_count("d_model", d_model)
    if heads is None:
        values = {_S.B: total, _S.m: num_vertices, _S.d: d_model}
        budget = max(0.0, value(sign_pattern_lower_bound.expression, values))
        return float(max(1, math.ceil(budget - 1e-9))) if rounded else budget
    heads = check_count("heads", heads)

    def spare(key_dim):
        return 1 + heads * head_bits(num_vertices, d_model, key_dim) - total

    if spare(d_model) < 0:
        return math.inf
    key_dim = 1.0 if spare(1) >= 0 else brentq(spare, 1, d_model, xtol=1e-12)
    return heads * float(math.ceil(key_dim - 1e-9)) if rounded else heads * key_dim


@formula(sympy.Le(_GRAPH_BITS["permutations"], 1 + _FULL_WIDTH_BITS))
def single_head_ceiling(d_model: int) -> int:
    """Most vertices of which one head, of any width, may recover every permutation.

    The largest m that satisfies the expression. One more, and some permutation is beyond
    one head, whatever its width, its precision and the embeddings. Ours. For d_model up
    to 10^8, past which the two sides differ by less than they are rounded.

    Examples
    --------
    >>> single_head_ceiling(64)
    5316
    """
    d_model = check_count("d_model", d_model, most=10**8)
    need, have = single_head_ceiling.expression.args

    def holds(m: int) -> bool:
        return value(need, {_S.m: m}) <= value(have, {_S.m: m, _S.d: d_model})

    low, high = 1, 2  # 1! = 1 holds; past its one crossing the inequality fails
    while holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@formula(_S.h * _S.C * (1 + _S.m_prime / (_S.h * _S.d)) ** 2 * log(_S.h * _S.m**2))
def construction_upper_bound(
    num_vertices: int, num_edges: int, d_model: int, heads: int, constant: int | float
) -> float:
    """A budget D_K that suffices blocks of b = m'/heads edges with random signatures.

    Each of h heads needs a key_dim of C (1 + b/d)² ln(h m²). But for the logarithm that
    is least at `optimal_heads`. `heads` is from 1 to m'; `constant` is C, positive, from
    the construction's tail bound. After Adler, arXiv 2509.22840.
    """
    m = check_count("num_vertices", num_vertices)
    m_prime = check_count("num_edges", num_edges, most=m**2)
    values = {
        _S.m: m,
        _S.m_prime: m_prime,
        _S.d: check_count("d_model", d_model),
        _S.h: check_count("heads", heads, most=m_prime),
        _S.C: check_number("constant", constant, least=0, strict=True),
    }
    return value(construction_upper_bound.expression, values)


@formula(_S.m_prime / _S.d)
def optimal_heads(num_edges: int, d_model: int) -> float:
    """Heads, not rounded, at which `construction_upper_bound` is least but for its logarithm."""
    m_prime, d = check_count("num_edges", num_edges), check_count("d_model", d_model)
    return value(optimal_heads.expression, {_S.m_prime: m_prime, _S.d: d})


@formula(_S.B / (2 * _S.d * _S.D_K))
def bits_per_parameter(
    num_vertices: int, num_edges: int, d_model: int, total_key_dim: int | float, *,
    graphs: str = "any",
) -> float:
    """Bits that a channel for the class stores in each of its 2 · d_model · D_K weights.

    A capacity whose unit does not depend on the sizes. `total_key_dim` is D_K, positive;
    the other arguments are those of `counting_lower_bound`.
    """
    values = {
        _S.B: graph_bits(num_vertices, num_edges, graphs=graphs),
        _S.d: check_count("d_model", d_model),
        _S.D_K: check_number("total_key_dim", total_key_dim, least=0, strict=True),
    }
    return value(bits_per_parameter.expression, values)
