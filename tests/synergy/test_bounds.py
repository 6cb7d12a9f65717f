"""Bounds on the mixing time: never violated, met where they should be, and exact twins."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, nbinom, poisson

from manyheads.synergy import HeadSystem, expected_hitting_times, mixing_time
from manyheads.synergy.bounds import (
    LOWER_BOUNDS, SYMBOLS, UPPER_BOUNDS, mixing_time_bound, published_threshold, walk_profile,
)
from manyheads.synergy.graphs import full_graph, line_graph, random_graphs
from tests.synergy.examples import random_attention, systems

F64 = torch.float64
PROVED = tuple(name for name in UPPER_BOUNDS if name != "published")


def assert_pinned(walk, epsilon):
    """No bound is violated; the published one where it is a theorem."""
    exact = mixing_time(walk, epsilon=epsilon)
    for bound in LOWER_BOUNDS:
        assert (mixing_time_bound(walk, bound, epsilon=epsilon) <= exact).all(), bound
    for bound in PROVED:
        assert (mixing_time_bound(walk, bound, epsilon=epsilon) >= exact).all(), bound
    longest = walk_profile(walk).longest
    theorem = torch.tensor([epsilon >= published_threshold(max(1, each))
                            for each in longest.reshape(-1).tolist()]).reshape(longest.shape)
    published = mixing_time_bound(walk, "published", epsilon=epsilon)
    assert (published >= exact)[theorem].all()


class TestNeverViolated:
    @settings(deadline=None)
    @given(systems(max_nodes=6), st.sampled_from([0.9, 0.5, 0.25, 0.1, 1e-3, 1e-9]))
    def test_small_systems_with_or_without_a_way_to_the_sink(self, system, epsilon):
        for normalize in ("before", "after"):
            assert_pinned(system.walk_matrix(normalize=normalize), epsilon)

    @pytest.mark.parametrize("epsilon", [0.7, 0.25, 0.01, 1e-6])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_random_graphs(self, weighted, epsilon):
        for n in (2, 5, 9, 30):
            for density in (0.0, 0.2, 0.8):
                system = random_graphs(n, 60, heads=2, density=density, weighted=weighted, seed=n)
                assert_pinned(system.walk_matrix(), epsilon)

    def test_attention_and_float32(self):
        for dtype in (F64, torch.float32):
            system = HeadSystem.from_attention(random_attention(20, 2, 12, 12, dtype=dtype))
            assert_pinned(system.walk_matrix(), 0.25)

    def test_slow_walks(self):
        for progress in (1e-3, 1e-9, 1e-12):
            for n in (2, 6):
                assert_pinned(line_graph(n, progress=progress).walk_matrix(), 0.25)


class TestMet:
    @pytest.mark.parametrize("progress", [1e-9, 0.01, 0.3, 0.5, 0.875, 1.0])
    @pytest.mark.parametrize("epsilon", [0.9, 0.25, 2**-10])
    def test_binomial_bounds_are_the_mixing_time_of_a_lazy_line(self, progress, epsilon):
        for n in (2, 3, 12, 40):
            walk = line_graph(n, progress=progress).walk_matrix()
            exact = mixing_time(walk, epsilon=epsilon).item()
            for bound in ("binomial", "binomial_lower"):
                assert mixing_time_bound(walk, bound, epsilon=epsilon).item() == pytest.approx(
                    exact, rel=1e-8 if progress < 1e-3 else 0)

    def test_against_scipy(self):
        for n in (3, 10):
            for progress in (0.1, 0.37):
                for epsilon in (0.3, 1e-3):
                    expected = nbinom.ppf(1 - epsilon, n - 1, progress) + n - 1
                    walk = line_graph(n, progress=progress).walk_matrix()
                    assert mixing_time_bound(walk, epsilon=epsilon).item() == expected

    def test_one_move_is_met_by_the_slowest_node(self):
        walk = line_graph(2, progress=0.125).walk_matrix()
        for epsilon in (0.25, 0.01):
            assert mixing_time_bound(walk, "slowest_lower", epsilon=epsilon) == mixing_time(
                walk, epsilon=epsilon)

    def test_chernoff_has_leading_constant_one(self):
        """Over L/p the bound tends to 1 with L; the published one is 2."""
        walk = line_graph(2000, progress=0.5).walk_matrix()
        assert mixing_time_bound(walk, "chernoff").item() / (1999 / 0.5) < 1.06
        assert mixing_time_bound(walk, "hoeffding").item() / (1999 / 0.5) < 1.06
        assert mixing_time_bound(walk, "published").item() == 2 * 1999 / 0.5

    def test_hoeffding_pays_for_slow_walks(self):
        walk = line_graph(3, progress=1e-3).walk_matrix()
        ratio = mixing_time_bound(walk, "hoeffding") / mixing_time_bound(walk, "chernoff")
        assert ratio > 100


class TestPublished:
    def test_the_counterexample(self):
        walk = line_graph(2).walk_matrix()
        assert mixing_time_bound(walk, "published", epsilon=0.01) == 4
        assert mixing_time(walk, epsilon=0.01) == 7
        # Nodes counted in place of edges, and a small progress.
        slow = line_graph(2, progress=0.1).walk_matrix()
        assert 2 * 2 / 0.1 < mixing_time(slow, epsilon=0.01) == 44

    def test_threshold(self):
        for longest in (1, 2, 3, 10, 100, 2000):
            threshold = published_threshold(longest)
            assert threshold == pytest.approx(poisson.cdf(longest - 1, 2 * longest), rel=1e-9)
            assert threshold <= (2 / math.e)**longest
            if longest < 150:
                exact = published_threshold.expression.subs(SYMBOLS.L, longest).evalf()
                assert threshold == pytest.approx(float(exact), rel=1e-12)
        assert published_threshold(1) == pytest.approx(math.exp(-2), rel=1e-15)

    def test_tails_grow_towards_the_threshold(self):
        """Hoeffding 1956: P(Bin(t, 2L/t) < L) grows with t, so the limit is the worst p."""
        for longest in (1, 2, 3, 7, 30):
            steps = np.arange(2 * longest, 5000)
            tails = binom.cdf(longest - 1, steps, 2 * longest / steps)
            assert (np.diff(tails) >= -1e-15).all() and tails[-1] <= published_threshold(longest)

    @pytest.mark.parametrize("longest", [1, 2, 5, 12])
    def test_it_fails_just_below_the_threshold(self, longest):
        epsilon = published_threshold(longest) * (1 - 1e-3)
        walk = line_graph(longest + 1, progress=1e-5).walk_matrix()
        assert mixing_time_bound(walk, "published", epsilon=epsilon) < mixing_time(
            walk, epsilon=epsilon)


class TestProfile:
    def test_by_hand(self):
        system = HeadSystem.from_edges(5, [[(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]])
        facts = walk_profile(system.walk_matrix())
        assert (facts.longest, facts.shortest) == (4, 3)
        assert (facts.slowest.item(), facts.fastest.item()) == pytest.approx((1 / 2, 2 / 3))
        assert facts.hitting == expected_hitting_times(system.walk_matrix()).max()
        facts = walk_profile(full_graph(7).walk_matrix())
        assert (facts.longest, facts.shortest) == (6, 1)

    def test_every_unweighted_graph_has_least_progress_one_half(self):
        walks = random_graphs(7, 300, seed=0).walk_matrix()
        assert (walk_profile(walks).slowest - 0.5).abs().max() < 1e-15

    def test_batch_equals_loop(self):
        walks = random_graphs(6, 6, weighted=True, seed=2).walk_matrix().reshape(2, 3, 6, 6)
        for bound in UPPER_BOUNDS + LOWER_BOUNDS:
            together = mixing_time_bound(walks, bound)
            assert together.shape == (2, 3) and together.dtype == F64
            for a in range(2):
                for b in range(3):
                    assert together[a, b] == mixing_time_bound(walks[a, b], bound)

    def test_a_node_that_never_moves_on_and_one_node(self):
        walk = HeadSystem.from_edges(3, [[(0, 1)]]).walk_matrix()
        for bound in UPPER_BOUNDS + LOWER_BOUNDS:
            assert mixing_time_bound(walk, bound) == math.inf
            assert mixing_time_bound(torch.ones(1, 1), bound) == 0


@pytest.mark.skipif(hasattr(walk_profile, "__wrapped__"), reason="annotations are being enforced")
@pytest.mark.parametrize(("call", "message"), [
    (lambda: mixing_time_bound(torch.eye(2) / 2), r"`walk`.*stochastic"),
    (lambda: mixing_time_bound([[1.0]]), r"`walk`.*torch.Tensor"),
    (lambda: walk_profile(torch.ones(2, 2) / 2), r"`walk`.*causal"),
    (lambda: mixing_time_bound(torch.eye(2), "best"), r"`bound`.*'binomial'.*'best'"),
    (lambda: mixing_time_bound(torch.eye(2), epsilon=1), r"`epsilon`.*\(0, 1\)"),
    (lambda: published_threshold(0), r"`longest`.*at least 1"),
])
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
