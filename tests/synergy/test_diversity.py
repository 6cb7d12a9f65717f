"""Head diversity: a distance, and its extremes."""

import pytest
import torch

from manyheads import synergy
from manyheads.synergy import HeadSystem


@pytest.mark.parametrize("matrix", ["walk", "diffusion"])
def test_extremes(matrix):
    same = synergy.random_graphs(6, 1, seed=0).flows[0]
    assert (synergy.head_diversity(HeadSystem(same), matrix) == 0).all()
    twice = HeadSystem(same.repeat(3, 1, 1))
    assert (synergy.head_diversity(twice, matrix) == 0).all()
    # Without self-loops: node 0 sends to 1 or to 2, which read it or nothing.
    flows = torch.zeros(2, 3, 3, dtype=torch.float64)
    flows[0, 1, 0] = flows[1, 2, 0] = 1
    assert synergy.head_diversity(HeadSystem(flows), matrix)[0 if matrix == "walk" else 1] == 1


@pytest.mark.parametrize("matrix", ["walk", "diffusion"])
def test_three_heads_and_their_weights(matrix):
    flows = synergy.random_graphs(6, 4, heads=3, weighted=True, seed=2).flows
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    expected = sum(
        weights[a] * weights[b] * synergy.head_diversity(HeadSystem(flows[:, [a, b]]), matrix)
        for a, b in ((0, 1), (0, 2), (1, 2))) / (0.15 + 0.1 + 0.06)
    found = synergy.head_diversity(HeadSystem(flows, weights), matrix)
    torch.testing.assert_close(found, expected)
    assert (found >= 0).all() and (found <= 1).all()
    order = [2, 0, 1]
    torch.testing.assert_close(
        synergy.head_diversity(HeadSystem(flows[:, order], weights[order]), matrix), found)
    # All weight on one head leaves no pair.
    single = HeadSystem(flows, torch.eye(3, dtype=torch.float64)[0])
    assert (synergy.head_diversity(single, matrix) == 0).all()


def test_bounds_the_gain():
    """What the chapter proves: alone / mixed <= 1 + part * diversity * slowest time."""
    system = synergy.random_graphs(6, 300, heads=2, density=0.3, seed=5)
    most = synergy.head_diversity(system).amax(-1)
    alone = synergy.expected_hitting_times(system.head(0).walk_matrix())
    for part in (0.1, 0.5, 0.9):
        mixed = synergy.expected_hitting_times(
            system.mixed_with([1 - part, part]).walk_matrix())
        ratio = (alone / mixed)[:, :-1].amax(-1)
        assert (ratio <= (1 + part * most * alone.amax(-1)) * (1 + 1e-12)).all()


def test_bad_inputs():
    with pytest.raises(ValueError, match="system"):
        synergy.head_diversity(torch.eye(3))
    with pytest.raises(ValueError, match="matrix"):
        synergy.head_diversity(synergy.random_graphs(3, 1, seed=0), "attention")
