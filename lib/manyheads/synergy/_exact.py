"""Mixtures of heads in rational numbers."""

from collections.abc import Sequence
from fractions import Fraction

import sympy
from torch import Tensor


def exact_mixture(flows: Tensor, weights: Sequence[Fraction], *, axis: int,
                  mix_first: bool = False) -> sympy.ImmutableMatrix:
    """The heads of `flows` (heads, n, n), normalised along `axis` and mixed.

    With `mix_first` the sums are those of the mixed flows. A line without flow is
    that of the identity.
    """
    heads = [[[Fraction(entry) for entry in row] for row in flow] for flow in flows.tolist()]
    nodes = range(len(heads[0]))
    sums = [[sum(line) for line in (head if axis == -1 else zip(*head, strict=True))]
            for head in heads]
    if mix_first:
        mixed = [sum(weight * total for weight, total in zip(weights, totals, strict=True))
                 for totals in zip(*sums, strict=True)]
        sums = [mixed] * len(heads)

    def entry(i, j):
        parts = []
        for weight, head, totals in zip(weights, heads, sums, strict=True):
            total = totals[i if axis == -1 else j]
            parts.append(weight * (head[i][j] / total if total else int(i == j)))
        return sympy.Rational(*sum(parts, Fraction(0)).as_integer_ratio())

    return sympy.ImmutableMatrix([[entry(i, j) for j in nodes] for i in nodes])
