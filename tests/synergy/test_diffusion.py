"""Fidelities and cross-head paths: Example 2, rational powers, identities."""

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.synergy import HeadSystem, cross_head_paths, minimax_fidelity, node_fidelities
from tests.synergy.examples import EXAMPLE_2, full, line, random_attention, systems

R = sympy.Rational


def exact_fidelities(diffusion, horizon):
    power, best = diffusion, list(diffusion[-1, :])
    for _ in range(horizon - 1):
        power = power * diffusion
        best = [max(pair) for pair in zip(best, power[-1, :], strict=True)]
    return best


class TestExample2:
    SYSTEM = HeadSystem.from_edges(4, EXAMPLE_2)

    @pytest.mark.parametrize("head, exact", [(0, R(3, 8)), (1, None), (None, R(5, 12))])
    def test_minimax_fidelity(self, head, exact):
        system = self.SYSTEM if head is None else self.SYSTEM.head(head)
        rational = min(exact_fidelities(system.diffusion_matrix(exact=True), 20)[:-1])
        if exact is None:
            # A source: the limit 1/4 is approached from below.
            assert rational == R(1, 4) - R(41, 4) / 3**20
            assert f"{float(rational):.10f}" == "0.2499999971"
        else:
            assert rational == exact
        assert minimax_fidelity(system.diffusion_matrix(), 20).item() == pytest.approx(
            float(rational), rel=1e-14)

    def test_the_gain_needs_cross_head_paths(self):
        """The first step at which the sink hears node v, and through which heads."""
        paths = cross_head_paths(self.SYSTEM, 2)
        v = 1
        own = paths[0, 0, v] + paths[1, 1, v]
        assert 0 < own < paths[..., v].sum()


class TestNodeFidelities:
    @given(systems(), st.integers(1, 6))
    def test_rational_powers(self, system, horizon):
        exact = exact_fidelities(system.diffusion_matrix(exact=True), horizon)
        numeric = node_fidelities(system.diffusion_matrix(), horizon)
        assert numeric.tolist() == pytest.approx([float(x) for x in exact], rel=1e-13)

    def test_full_causal_graph_is_exactly_one_over_n(self):
        diffusion = HeadSystem.from_edges(7, [full(7)]).diffusion_matrix()
        assert minimax_fidelity(diffusion, 50, include_sink=True).item() == pytest.approx(1 / 7)

    def test_horizon_short_of_the_distance(self):
        diffusion = HeadSystem.from_edges(5, [line(5)]).diffusion_matrix()
        assert minimax_fidelity(diffusion, 3).item() == 0 < minimax_fidelity(diffusion, 4).item()

    def test_the_sink_itself(self):
        diffusion = torch.tensor([[1.0, 0.0], [0.9, 0.1]])
        assert minimax_fidelity(diffusion, 9).item() == pytest.approx(1 - 0.1**9)
        assert minimax_fidelity(diffusion, 9, include_sink=True).item() == pytest.approx(0.1)
        assert minimax_fidelity(torch.ones(1, 1), 2, include_sink=True).item() == 1

    def test_batch_equals_loop_and_float32_is_close(self):
        diffusion = HeadSystem.from_attention(random_attention(2, 3, 2, 9, 9)).diffusion_matrix()
        together = node_fidelities(diffusion, 12)
        smallest = minimax_fidelity(diffusion, 12)
        for a in range(2):
            for b in range(3):
                torch.testing.assert_close(together[a, b], node_fidelities(diffusion[a, b], 12))
                assert smallest[a, b] == together[a, b, :-1].min()
        single = node_fidelities(diffusion.float(), 12)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single, together.float())

    def test_unbounded_amplification(self):
        """Progress alternating a, b along a chain: ((a + b)^2 / 4ab)^{(n-2)/2} (S4)."""
        n, a, b = 8, 0.9, 0.1
        heads = []
        for first, second in ((a, b), (b, a)):
            head = torch.zeros(n, n, dtype=torch.float64)
            head[0, 0] = 1
            for i in range(1, n):
                gain = 0.5 if i == n - 1 else first if i % 2 else second
                head[i, i - 1], head[i, i] = gain, 1 - gain
            heads.append(head)
        powers = [torch.linalg.matrix_power(head, n - 1)[-1, 0] for head in heads]
        system = HeadSystem(torch.stack(heads))
        mixed = torch.linalg.matrix_power(system.diffusion_matrix(), n - 1)[-1, 0]
        assert (mixed / max(powers)).item() == pytest.approx(
            ((a + b) ** 2 / (4 * a * b)) ** ((n - 2) / 2))


class TestCrossHeadPaths:
    @given(systems(max_nodes=4), st.integers(1, 4))
    def test_sum_to_the_power_of_the_mixture(self, system, steps):
        paths = cross_head_paths(system, steps)
        assert paths.shape == (system.heads,) * steps + (system.num_nodes,)
        power = torch.linalg.matrix_power(system.diffusion_matrix(), steps)[-1]
        torch.testing.assert_close(paths.flatten(0, -2).sum(0), power)

    def test_axes_are_in_time_order(self):
        system = HeadSystem.from_attention(random_attention(2, 4, 4), [0.3, 0.7])
        first, second = (system.head(a).diffusion_matrix() for a in (0, 1))
        paths = cross_head_paths(system, 3)
        # Head 0 acts first, then head 1 twice.
        expected = 0.3 * 0.7**2 * (second @ second @ first)[-1]
        torch.testing.assert_close(paths[0, 1, 1], expected)

    def test_batches_of_heads_and_of_weights(self):
        system = HeadSystem.from_attention(random_attention(5, 2, 4, 4))
        paths = cross_head_paths(system, 3)
        assert paths.shape == (5, 2, 2, 2, 4)
        torch.testing.assert_close(
            paths[3], cross_head_paths(HeadSystem.from_attention(system.flows[3]), 3))
        weights = torch.tensor([[0.5, 0.5], [0.1, 0.9], [1, 0]], dtype=torch.float64)
        system = HeadSystem.from_attention(system.flows[0])
        paths = cross_head_paths(system.mixed_with(weights), 2)
        assert paths.shape == (3, 2, 2, 4)
        torch.testing.assert_close(paths[1], cross_head_paths(system.mixed_with([0.1, 0.9]), 2))
