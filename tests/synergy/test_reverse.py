"""The reversed walk against closed forms, and the inequality it is for."""

import pytest
import torch

from manyheads import synergy
from manyheads.synergy import HeadSystem


def test_line_and_full_graph():
    for nodes in (2, 3, 10, 50):
        edges = [(node, node + 1) for node in range(nodes - 1)]
        line = HeadSystem.from_edges(nodes, [edges]).diffusion_matrix()
        full = synergy.full_graph(nodes).diffusion_matrix()
        assert synergy.reverse_hitting_time(line).item() == pytest.approx(2 * (nodes - 1))
        expected = 1 + sum(1 / k for k in range(1, nodes))  # both are their own reversal
        assert synergy.reverse_hitting_time(full).item() == pytest.approx(expected)
        torch.testing.assert_close(synergy.reversed_walk(full),
                                   synergy.full_graph(nodes).walk_matrix())


def test_agrees_with_the_walk_where_there_is_one_source():
    rows = synergy.random_graphs(8, 200, density=0.5, heads=2, weighted=True,
                                 seed=0).diffusion_matrix()
    one = (rows.tril(-1).sum(-1) == 0).sum(-1) == 1
    assert 20 < one.sum() < 200
    times = synergy.expected_hitting_times(synergy.reversed_walk(rows))[:, 0]
    torch.testing.assert_close(synergy.reverse_hitting_time(rows)[one], times[one])
    assert torch.isinf(times[~one]).any()


def test_bounds_the_fidelity():
    for density in (0.0, 0.3, 0.9):
        rows = synergy.random_graphs(7, 200, density=density, weighted=True,
                                     seed=1).diffusion_matrix()
        sources = (rows.tril(-1).sum(-1) == 0).sum(-1)
        least = (7 - sources) * synergy.minimax_fidelity(rows, 300)
        assert (least <= synergy.reverse_hitting_time(rows) * (1 + 1e-12)).all()


def test_sink_that_is_a_source_takes_no_step():
    empty = HeadSystem.from_edges(2, [[]]).diffusion_matrix()
    assert synergy.reverse_hitting_time(empty).item() == 0


def test_bad_inputs():
    for function in (synergy.reversed_walk, synergy.reverse_hitting_time):
        with pytest.raises(ValueError, match="diffusion"):
            function(torch.ones(2, 2))
        with pytest.raises(ValueError, match="stochastic"):
            function(torch.ones(2, 2).tril())
        with pytest.raises(ValueError, match="diffusion"):
            function([[1.0]])
