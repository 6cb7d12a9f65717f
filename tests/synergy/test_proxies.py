"""The closed forms against a sampler written from the description alone, and by hand."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.synergy import HeadSystem, expected_hitting_times, minimax_fidelity
from manyheads.synergy.proxies import (
    mean_capped_time,
    published_fidelity_proxy,
    published_mixing_proxy,
    published_transitions,
)
from tests.synergy.examples import random_attention


def sharp_attention(heads, n, seed):
    """Columns that sum to far more and far less than one."""
    cubes = random_attention(heads, n, n, seed=seed) ** 3
    return cubes / cubes.sum(-1, keepdim=True)


def uniform_attention(n):
    return (torch.ones(n, n).tril().double() / torch.arange(1, n + 1)[:, None])[None]


def sampled(attention, weights, walks, cap, seed):
    """Walks as the public code takes them: a look-up of r in running sums of a column."""
    draw = np.random.default_rng(seed)
    columns = np.einsum("h,hij->ji", weights, attention.numpy())  # row j: what reads j
    running = columns.cumsum(axis=1)
    last = len(running) - 1
    lengths = np.zeros((len(running), walks))
    for start in range(last):
        for walk in range(walks):
            at = start
            while at != last and lengths[start, walk] < cap:
                at = min(int((running[at] < draw.random()).sum()), last)
                lengths[start, walk] += 1
    return lengths


@pytest.mark.parametrize(("heads", "n", "cap"), [(1, 6, 100), (3, 8, 7)])
def test_the_closed_form_is_the_samplers_mean(heads, n, cap):
    attention = sharp_attention(heads, n, seed=n)
    weights = np.arange(1.0, heads + 1) / np.arange(1, heads + 1).sum()
    lengths = sampled(attention, weights, walks=2000, cap=cap, seed=0)
    exact = published_mixing_proxy(attention, weights.tolist(), max_steps=cap).item()
    error = np.sqrt((lengths.var(axis=1) / lengths.shape[1]).sum()) / n
    assert error > 0 and abs(lengths.mean() - exact) < 5 * error


def test_uniform_attention_of_100_tokens():
    attention = uniform_attention(100)
    assert published_mixing_proxy(attention).item() == pytest.approx(3.642398777, abs=1e-8)
    walk = HeadSystem.from_attention(attention).walk_matrix()
    assert expected_hitting_times(walk).mean().item() == pytest.approx(5.623979894, abs=1e-8)
    assert published_fidelity_proxy(attention).item() == pytest.approx(0.01, abs=1e-12)


def test_excess_is_cut_off_and_a_lack_jumps_to_the_sink():
    # Columns of sum 0.5 + 0.9 + 0.9, 0.1 + 0.05, 0.05 behind the diagonal of a 4-token head.
    attention = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.9, 0.1, 0, 0],
                               [0.9, 0.05, 0.05, 0]]], dtype=torch.float64)
    expected = torch.tensor([[1.0, 0, 0, 0], [0, 0.5, 0, 0], [0, 0.1, 0, 0], [0, 0.4, 1, 1]])
    torch.testing.assert_close(published_transitions(attention), expected.double())
    # From 0 the walk never moves; from 1 it takes 1 + 0.5 T_1 + 0.1; from 2 one step.
    times = torch.tensor([10, (1 - 0.5**10) * 2 + 0.1 * sum(0.5**t for t in range(9)), 1, 0])
    assert published_mixing_proxy(attention, max_steps=10).item() == pytest.approx(times.mean().item())


@given(heads=st.integers(1, 4), n=st.integers(2, 9), seed=st.integers(0, 999))
def test_the_walk_is_a_walk_and_the_cap_only_lowers(heads, n, seed):
    attention = sharp_attention(heads, n, seed)
    walk = published_transitions(attention)
    assert (walk >= 0).all() and walk.triu(1).sum() == 0
    torch.testing.assert_close(walk.sum(0), torch.ones(n, dtype=torch.float64))
    uncapped = expected_hitting_times(walk).mean().item()
    capped = [mean_capped_time(walk, cap).item() for cap in (1, 10, 100)]
    assert capped == sorted(capped) and capped[-1] <= uncapped * (1 + 1e-12)
    assert capped[0] == pytest.approx((n - 1) / n)
    if uncapped < 20:
        assert mean_capped_time(walk, 5000).item() == pytest.approx(uncapped)


def test_a_walk_of_normalised_columns_has_no_cap_in_the_limit():
    walk = HeadSystem.from_attention(random_attention(4, 30, 30, seed=1)).walk_matrix()
    times = expected_hitting_times(walk)
    assert mean_capped_time(walk, 2000).item() == pytest.approx(times.mean().item(), rel=1e-12)


def test_fidelity_is_that_of_the_mixture_with_its_sink():
    attention = random_attention(3, 12, 12, seed=2)
    mixture = HeadSystem.from_attention(attention, [0.5, 0.25, 0.25]).diffusion_matrix()
    assert published_fidelity_proxy(attention, [0.5, 0.25, 0.25]) == minimax_fidelity(
        mixture, 100, include_sink=True)
    assert published_fidelity_proxy(attention) <= attention[:, -1, -1].mean()


def test_batches_are_the_loop():
    attention = torch.stack([random_attention(2, 7, 7, seed=seed) for seed in range(3)])
    weights = torch.tensor([[0.5, 0.5], [0.1, 0.9], [1.0, 0.0]], dtype=torch.float64)
    for proxy in (published_mixing_proxy, published_fidelity_proxy):
        loop = torch.stack([proxy(*pair) for pair in zip(attention, weights)])
        torch.testing.assert_close(proxy(attention, weights), loop, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("call", "message"), [
    (lambda a: published_mixing_proxy(a.mT), "`attention` must be causal"),
    (lambda a: published_mixing_proxy(2 * a), "`attention` must be stochastic, every row"),
    (lambda a: published_mixing_proxy(a, [1.0]), "`weights` must be"),
    (lambda a: published_mixing_proxy(a, max_steps=0), "`max_steps` must be .* got 0"),
    (lambda a: mean_capped_time(a[0], 1.5), "`max_steps` must be .* got 1.5"),
    (lambda a: published_fidelity_proxy(a, horizon=0), "`horizon` must be .* got 0"),
    (lambda a: published_transitions(a[0, 0]), "`attention` must be"),
])
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call(random_attention(2, 4, 4, seed=0))
    assert re.search(message, str(error.value)), str(error.value)
