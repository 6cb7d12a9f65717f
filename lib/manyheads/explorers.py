"""The data of the book's two interactive pieces, as a notebook hands them to a page.

The pieces themselves are scripts without dependencies in ``book/_explorers``. Their
formulas are not typed there: they are printed as JavaScript from the expressions of
`manyheads.capacity.bounds`.
"""

__all__ = ["Explorer", "capacity_explorer", "heads_explorer", "javascript"]

import html
import json
from dataclasses import dataclass

import pandas as pd
import sympy
from sympy import Function, binomial, factorial, log

from manyheads._checks import check_count, describe, refuse
from manyheads.capacity import bounds

_LGAMMA = Function("lgamma")


@dataclass(frozen=True)
class Explorer:
    """An interactive piece: a name that chooses the script, and its data.

    IPython shows it as an element that the script fills in, in the rendered book; a
    notebook shows the sentence inside.
    """

    name: str
    data: dict

    def __repr__(self) -> str:
        return f"the {self.name} explorer, with {', '.join(self.data)}"

    def _repr_html_(self) -> str:
        data = html.escape(json.dumps(self.data))
        return (f'<div class="explorer" data-explorer="{self.name}" data-model="{data}">'
                "This piece is interactive in the rendered book.</div>")


def javascript(expression: sympy.Expr) -> str:
    """A bound as JavaScript of m, e (for m'), d, p, D_K; `lgamma` is ln Γ.

    Examples
    --------
    >>> javascript(bounds.optimal_heads.expression)
    'e/d'
    """
    def over_lgamma(term):
        (inside,) = term.args
        if inside.func == factorial:
            return _LGAMMA(inside.args[0] + 1)
        n, k = inside.args
        return _LGAMMA(n + 1) - _LGAMMA(k + 1) - _LGAMMA(n - k + 1)

    expression = expression.subs(bounds.SYMBOLS.m_prime, sympy.Symbol("e", positive=True)).replace(
        lambda term: term.func == log and term.args[0].func in (factorial, binomial), over_lgamma)
    return sympy.jscode(expression, user_functions={"lgamma": "lgamma"})


def capacity_explorer(points: pd.DataFrame, *, rate: float) -> Explorer:
    """Bounds on D_K, and where channels lie, for sizes that the reader chooses.

    Parameters
    ----------
    points : DataFrame
        Columns kind, num_vertices, d_model, heads, total_key_dim: channels that work.
    rate : float
        Of the rule for trained heads, h = max(1, rate · B / d_model²) with B the bits
        that name the graph.

    Raises
    ------
    ValueError
        If a column is missing.
    """
    columns = ["kind", "num_vertices", "d_model", "heads", "total_key_dim"]
    if not isinstance(points, pd.DataFrame) or not set(columns) <= set(points):
        refuse("points", "a DataFrame with " + ", ".join(columns), describe(points))
    graph_bits = bounds.graph_bits.expression
    with_bits = {name: bound.expression.subs(bounds.SYMBOLS.B, graph_bits)
                 for name, bound in {"counting": bounds.counting_lower_bound,
                                     "signs": bounds.sign_pattern_lower_bound,
                                     "bits": bounds.bits_per_parameter}.items()}
    formulas = {name: javascript(one) for name, one in with_bits.items()}
    formulas["heads_built"] = javascript(bounds.optimal_heads.expression)
    rows = [[kind, *map(int, numbers)] for kind, *numbers in
            points[columns].drop_duplicates().itertuples(index=False)]
    return Explorer("capacity", {"formulas": formulas, "points": rows, "rate": rate})


def heads_explorer(presets: dict, *, num_nodes: int = 4) -> Explorer:
    """Two heads on a few nodes whose edges the reader switches.

    Parameters
    ----------
    presets : dict
        A title: the edge lists of two heads, pairs (source, target) with source < target.
    num_nodes : int
        How many nodes to begin with, at most 5.

    Examples
    --------
    >>> heads_explorer({"a relay": ([(0, 1)], [(1, 2)])}, num_nodes=3)
    the heads explorer, with nodes, presets
    """
    nodes = check_count("num_nodes", num_nodes, least=2, most=5)
    for title, heads in presets.items():
        for head in heads:
            for edge in head:
                if not 0 <= edge[0] < edge[1] < 5:
                    refuse("presets", "of edges (source, target) with 0 <= source < target < 5",
                           f"{edge} in {title!r}")
    data = {title: [[list(edge) for edge in head] for head in heads]
            for title, heads in presets.items()}
    return Explorer("heads", {"nodes": nodes, "presets": data})
