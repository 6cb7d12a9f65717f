"""Hitting and mixing times: closed forms, rational arithmetic, slow chains, infinities."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import nbinom

from manyheads.synergy import (
    HeadSystem, expected_hitting_times, hitting_time_cdf, mixing_time,
)
from tests.synergy.examples import (
    exact_hitting_times, exact_mixing_time, fractions, full, line, random_attention, systems,
)

F64 = torch.float64


def lazy_line(num_nodes, progress):
    """The line on which every node moves on with probability `progress`."""
    walk = torch.diag(torch.full((num_nodes,), 1 - progress, dtype=F64))
    walk += torch.diag(torch.full((num_nodes - 1,), progress, dtype=F64), -1)
    walk[-1, -1] = 1
    return walk


def slow_walk(num_nodes, seed=0):
    """Random progress of about 1e-12 a step."""
    walk = 1e-12 * torch.rand(num_nodes, num_nodes, dtype=F64,
                              generator=torch.Generator().manual_seed(seed)).tril(-1)
    return walk + torch.diag(1 - walk.sum(-2))


def straightforward_hitting_times(walk):
    """Node by node, in extended precision."""
    walk = walk.numpy().astype(np.longdouble)
    times = np.zeros(len(walk), dtype=np.longdouble)
    for j in reversed(range(len(walk) - 1)):
        below = walk[j + 1:, j]
        times[j] = (1 + below @ times[j + 1:]) / below.sum()
    return torch.tensor(times.astype(float))


def relative(actual, expected):
    return ((actual - expected).abs() / expected.abs().clamp(min=1)).max().item()


class TestClosedForms:
    def test_line(self):
        n = 12
        walk = HeadSystem.from_edges(n, [line(n)]).walk_matrix()
        expected = 2.0 * torch.arange(n - 1, -1, -1, dtype=F64)
        assert relative(expected_hitting_times(walk), expected) < 1e-12

    def test_full_graph_mean_and_law(self):
        n, steps = 14, 30
        walk = HeadSystem.from_edges(n, [full(n)]).walk_matrix()
        harmonic = [sum(1 / r for r in range(1, k + 1)) for k in range(n)]
        times = expected_hitting_times(walk)
        expected = torch.tensor([1 + harmonic[n - 1 - j] for j in range(n - 1)] + [0.0], dtype=F64)
        assert relative(times, expected) < 1e-12
        assert times.mean().item() == pytest.approx(harmonic[n - 1], rel=1e-12)
        law = hitting_time_cdf(walk, steps)
        for j in range(n - 1):
            k = n - 1 - j
            tail = [sum((-1) ** (r + 1) * math.comb(k, r) * Fraction(1, (r + 1) ** t)
                        for r in range(1, k + 1)) for t in range(steps + 1)]
            expected = torch.tensor([float(p) for p in tail], dtype=F64)
            assert relative(1 - law[:, j], expected) < 1e-12

    def test_uniform_attention_of_100_tokens(self):
        attention = torch.ones(1, 100, 100, dtype=F64).tril()
        attention = attention / attention.sum(-1, keepdim=True)
        times = expected_hitting_times(HeadSystem.from_attention(attention).walk_matrix())
        assert times.mean().item() == pytest.approx(5.623979894, abs=1e-9)

    @pytest.mark.parametrize("progress", [1e-12, 1e-9, 1e-4, 0.3, 0.5])
    @pytest.mark.parametrize("epsilon", [0.9, 0.25, 0.01, 1e-8])
    def test_mixing_of_two_nodes_is_geometric(self, progress, epsilon):
        steps = mixing_time(lazy_line(2, progress), epsilon=epsilon).item()
        exact = math.ceil(math.log(epsilon) / math.log1p(-progress))
        assert steps == pytest.approx(exact, rel=1e-9) and steps == int(steps)

    @pytest.mark.parametrize("progress", [1e-7, 1e-3, 0.5])
    @pytest.mark.parametrize("n", [3, 9])
    def test_mixing_of_the_line_is_negative_binomial(self, n, progress):
        expected = nbinom.ppf(0.75, n - 1, progress) + n - 1
        assert mixing_time(lazy_line(n, progress)).item() == pytest.approx(expected, rel=1e-9)

    def test_true_synergy(self):
        """The smallest mixture that is faster than each of its heads (S3)."""
        system = HeadSystem.from_edges(4, [[(0, 2), (1, 3), (2, 3)], [(0, 3), (1, 2), (2, 3)]])
        for each, worst, mixed in ((system.head(0), 4, 5), (system.head(1), 4, 5), (system, 3, 4)):
            walk = each.walk_matrix()
            assert expected_hitting_times(walk).max().item() == worst
            assert mixing_time(walk).item() == mixed

    def test_short_horizon_counterexample(self):
        assert mixing_time(lazy_line(2, 0.5), epsilon=0.01).item() == 7


class TestExactness:
    @given(systems(max_nodes=6))
    def test_hitting_times_are_rational_ones(self, system):
        for normalize in ("before", "after"):
            walk = system.walk_matrix(normalize=normalize, exact=True)
            exact = exact_hitting_times(fractions(walk))
            times = expected_hitting_times(system.walk_matrix(normalize=normalize))
            assert torch.isinf(times).tolist() == [math.isinf(time) for time in exact]
            for time, rational in zip(times.tolist(), exact, strict=True):
                assert time == pytest.approx(float(rational), rel=1e-12)

    def test_slow_chain_of_rationals(self):
        walk = slow_walk(12)
        below = [[Fraction(x) for x in row] for row in walk.tril(-1).tolist()]
        exact = exact_hitting_times(below)
        assert max(exact) > 10**12
        expected = torch.tensor([float(time) for time in exact], dtype=F64)
        assert relative(expected_hitting_times(walk), expected) < 1e-12

    @pytest.mark.parametrize("n", [128, 129, 200, 331])
    def test_bands_join(self, n):
        for walk in (HeadSystem.from_attention(random_attention(3, n, n)).walk_matrix(),
                     slow_walk(n)):
            expected = straightforward_hitting_times(walk)
            assert relative(expected_hitting_times(walk), expected) < 1e-12

    @settings(deadline=None)
    @given(systems(max_nodes=4, max_heads=2), st.sampled_from([0.5, 0.25, 0.125, 2.0**-10]),
           st.booleans())
    def test_mixing_times_are_rational_ones(self, system, epsilon, average):
        exact = exact_mixing_time(fractions(system.walk_matrix(exact=True)), epsilon, average)
        assert mixing_time(system.walk_matrix(), epsilon=epsilon, average=average).item() == exact

    def test_a_tie_is_within_epsilon(self):
        assert mixing_time(lazy_line(2, 0.5), epsilon=0.25).item() == 2
        assert mixing_time(lazy_line(2, 0.5), epsilon=0.25 - 1e-9).item() == 3
        assert mixing_time(lazy_line(2, 0.5).float(), epsilon=0.25).item() == 2

    def test_mixing_of_a_slow_chain_in_rationals_of_its_scale(self):
        """Slowing every step down a thousandfold multiplies the mixing time by that."""
        below = torch.rand(6, 6, dtype=F64, generator=torch.Generator().manual_seed(3)).tril(-1)
        times = []
        for scale in (1e-9, 1e-12):
            walk = below * scale / 6
            times.append(mixing_time(walk + torch.diag(1 - walk.sum(-2))).item())
        assert times[1] / times[0] == pytest.approx(1000, rel=1e-8)

    def test_average_start(self):
        walk = HeadSystem.from_edges(9, [line(9)]).walk_matrix()
        law = hitting_time_cdf(walk, 40)
        far = (1 - law).mean(-1)
        expected = int((far > 0.25).sum())
        assert mixing_time(walk, average=True).item() == expected
        assert mixing_time(walk).item() == int(((1 - law).amax(-1) > 0.25).sum())

    def test_mixed_from_the_start(self):
        assert mixing_time(lazy_line(2, 0.5), epsilon=0.5, average=True).item() == 0


class TestUnreachable:
    # Node 0 goes to the sink 3 or to node 1, which stays; node 2 goes to the sink.
    WALK = torch.tensor([[0.5, 0, 0, 0], [0.25, 1, 0, 0], [0, 0, 0.5, 0], [0.25, 0, 0.5, 1]])

    def test_infinite_exactly_where_a_stuck_node_is_met(self):
        assert expected_hitting_times(self.WALK).tolist() == [math.inf, math.inf, 2, 0]

    def test_a_batch_keeps_its_finite_members(self):
        both = torch.stack([self.WALK, lazy_line(4, 0.5).float()])
        assert expected_hitting_times(both).tolist() == [[math.inf, math.inf, 2, 0], [6, 4, 2, 0]]

    def test_across_bands(self):
        n = 300
        walk = lazy_line(n, 0.5)
        walk[n - 1, n - 2], walk[n - 2, n - 2] = 0, 1
        walk[n - 1, 5], walk[6, 5] = 0.5, 0
        times = expected_hitting_times(walk)
        assert torch.isfinite(times).nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 5, n - 1]
        assert times[0] == 12

    def test_mixing(self):
        assert mixing_time(self.WALK).item() == math.inf
        # Mean survival is 3/8 (1 + 2^-t): nodes 0 and 1 are lost with probability 1/2, 1.
        assert mixing_time(self.WALK, average=True, epsilon=0.4).item() == 4
        assert mixing_time(self.WALK, average=True, epsilon=0.375).item() == math.inf
        assert mixing_time(self.WALK, average=True).item() == math.inf

    def test_law_has_a_defect(self):
        assert hitting_time_cdf(self.WALK, 60)[-1].tolist() == [0.5, 0, 1, 1]

    def test_beyond_the_largest_number(self):
        walk = lazy_line(4, 0.5).float()
        walk[1, 0], walk[0, 0] = 1e-45, 1
        assert expected_hitting_times(walk).tolist() == [math.inf, 4, 2, 0]
        assert expected_hitting_times(walk.double())[0].item() > 1e44
        walk = lazy_line(2, 1e-310)
        assert expected_hitting_times(walk)[0].item() == mixing_time(walk).item() == math.inf

    def test_one_node(self):
        walk = torch.ones(1, 1)
        assert expected_hitting_times(walk).tolist() == [0]
        assert mixing_time(walk).item() == 0
        assert hitting_time_cdf(walk, 1).tolist() == [[1], [1]]


class TestProperties:
    @given(systems())
    def test_law_is_a_law_with_the_right_mean(self, system):
        walk = system.walk_matrix()
        times = expected_hitting_times(walk)
        assume(torch.isfinite(times).all() and times.max() < 40)
        law = hitting_time_cdf(walk, 1500)
        assert (law.diff(dim=0) >= 0).all() and law.min() >= 0 and law.max() <= 1
        assert (law[-1] - 1).abs().max() < 1e-9
        assert relative((1 - law).sum(0), times) < 1e-9

    @pytest.mark.parametrize("n", [7, 150])
    def test_batch_equals_loop(self, n):
        walks = HeadSystem.from_attention(random_attention(2, 3, 2, n, n)).walk_matrix()
        for measure in (expected_hitting_times, mixing_time, lambda w: hitting_time_cdf(w, 4),
                        lambda w: mixing_time(w, average=True)):
            together = measure(walks)
            for a in range(2):
                for b in range(3):
                    torch.testing.assert_close(together[a, b], measure(walks[a, b]),
                                               rtol=1e-13, atol=0)

    def test_many_chunks(self, monkeypatch):
        walks = HeadSystem.from_attention(random_attention(7, 1, 5, 5)).walk_matrix()
        together = mixing_time(walks), hitting_time_cdf(walks, 3)
        monkeypatch.setattr("manyheads.synergy.walks.CHUNK", 50)
        assert torch.equal(mixing_time(walks), together[0])
        assert torch.equal(hitting_time_cdf(walks, 3), together[1])

    @pytest.mark.parametrize("n", [10, 200])
    def test_float32_is_close(self, n):
        walk = HeadSystem.from_attention(random_attention(2, n, n)).walk_matrix()
        single = walk.float()
        times = expected_hitting_times(single)
        assert times.dtype == torch.float32
        assert relative(times.double(), expected_hitting_times(walk)) < 1e-5
        assert hitting_time_cdf(single, 3).dtype == torch.float32
        assert relative(hitting_time_cdf(single, 50).double(), hitting_time_cdf(walk, 50)) < 1e-5
        assert mixing_time(single).dtype == F64

    def test_input_is_left_alone(self):
        walk = HeadSystem.from_attention(random_attention(2, 150, 150)).walk_matrix()
        copy = walk.clone()
        expected_hitting_times(walk), mixing_time(walk), hitting_time_cdf(walk, 2)
        assert torch.equal(walk, copy)

    def test_strided_input(self):
        walk = HeadSystem.from_attention(random_attention(2, 150, 150)).walk_matrix()
        assert relative(expected_hitting_times(walk.mT.contiguous().mT),
                        expected_hitting_times(walk)) < 1e-13

    @pytest.mark.parametrize("n", [4, 150])
    def test_gradient(self, n):
        """The directional derivative through attention, weights, mixture and solve."""
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(2, n, n, generator=generator, dtype=F64)
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        logits = torch.randn(2, generator=generator, dtype=F64)
        direction = torch.randn(2, n, n, generator=generator, dtype=F64)
        turn = torch.randn(2, generator=generator, dtype=F64)

        def mean_time(step):
            attention = (scores + step * direction).masked_fill(future, -torch.inf).softmax(-1)
            system = HeadSystem.from_attention(attention, (logits + step * turn).softmax(-1))
            return expected_hitting_times(system.walk_matrix()).mean()

        at = torch.zeros((), dtype=F64, requires_grad=True)
        slope, = torch.autograd.grad(mean_time(at), at)
        assert slope.item() == pytest.approx(
            ((mean_time(1e-5) - mean_time(-1e-5)) / 2e-5).item(), rel=1e-6)
