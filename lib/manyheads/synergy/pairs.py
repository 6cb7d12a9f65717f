"""All pairs of small graphs: does the mixture beat both, exactly?

The population is that of heads as graphs: nodes in causal order, a self-loop on every
node, and one sink, the last node, so that every other node has at least one edge to a
later one. There are 1, 3, 21 and 315 such graphs on 2, 3, 4 and 5 nodes. Two heads of
one layer share the causal order, and so do the pairs here.
"""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_choice, check_count, refuse
from manyheads.synergy import _integers

__all__ = ["PAIR_MEASURES", "compare_pairs", "pair_classes", "sink_graphs"]

# Five nodes and weights over 64 keep all numbers of a comparison of hitting times below
# 2^53: times are at most 8, over a denominator of at most 64^4 * (2 * 3 * 4 * 5)^2, and
# over 120 for a graph; a mean has 5 of them.
MOST_NODES, MOST_WEIGHT = 5, 64

PAIR_MEASURES = ("worst", "mean", "first", "mixing", "fidelity")


def sink_graphs(num_nodes: int) -> Float[Tensor, "graphs n n"]:
    """Every graph with self-loops in causal order whose only sink is the last node.

    Parameters
    ----------
    num_nodes
        From 2 to 6 (9765 graphs).

    Returns
    -------
    Tensor
        Flows for `HeadSystem`: shape (graphs, n, n), float64, 0 or 1. Node by node the
        sets of targets run through {j+1}, {j+2}, {j+1, j+2}, ..., the last node's fastest.

    Raises
    ------
    ValueError
        If `num_nodes` is not a whole number from 2 to 6.

    Examples
    --------
    >>> [len(sink_graphs(n)) for n in (2, 3, 4, 5)]
    [1, 3, 21, 315]
    """
    nodes = check_count("num_nodes", num_nodes, least=2, most=6)
    choices = [range(1, 2**(nodes - 1 - node)) for node in range(nodes - 1)]
    targets = torch.tensor(list(product(*choices)))  # a set of targets as a binary number
    graphs = torch.eye(nodes, dtype=torch.float64).repeat(len(targets), 1, 1)
    for source in range(nodes - 1):
        for target in range(source + 1, nodes):
            graphs[:, target, source] = (targets[:, source] >> (target - source - 1)) & 1
    return graphs


def compare_pairs(num_nodes: int, weights: tuple[int, int] = (1, 1), *,
                  measures: tuple[str, ...] = PAIR_MEASURES) -> pd.DataFrame:
    """Every unordered pair of different graphs of `sink_graphs`, its mixture against both.

    All comparisons are made in integers: a tie is a tie.

    Parameters
    ----------
    num_nodes
        From 2 to 5.
    weights
        Of the first and the second graph, whole numbers of sum at most 64, divided by
        their sum. Pairs are listed once: with unequal weights look at both orders.
    measures
        Which of these, smaller is better but for the last: "worst", "mean" and "first",
        the expected hitting time of the sink from the worst start, averaged over all n
        starts, from node 0; "mixing", the mixing time at 1/4 from the worst start;
        "fidelity", the minimax fidelity over all steps, the limit included.

    Returns
    -------
    DataFrame
        A row for each pair: `first_graph`, `second_graph` (indices into `sink_graphs`);
        for each measure its value in the mixture, under its name, that of the better
        graph, as `worst_alone`, and `worst_verdict`: 1 if the mixture is strictly better
        than both graphs, -1 if strictly worse than both, else 0.

    Raises
    ------
    ValueError
        If an argument is not as described.

    Examples
    --------
    On three nodes no pair is faster together from the worst start; on four, 26 are:

    >>> [int((compare_pairs(n, measures=("worst",)).worst_verdict == 1).sum()) for n in (3, 4)]
    [0, 26]
    """
    nodes = check_count("num_nodes", num_nodes, least=2, most=MOST_NODES)
    weights = _check_weights(weights)
    if not isinstance(measures, (tuple, list)) or not measures:
        refuse("measures", "a tuple of names, at least one", measures)
    for measure in measures:
        check_choice("measures", measure, PAIR_MEASURES)
    graphs = sink_graphs(nodes).long().numpy()
    first, second = np.triu_indices(len(graphs), 1)
    each = np.arange(len(graphs))
    alone = _measure(graphs, each, each, (1, 0), measures)
    table = {"first_graph": first, "second_graph": second}
    for measure, (top, bottom) in _measure(graphs, first, second, weights, measures).items():
        tops, bottoms = alone[measure]
        sign = -1 if measure == "fidelity" else 1
        # Against each graph: 1 if the mixture is better, -1 if worse.
        against = [sign * _order(tops[g] * bottom, top * bottoms[g]) for g in (first, second)]
        values = (tops / bottoms).astype(np.float64) * sign
        table[measure] = (top / bottom).astype(np.float64)
        table[f"{measure}_alone"] = sign * np.minimum(values[first], values[second])
        table[f"{measure}_verdict"] = np.trunc(sum(against) / 2).astype(int)
    return pd.DataFrame(table)


def pair_classes(num_nodes: int) -> np.ndarray:
    """Which pairs of `compare_pairs` are the same up to naming the nodes: shape (pairs,).

    Two pairs get the same number, that of the first of them, if one renaming of the
    nodes takes the graphs of one to those of the other. Renamings that break the causal
    order of a graph lead out of the population.

    Examples
    --------
    >>> [len(set(pair_classes(n))) for n in (3, 4)]
    [3, 187]
    """
    nodes = check_count("num_nodes", num_nodes, least=2, most=MOST_NODES)
    graphs = sink_graphs(nodes).long().numpy()
    power = 2**np.arange(nodes * nodes).reshape(nodes, nodes)
    index = {code: at for at, code in enumerate((graphs * power).sum((-1, -2)).tolist())}
    first, second = np.triu_indices(len(graphs), 1)
    number = np.full((len(graphs), len(graphs)), -1)
    number[first, second] = number[second, first] = np.arange(len(first))
    classes = np.arange(len(first))
    for order in permutations(range(nodes - 1)):
        order = [*order, nodes - 1]
        renamed = graphs[:, order][:, :, order]
        at = np.array([index.get(code, -1) for code in (renamed * power).sum((-1, -2)).tolist()])
        allowed = (at[first] >= 0) & (at[second] >= 0)
        renamed_pair = number[at[first], at[second]]
        classes = np.where(allowed, np.minimum(classes, renamed_pair), classes)
    return classes


def _order(left, right):
    """1 where left > right, -1 where left < right, else 0."""
    return (left > right).astype(int) - (left < right).astype(int)


def _measure(graphs, first, second, weights, measures):
    """The measures of mixed pairs: a dict of (numerators, denominators)."""
    found = {}
    walks, sums = _integers.mixtures(graphs, first, second, weights, axis=-2)
    if set(measures) & {"worst", "mean", "first"}:
        times, scale = _integers.hitting_times(walks, sums)
        found = {"worst": (times.max(-1), scale), "first": (times[:, 0], scale),
                 "mean": (times.sum(-1), scale * times.shape[-1])}
    if "mixing" in measures:
        steps = _integers.mixing_times(walks, sums, Fraction(1, 4))
        found["mixing"] = steps, np.ones_like(steps)
    if "fidelity" in measures:
        rows = _integers.mixtures(graphs, first, second, weights, axis=-1)
        found["fidelity"] = _integers.least_fidelities(*rows)
    return {measure: found[measure] for measure in measures}


def _check_weights(weights) -> tuple[int, int]:
    """Two whole numbers, not both zero."""
    if not isinstance(weights, (tuple, list)) or len(weights) != 2:
        refuse("weights", "two whole numbers", weights)
    one, two = (check_count("weights", weight, least=0, most=MOST_WEIGHT) for weight in weights)
    if not 1 <= one + two <= MOST_WEIGHT:
        refuse("weights", f"of sum 1 to {MOST_WEIGHT}", weights)
    return one, two
