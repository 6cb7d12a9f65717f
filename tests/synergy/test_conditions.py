"""Free choice against all policies, slopes against differences."""

from itertools import product

import pytest
import torch

from manyheads import synergy
from manyheads.synergy import HeadSystem

SYSTEMS = [synergy.random_graphs(5, 8, heads=2, density=0.4, weighted=weighted, seed=3)
           for weighted in (False, True)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_free_choice_is_the_best_policy(system):
    walks = torch.stack([system.head(head).walk_matrix() for head in range(2)], 1)
    best = torch.full((8, 5), torch.inf, dtype=torch.float64)
    for policy in product(range(2), repeat=5):
        chosen = walks[:, list(policy), :, list(range(5))].permute(1, 2, 0)
        best = torch.minimum(best, synergy.expected_hitting_times(chosen.contiguous()))
    torch.testing.assert_close(synergy.free_choice_hitting_times(system), best)


def test_free_choice_fidelity_is_the_best_policy():
    system = synergy.random_graphs(4, 3, heads=2, density=0.5, seed=1)
    rows = torch.stack([system.head(head).diffusion_matrix() for head in range(2)], 1)
    steps, best = 3, torch.zeros(3, 4, dtype=torch.float64)
    mixed = [rows[:, list(policy), list(range(4)), :] for policy in product(range(2), repeat=4)]
    for choice in product(mixed, repeat=steps):
        signal = choice[0][:, -1:]
        best = torch.maximum(best, signal[:, 0])
        for matrix in choice[1:]:
            signal = signal @ matrix
            best = torch.maximum(best, signal[:, 0])
    torch.testing.assert_close(synergy.free_choice_fidelities(system, steps), best)


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_mixture_passes_free_choice(system):
    for part in (0.0, 0.1, 0.5, 0.8, 1.0):
        mixed = system.mixed_with([part, 1 - part])
        times = synergy.expected_hitting_times(mixed.walk_matrix())
        fidelities = synergy.node_fidelities(mixed.diffusion_matrix(), 40)
        assert (synergy.free_choice_hitting_times(system) <= times * (1 + 1e-12)).all()
        assert (synergy.free_choice_fidelities(system, 40) >= fidelities * (1 - 1e-12)).all()


def test_free_choice_where_a_head_is_stuck():
    """A head that strands a node is not chosen there; if all do, the time is infinite."""
    relay = HeadSystem.from_edges(3, [[(0, 1)], [(1, 2)]])
    assert synergy.free_choice_hitting_times(relay).tolist() == [4, 2, 0]
    stuck = HeadSystem.from_edges(3, [[(0, 1)], [(0, 2)]])
    assert synergy.free_choice_hitting_times(stuck).tolist() == [2, torch.inf, 0]


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.3, 0.7)])
@pytest.mark.parametrize("system", SYSTEMS)
def test_slopes_are_differences(system, weights):
    weights = torch.tensor(weights, dtype=torch.float64)
    at, small = system.mixed_with(weights), 1e-7
    times, fidelities = synergy.hitting_time_slopes(at), synergy.fidelity_slopes(at, 3)
    for head in range(2):
        towards = torch.eye(2, dtype=torch.float64)[head]
        near = system.mixed_with(weights + small * (towards - weights))
        change = (synergy.expected_hitting_times(near.walk_matrix())
                  - synergy.expected_hitting_times(at.walk_matrix())) / small
        torch.testing.assert_close(times[:, head], change, rtol=1e-4, atol=1e-4)
        change = (synergy.node_fidelities(near.diffusion_matrix(), 3)
                  - synergy.node_fidelities(at.diffusion_matrix(), 3)) / small
        torch.testing.assert_close(fidelities[:, head], change, rtol=1e-4, atol=1e-4)


def test_slope_of_a_tie_is_the_better_one():
    """The middle of a line has 1/2 at steps 1 and 2; the first falls, the second stays."""
    system = HeadSystem.from_edges(3, [[(0, 1), (1, 2)], [(0, 2), (1, 2)]], weights=[1, 0])
    assert synergy.fidelity_slopes(system, 1)[1, 1].item() == pytest.approx(-1 / 6)
    assert synergy.fidelity_slopes(system, 2)[1, 1].item() == pytest.approx(0, abs=1e-15)


def test_batch_equals_loop():
    system = SYSTEMS[1]
    for function in (synergy.free_choice_hitting_times, synergy.hitting_time_slopes,
                     lambda part: synergy.fidelity_slopes(part, 7),
                     lambda part: synergy.free_choice_fidelities(part, 7)):
        loop = torch.stack([function(HeadSystem(flows)) for flows in system.flows])
        torch.testing.assert_close(function(system), loop)


def test_weights_batch_and_float32():
    flows = SYSTEMS[1].flows[0].float()
    system = HeadSystem(flows, torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
    assert synergy.hitting_time_slopes(system).shape == (3, 2, 5)
    assert synergy.fidelity_slopes(system, 9).shape == (3, 2, 5)
    assert synergy.free_choice_fidelities(system, 9).dtype == torch.float32
    assert synergy.free_choice_hitting_times(system).shape == (3, 5)


def test_bad_inputs():
    for function in (synergy.free_choice_hitting_times, synergy.hitting_time_slopes):
        with pytest.raises(ValueError, match="system"):
            function("heads")
    for function in (synergy.free_choice_fidelities, synergy.fidelity_slopes):
        with pytest.raises(ValueError, match="system"):
            function(torch.eye(3), 2)
        with pytest.raises(ValueError, match="horizon"):
            function(SYSTEMS[0], 0)
    with pytest.raises(ValueError, match="reaches the sink"):
        synergy.hitting_time_slopes(HeadSystem.from_edges(3, [[(0, 1)]]))
