"""Pairs of small graphs against rational numbers, brute force and the library's floats."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import sympy
import torch

from manyheads import synergy
from manyheads.synergy import HeadSystem

WEIGHTS = [(1, 1), (1, 3), (5, 2)]


def pair_system(table, graphs, weights):
    """The systems of all pairs of a table, batched."""
    flows = torch.stack([graphs[table.first_graph.to_numpy().copy()],
                         graphs[table.second_graph.to_numpy().copy()]], 1)
    return HeadSystem(flows, [Fraction(weight, sum(weights)) for weight in weights])


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6])
def test_sink_graphs_are_all_there(nodes):
    graphs = synergy.sink_graphs(nodes)
    count = np.prod([2**later - 1 for later in range(1, nodes)], dtype=int)
    assert len(graphs) == len({tuple(graph.flatten().tolist()) for graph in graphs}) == count
    assert (graphs.triu(1) == 0).all() and (graphs.diagonal(dim1=-2, dim2=-1) == 1).all()
    assert (graphs.tril(-1).sum(-2)[:, :-1] >= 1).all()
    assert ((graphs == 0) | (graphs == 1)).all()


@pytest.mark.parametrize(("nodes", "weights"), [
    *((nodes, weights) for nodes in (3, 4) for weights in WEIGHTS), (5, (1, 3))])
def test_values_are_the_library_s(nodes, weights):
    graphs, table = synergy.sink_graphs(nodes), synergy.compare_pairs(nodes, weights)
    system = pair_system(table, graphs, weights)
    walk = system.walk_matrix()
    times = synergy.expected_hitting_times(walk).numpy()
    expected = {"worst": times.max(-1), "mean": times.mean(-1), "first": times[:, 0],
                "mixing": synergy.mixing_time(walk).numpy(),
                "fidelity": synergy.minimax_fidelity(system.diffusion_matrix(), 200).numpy()}
    for measure, values in expected.items():
        np.testing.assert_allclose(table[measure], values, rtol=1e-12)


def test_verdicts_in_rational_numbers():
    graphs, weights = synergy.sink_graphs(4), [Fraction(2, 3), Fraction(1, 3)]

    def times(system):
        inner = system.walk_matrix(exact=True)[:-1, :-1]
        found = list((sympy.eye(3) - inner.T).LUsolve(sympy.ones(3, 1)))
        return {"worst": max(found), "first": found[0], "mean": sum(found) / 4}

    alone = [times(HeadSystem(graph[None])) for graph in graphs]
    table = synergy.compare_pairs(4, (2, 1), measures=("first", "worst", "mean"))
    for row, (one, two) in zip(table.itertuples(), combinations(range(len(graphs)), 2),
                               strict=True):
        assert (row.first_graph, row.second_graph) == (one, two)
        mixed = times(HeadSystem(graphs[[one, two]], weights))
        for measure, value in mixed.items():
            both = [alone[one][measure], alone[two][measure]]
            verdict = 1 if value < min(both) else -1 if value > max(both) else 0
            assert getattr(row, f"{measure}_verdict") == verdict
            assert getattr(row, f"{measure}_alone") == float(min(both))


def least_fidelity(diffusion):
    """In rational numbers, by 25 steps and a linear solve for each source."""
    nodes, signal = diffusion.rows, diffusion[-1, :]
    best = list(signal)
    for _ in range(24):
        signal = signal * diffusion
        best = [max(pair) for pair in zip(best, signal, strict=True)]
    sources = [node for node in range(nodes) if diffusion[node, node] == 1]
    rest = [node for node in range(nodes) if node not in sources]
    within = sympy.eye(len(rest)) - diffusion.extract(rest, rest)
    for source in sources:
        best[source] = within.LUsolve(diffusion.extract(rest, [source]))[-1]
    return min(best[:-1])


def test_fidelities_in_rational_numbers():
    graphs = synergy.sink_graphs(4)
    table = synergy.compare_pairs(4, measures=("fidelity",))
    alone = [least_fidelity(HeadSystem(graph[None]).diffusion_matrix(exact=True))
             for graph in graphs]
    for row in table.itertuples():
        pair = [row.first_graph, row.second_graph]
        mixed = least_fidelity(HeadSystem(graphs[pair]).diffusion_matrix(exact=True))
        both = [alone[graph] for graph in pair]
        assert row.fidelity_verdict == bool(mixed > max(both)) - bool(mixed < min(both))
        assert row.fidelity == pytest.approx(float(mixed), rel=1e-14)


def test_a_tie_is_a_tie():
    """Targets (2)(3)(3) and (3)(2)(3): the same mean over starts as their mixture, 2."""
    graphs = synergy.sink_graphs(4)
    table = synergy.compare_pairs(4, measures=("mean",))
    system = pair_system(table, graphs, (1, 1))
    same = ((system.flows[:, 0, :, :2].sum(-2) == 2).all(-1)
            & (system.flows[:, 0, 2, 0] == 1) & (system.flows[:, 0, 3, 1] == 1)
            & (system.flows[:, 1, 3, 0] == 1) & (system.flows[:, 1, 2, 1] == 1)
            & (system.flows[:, 1, :, :2].sum(-2) == 2).all(-1)).numpy()
    found = table[same]
    assert len(found) == 1
    assert found["mean"].item() == found.mean_alone.item() == 2
    assert found.mean_verdict.item() == 0


@pytest.mark.parametrize("nodes", [3, 4])
def test_weights_swap_with_the_graphs(nodes):
    one, two = synergy.compare_pairs(nodes, (1, 3)), synergy.compare_pairs(nodes, (3, 1))
    assert not one.equals(two) and one.equals(synergy.compare_pairs(nodes, (2, 6)))
    alone = synergy.compare_pairs(nodes, (1, 0))
    assert (alone.filter(like="verdict") == 0).all().all()


@pytest.mark.parametrize("nodes", [3, 4])
def test_classes_share_all_but_the_first_start(nodes):
    table = synergy.compare_pairs(nodes, measures=("worst", "mean", "mixing", "fidelity"))
    classes = synergy.pair_classes(nodes)
    assert (classes[classes] == classes).all()  # each is named after its first pair
    values = table.drop(columns=["first_graph", "second_graph"]).groupby(classes)
    assert (values.max() - values.min()).abs().max().max() < 1e-12


def test_bad_inputs():
    for wrong in (1, 7, 3.5, "4"):
        with pytest.raises(ValueError, match="num_nodes"):
            synergy.sink_graphs(wrong)
    for wrong in (1, 6, True):
        with pytest.raises(ValueError, match="num_nodes"):
            synergy.compare_pairs(wrong)
        with pytest.raises(ValueError, match="num_nodes"):
            synergy.pair_classes(wrong)
    for wrong in (1, (1,), (0, 0), (64, 1), (-1, 2), (0.5, 0.5), (1, 1, 1)):
        with pytest.raises(ValueError, match="weights"):
            synergy.compare_pairs(3, wrong)
    for wrong in ("worst", (), ("slowest",)):
        with pytest.raises(ValueError, match="measures"):
            synergy.compare_pairs(3, measures=wrong)
