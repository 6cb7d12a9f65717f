"""Small systems for the tests, and the same quantities computed in rationals."""

from fractions import Fraction

import torch
from hypothesis import strategies as st

from manyheads.synergy import HeadSystem

EXAMPLE_2 = [[(0, 1), (1, 2), (2, 3)], [(0, 2), (1, 2), (1, 3), (2, 3)]]


def line(num_nodes):
    return [(j, j + 1) for j in range(num_nodes - 1)]


def full(num_nodes):
    return [(j, i) for i in range(num_nodes) for j in range(i)]


def random_attention(*shape, dtype=torch.float64, seed=0):
    """Causal softmax attention of Gaussian scores, shape (..., n, n)."""
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    future = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


@st.composite
def systems(draw, max_nodes=5, max_heads=3, least_flow=0):
    """Systems of small whole flows and rational weights; a sink may be out of reach."""
    heads, nodes = draw(st.integers(1, max_heads)), draw(st.integers(1, max_nodes))
    flows = torch.zeros(heads, nodes, nodes, dtype=torch.float64)
    for i in range(nodes):
        for j in range(i + 1):
            for head in range(heads):
                flows[head, i, j] = draw(st.integers(least_flow, 3))
    parts = draw(st.lists(st.integers(1, 4), min_size=heads, max_size=heads))
    return HeadSystem(flows, [Fraction(part, sum(parts)) for part in parts])


def fractions(matrix):
    """A sympy matrix of rationals, or a float tensor, as nested lists of Fractions."""
    rows = matrix.tolist()
    return [[Fraction(int(x.p), int(x.q)) if hasattr(x, "p") else Fraction(x) for x in row]
            for row in rows]


def never(walk):
    """P_j(the sink is never reached), in rationals."""
    n = len(walk)
    lost = [Fraction(0)] * n
    for j in reversed(range(n - 1)):
        progress = sum(walk[i][j] for i in range(j + 1, n))
        lost[j] = (sum(walk[i][j] * lost[i] for i in range(j + 1, n)) / progress
                   if progress else Fraction(1))
    return lost


def exact_hitting_times(walk):
    """Expected hitting times in rationals, inf where the sink may be missed."""
    n = len(walk)
    times, lost = [Fraction(0)] * n, never(walk)
    for j in reversed(range(n - 1)):
        if not lost[j]:
            later = range(j + 1, n)
            progress = sum(walk[i][j] for i in later)
            times[j] = (1 + sum(walk[i][j] * times[i] for i in later)) / progress
    return [float("inf") if lost[j] else times[j] for j in range(n)]


def exact_mixing_time(walk, epsilon, average):
    """The least t by trying every t, in rationals."""
    n, epsilon = len(walk), Fraction(epsilon)
    distance = (lambda p: sum(p) / n) if average else max
    limit = distance(never(walk))
    if limit > 0 and limit >= epsilon:
        return float("inf")
    survival, t = [Fraction(1)] * (n - 1) + [Fraction(0)], 0
    while distance(survival) > epsilon:
        survival = [sum(survival[i] * walk[i][j] for i in range(j, n)) for j in range(n)]
        t += 1
    return t
