"""Graphs with known hitting times: closed forms exactly, and at scale."""

from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch

from manyheads.synergy import HeadSystem, expected_hitting_times, hitting_time_cdf
from manyheads.synergy.graphs import (
    HITTING_LAWS, SYMBOLS, full_graph, line_graph, random_graphs, separable_moments,
)
from tests.synergy.examples import exact_hitting_times, fractions

GRAPHS = {"line": line_graph, "full": full_graph}
k, t, z = SYMBOLS.k, SYMBOLS.t, SYMBOLS.z


@pytest.mark.parametrize("name", GRAPHS)
class TestClosedForms:
    def test_moments_and_law_exactly(self, name):
        """From node 0 of k + 1 nodes, against powers and solves of rational matrices."""
        law = HITTING_LAWS[name]
        for following in range(1, 7):
            walk = GRAPHS[name](following + 1).walk_matrix(exact=True)
            inner = walk[:-1, :-1].T
            ones = sympy.ones(following, 1)
            solve = (sympy.eye(following) - inner).LUsolve
            mean = solve(ones)
            second = solve(ones + 2 * inner * mean)
            at = {k: following}
            assert law.mean.subs(at) == mean[0]
            assert law.variance.subs(at) == second[0] - mean[0]**2
            survival = ones
            for step in range(9):
                assert law.survival.subs(at).subs(t, step).doit() == survival[0]
                survival = inner * survival

    def test_generating_function_has_the_law_and_the_moments(self, name):
        law = HITTING_LAWS[name]
        for following in (1, 2, 5):
            at = {k: following}
            function = law.generating_function.subs(at).doit()
            masses = [law.survival.subs(at).subs(t, s).doit() for s in range(8)]
            series = sum((masses[s - 1] - masses[s]) * z**s for s in range(1, 8))
            above, below = sympy.fraction(sympy.together(function))
            rest = sympy.Poly(series * below - above, z)
            assert all(rest.coeff_monomial(z**s) == 0 for s in range(8))
            first, second = (sympy.diff(function, z, order).subs(z, 1) for order in (1, 2))
            assert first == law.mean.subs(at)
            assert second + first - first**2 == law.variance.subs(at)

    def test_two_thousand_nodes(self, name):
        walk = GRAPHS[name](2000).walk_matrix()
        means = np.array([HITTING_LAWS[name].moments(following)[0]
                          for following in range(1999, 0, -1)])
        assert np.abs(expected_hitting_times(walk)[:-1].numpy() / means - 1).max() < 1e-12

    def test_moments_of_a_long_law(self, name):
        n, steps = 60, 400
        survival = 1 - hitting_time_cdf(GRAPHS[name](n).walk_matrix(), steps)[:, 0]
        mean, variance = HITTING_LAWS[name].moments(n - 1)
        second = ((2 * torch.arange(steps + 1) + 1) * survival).sum()
        assert survival.sum().item() == pytest.approx(mean, rel=1e-12)
        assert (second - mean**2).item() == pytest.approx(variance, rel=1e-10)


def test_mean_over_all_starts_of_the_full_graph_is_harmonic():
    for n in (2, 3, 7, 12):
        exact = exact_hitting_times(fractions(full_graph(n).walk_matrix(exact=True)))
        assert sum(exact) / n == sum(Fraction(1, r) for r in range(1, n))


def test_lazy_line():
    assert expected_hitting_times(line_graph(4, progress=0.25).walk_matrix()).tolist() == [
        12, 8, 4, 0]
    assert line_graph(1).walk_matrix().tolist() == full_graph(1).walk_matrix().tolist() == [[1]]
    assert line_graph(3, progress=1).walk_matrix()[1, 0] == 1


class TestSeparable:
    def test_mean_and_variance_against_the_walk(self):
        pull = torch.rand(3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        walk = (pull[..., :, None].expand(3, 12, 12)).tril()
        walk = walk / walk.sum(-2, keepdim=True)
        mean, variance = separable_moments(pull)
        torch.testing.assert_close(mean, expected_hitting_times(walk), rtol=1e-12, atol=0)
        survival = 1 - hitting_time_cdf(walk, 3000)
        weights = (2 * torch.arange(3001) + 1)[:, None]
        torch.testing.assert_close(variance, (weights * survival).sum(-2) - mean**2,
                                   rtol=1e-7, atol=1e-8)

    def test_additive_attention(self):
        generator = torch.Generator().manual_seed(1)
        query, key = torch.randn(2, 30, generator=generator, dtype=torch.float64) * 3
        future = torch.ones(30, 30, dtype=torch.bool).triu(1)
        attention = (query[:, None] + key).masked_fill(future, -torch.inf).softmax(-1)
        times = expected_hitting_times(HeadSystem.from_attention(attention[None]).walk_matrix())
        mean, _ = separable_moments(1 / key.exp().cumsum(0))
        torch.testing.assert_close(mean, times, rtol=1e-11, atol=0)

    def test_the_full_graph_and_one_node(self):
        mean, variance = separable_moments(torch.ones(9, dtype=torch.float64))
        assert (mean[0].item(), variance[0].item()) == pytest.approx(
            HITTING_LAWS["full"].moments(8), rel=1e-13)
        assert separable_moments(torch.ones(1))[0].tolist() == [0]


def test_hitting_times_of_slow_random_graphs_are_rational_ones():
    """Flows of powers of two down to 2^-45: times far beyond 1e12, to 1e-12 of them."""
    largest = 0
    for seed in range(8):
        flows = random_graphs(7, 1, density=0.4, seed=seed).flows[0]
        power = torch.randint(0, 46, flows.shape, generator=torch.Generator().manual_seed(seed))
        flows = flows.where(torch.eye(7) > 0, flows * 0.5**power)
        system = HeadSystem(flows)
        exact = exact_hitting_times(fractions(system.walk_matrix(exact=True)))
        for time, rational in zip(expected_hitting_times(system.walk_matrix()).tolist(), exact,
                                  strict=True):
            assert time == pytest.approx(float(rational), rel=1e-12)
        largest = max(largest, *exact)
    assert largest > 10**12


class TestRandomGraphs:
    def test_every_node_reaches_the_sink(self):
        for density in (0, 0.5, 1):
            for weighted in (False, True):
                system = random_graphs(6, 50, heads=2, density=density, weighted=weighted, seed=1)
                assert system.flows.shape == (50, 2, 6, 6)
                assert torch.isfinite(expected_hitting_times(system.walk_matrix())).all()
                edges = (system.flows > 0).double().tril(-1).sum(-2)
                assert (edges[..., :-1] >= 1).all()
                if density == 0:
                    assert (edges[..., :-1] == 1).all()
                if density == 1:
                    assert (edges.sum(-1) == 15).all()
        assert system.flows[system.flows > 0].min() >= 1e-3 and system.flows.max() <= 1

    def test_density_and_seed(self):
        flows = random_graphs(20, 200, density=0.3, seed=3).flows
        share = flows.tril(-1).sum() / (200 * 190)
        assert share.item() == pytest.approx(0.33, abs=0.02)  # some had to be added
        assert torch.equal(flows, random_graphs(20, 200, density=0.3, seed=3).flows)
        assert not torch.equal(flows, random_graphs(20, 200, density=0.3, seed=4).flows)

    def test_the_one_edge_is_uniform(self):
        flows = random_graphs(5, 4000, density=0.0, seed=0).flows.squeeze(1)
        share = flows[:, 1:, 0].mean(0)  # standard error 0.007
        assert (share - 0.25).abs().max() < 0.035


@pytest.mark.parametrize(("call", "message"), [
    (lambda: line_graph(0), r"`num_nodes`.*at least 1"),
    (lambda: line_graph(3, progress=0), r"`progress`.*more than 0"),
    (lambda: line_graph(3, progress=1.5), r"`progress`.*\[0, 1\]"),
    (lambda: full_graph(2.0), r"`num_nodes`.*whole number"),
    (lambda: random_graphs(1, 3, seed=0), r"`num_nodes`.*at least 2"),
    (lambda: random_graphs(3, 0, seed=0), r"`count`.*at least 1"),
    (lambda: random_graphs(3, 1, heads=0, seed=0), r"`heads`.*at least 1"),
    (lambda: random_graphs(3, 1, density=2, seed=0), r"`density`.*\[0, 1\]"),
    (lambda: random_graphs(3, 1, seed=-1), r"`seed`.*at least 0"),
    (lambda: HITTING_LAWS["line"].moments(0), r"`following`.*at least 1"),
    (lambda: separable_moments(torch.zeros(3)), r"`pull`.*positive; got an entry 0"),
    (lambda: separable_moments([1.0]), r"`pull`.*torch.Tensor"),
])
@pytest.mark.skipif(hasattr(line_graph, "__wrapped__"), reason="annotations are being enforced")
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
