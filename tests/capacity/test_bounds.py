import math
import re

import mpmath
import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads._formulas import value
from manyheads.capacity import block_channel, certify, gaussian_embeddings, random_graph
from manyheads.capacity.bounds import (
    SYMBOLS,
    bits_per_parameter,
    construction_upper_bound,
    counting_lower_bound,
    graph_bits,
    head_bits,
    optimal_heads,
    sign_pattern_lower_bound,
    single_head_ceiling,
)

S = SYMBOLS
PERMUTATIONS = {"graphs": "permutations"}
FORMULAS = [
    bits_per_parameter, construction_upper_bound, counting_lower_bound, graph_bits, head_bits,
    optimal_heads, sign_pattern_lower_bound, single_head_ceiling,
]


@pytest.mark.parametrize("function", FORMULAS, ids=lambda function: function.__name__)
def test_every_bound_shows_its_formula(function):
    assert isinstance(function.expression, sympy.Basic)
    assert function.expression.free_symbols <= set(vars(S).values())
    assert function.__doc__


# how many graphs: exact integers, then mpmath where they are too long


@pytest.mark.parametrize("m", [1, 2, 3, 7, 40])
def test_class_sizes_are_those_of_exact_counting(m):
    expected = math.log2(math.factorial(m))
    assert graph_bits(m, m, **PERMUTATIONS) == pytest.approx(expected, rel=1e-13)
    for m_prime in {0, 1, m, m * m // 2, m * m}:
        expected = math.log2(math.comb(m * m, m_prime))
        assert graph_bits(m, m_prime) == pytest.approx(expected, rel=1e-12, abs=1e-9)
    for degree in {0, 1, m // 2, m}:
        expected = m * math.log2(math.comb(m, degree))
        bits = graph_bits(m, m * degree, graphs="out_regular")
        assert bits == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_the_expression_gives_the_exact_integer():
    counts = {"any": math.comb(25, 5), "out_regular": 5**5, "permutations": 120}
    for graphs, count in counts.items():
        expression = graph_bits.expressions[graphs].subs({S.m: 5, S.m_prime: 5})
        assert sympy.simplify(2**expression) == count


@pytest.mark.parametrize("m", [10**3, 10**6])
def test_large_classes_agree_with_forty_digits(m):
    with mpmath.workdps(40):
        ln_two = mpmath.log(2)
        expected = mpmath.loggamma(m + 1) / ln_two
        assert graph_bits(m, m, **PERMUTATIONS) == pytest.approx(float(expected), rel=1e-12)
        for m_prime in (1, 2, m, 7 * m, m * m // 2, m * m - 1):
            expected = mpmath.log(mpmath.binomial(m * m, m_prime)) / ln_two
            assert graph_bits(m, m_prime) == pytest.approx(float(expected), rel=1e-9)
        for d, key_dim in ((64, 1), (64, 5), (1000, 1), (1000, 999)):
            free = key_dim * (2 * d - key_dim)
            low_rank = mpmath.log(mpmath.binomial(2 * m**2 + free, free)) / ln_two
            full = mpmath.log(mpmath.binomial(m**2 + d**2, d**2)) / ln_two
            expected = float(min(low_rank, full))
            assert head_bits(m, d, key_dim) == pytest.approx(expected, rel=1e-9)


# the two lower bounds


def test_counting_bound_in_closed_form():
    bound = counting_lower_bound(4, 4, 3, bits=2, **PERMUTATIONS)
    assert bound == pytest.approx(math.log2(24) / 12)
    bound = counting_lower_bound(4, 5, 3, bits=2)
    assert bound == pytest.approx(math.log2(math.comb(16, 5)) / 12)


def test_sign_pattern_bound_in_closed_form():
    patterns = math.comb(2 * 32**2 + 15, 15)  # one head of width 1 in d_model 8
    expected = (math.log2(math.factorial(32)) - 1) / math.log2(patterns)
    assert sign_pattern_lower_bound(32, 32, 8, **PERMUTATIONS) == pytest.approx(expected, rel=1e-12)


def test_one_variable_cuts_the_line_into_as_many_pieces_as_it_can():
    # d_model = 1: q thresholds on a line make q + 1 patterns, and no more.
    assert head_bits(5, 1, 1) == pytest.approx(math.log2(26))


@pytest.mark.parametrize("heads", [1, 2, 5])
def test_the_implicit_bound_solves_its_inequality(heads):
    budget = sign_pattern_lower_bound(2000, 6000, 24, heads=heads)
    total = graph_bits(2000, 6000)
    if budget == math.inf:
        assert 1 + heads * head_bits(2000, 24, 24) < total
    else:
        assert 1 + heads * head_bits(2000, 24, budget / heads) == pytest.approx(total, rel=1e-9)
        rounded = sign_pattern_lower_bound(2000, 6000, 24, heads=heads, rounded=True)
        assert rounded % heads == 0 and budget <= rounded < budget + heads
        assert 1 + heads * head_bits(2000, 24, rounded / heads) >= total
        assert 1 + heads * head_bits(2000, 24, rounded / heads - 1) < total


sizes = st.integers(2, 3000)


@settings(deadline=None)
@given(m=sizes, d=st.integers(1, 200), degree=st.integers(1, 4), data=st.data())
def test_bounds_move_the_right_way(m, d, degree, data):
    m_prime = m * min(degree, m // 2 or 1)
    any_split = sign_pattern_lower_bound(m, m_prime, d)
    assert sign_pattern_lower_bound(m, m_prime, d + 1) <= any_split
    assert counting_lower_bound(m, m_prime, d, 4) == 2 * counting_lower_bound(m, m_prime, d, 8)
    if m_prime + 1 <= m * m // 2:
        assert sign_pattern_lower_bound(m, m_prime + 1, d) >= any_split
        assert counting_lower_bound(m, m_prime + 1, d, 4) > counting_lower_bound(m, m_prime, d, 4)
    # smaller classes need less, a given split no less than the best one
    assert graph_bits(m, m, **PERMUTATIONS) <= graph_bits(m, m, graphs="out_regular")
    assert graph_bits(m, m, graphs="out_regular") <= graph_bits(m, m) + 1e-9
    heads = data.draw(st.integers(1, m_prime))
    split = sign_pattern_lower_bound(m, m_prime, d, heads=heads)
    assert split >= any_split * (1 - 1e-9) - 1e-9
    assert sign_pattern_lower_bound(m, m_prime, d, heads=heads, rounded=True) >= split - 1e-6
    # wider heads hold more, but no more for each key dimension
    key_dim = data.draw(st.integers(1, d))
    assert head_bits(m, d, key_dim + 1) >= head_bits(m, d, key_dim)
    assert head_bits(m, d, key_dim + 1) / (key_dim + 1) <= head_bits(m, d, key_dim) / key_dim + 1e-9
    assert head_bits(m, d, d) == head_bits(m, d, d + 7)
    assert head_bits(m, d, d) == pytest.approx(
        value(head_bits.full_width_expression, {S.m: m, S.d: d}))


def test_never_above_what_is_known_to_suffice():
    """One edge a head, D_K = m', works for every graph and generic embeddings."""
    rng = np.random.default_rng(0)
    for _ in range(600):
        m, d = int(rng.integers(2, 2000)), int(rng.integers(1, 500))
        m_prime = int(rng.integers(1, min(m * m, 20 * m)))
        assert sign_pattern_lower_bound(m, m_prime, d, rounded=True) <= m_prime
        assert sign_pattern_lower_bound(m, m_prime, d, heads=m_prime, rounded=True) <= m_prime
        if d > 1:  # in one dimension unit embeddings are parallel
            assert counting_lower_bound(m, m_prime, d, bits=32) <= m_prime


def test_never_above_a_certified_channel():
    rng = np.random.default_rng(1)
    for seed in range(40):
        m, d = int(rng.integers(4, 24)), int(rng.integers(3, 12))
        m_prime = int(rng.integers(1, m))
        graph, x = random_graph(m, m_prime, seed=seed), gaussian_embeddings(m, d, seed=seed)
        channel = block_channel(graph, x, heads=m_prime)
        assert certify(channel, graph, x).recovers_every_context
        budget, heads = channel.total_key_dim, channel.heads
        assert sign_pattern_lower_bound(m, m_prime, d, heads=heads, rounded=True) <= budget
        assert counting_lower_bound(m, m_prime, d, bits=32) <= budget


@pytest.mark.parametrize("m", [4, 64, 1024, 10**6])
def test_one_hot_heads_of_width_two_are_allowed(m):
    # Signatures at equal angles on a circle: one head, key_dim 2, any permutation, m = d_model.
    assert sign_pattern_lower_bound(m, m, m, heads=1, rounded=True, **PERMUTATIONS) <= 2


# how many patterns there are, against what a search finds


@pytest.mark.parametrize(("m", "key_dim"), [(4, 1), (5, 1), (5, 2), (6, 2)])
def test_no_search_finds_more_patterns_than_the_bound(m, key_dim):
    """Relations that random heads report on m vertices in the plane, thresholds 1 and -1."""
    x = gaussian_embeddings(m, 2, seed=0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    w_q, w_k = torch.randn(2, 200_000, 2, key_dim, generator=generator, dtype=torch.float64)
    strength = torch.tensor([1, 3, 10, 30]).repeat_interleave(50_000)[:, None, None]
    scores = strength * ((x @ w_q) @ (x @ w_k).mT)
    for threshold in (1, -1):
        reported = ((scores > threshold).flatten(1) * 2 ** torch.arange(m * m)).sum(dim=1)
        assert 2 ** head_bits(m, 2, key_dim) / 20 < len(reported.unique())
        assert len(reported.unique()) <= 2 ** head_bits(m, 2, key_dim)


# the ceiling of one head


@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_ceiling_is_the_only_crossing(d):
    ceiling = single_head_ceiling(d)
    for m in range(1, 3 * ceiling):
        fits = math.factorial(m) <= 2 * math.comb(m * m + d * d, d * d)
        assert fits == (m <= ceiling)


def test_past_the_ceiling_no_width_will_do():
    for d in (2, 8, 16, 64):
        ceiling = single_head_ceiling(d)
        for m, beyond in ((ceiling, False), (ceiling + 1, True)):
            budget = sign_pattern_lower_bound(m, m, d, heads=1, **PERMUTATIONS)
            assert (budget == math.inf) == beyond


def test_the_ceiling_beats_the_one_from_warrens_constant():
    # (4e m²/d²)^(d²) patterns: these are the first m past it.
    for d, first in {8: 131, 16: 454, 32: 1641, 64: 6105}.items():
        assert math.lgamma(first + 1) > d * d * math.log(4 * math.e * first**2 / d**2)
        assert math.lgamma(first) < d * d * math.log(4 * math.e * (first - 1) ** 2 / d**2)
        assert single_head_ceiling(d) + 1 < first
    assert [single_head_ceiling(d) for d in (8, 16, 32, 64)] == [106, 378, 1402, 5316]


def test_the_ceiling_loses_little_to_the_exact_number_of_cells():
    # m² hyperplanes cut R^(d²) into at most the sum of C(m², j), j <= d², cells.
    for d in (2, 4, 8):
        m = single_head_ceiling(d) + 1
        assert math.factorial(m) > 2 * sum(math.comb(m * m, j) for j in range(d * d + 1))
        m = max(1, m - 3)
        assert math.factorial(m) <= 2 * sum(math.comb(m * m, j) for j in range(d * d + 1))


# the construction


def test_the_best_number_of_heads_is_the_minimiser():
    held = construction_upper_bound.expression.subs(sympy.log(S.h * S.m**2), sympy.Symbol("L"))
    assert sympy.solve(sympy.diff(held, S.h), S.h) == [optimal_heads.expression]
    assert optimal_heads(512, 64) == 8


def test_construction_in_closed_form():
    expected = 8 * 3 * (1 + 512 / (8 * 64)) ** 2 * math.log(8 * 256**2)
    assert construction_upper_bound(256, 512, 64, heads=8, constant=3) == pytest.approx(expected)


def test_bits_per_parameter_invert_the_counting_bound():
    budget = counting_lower_bound(300, 900, 32, bits=1.5)
    assert bits_per_parameter(300, 900, 32, budget) == pytest.approx(1.5)
    bits = bits_per_parameter(256, 256, 64, 16, **PERMUTATIONS)
    assert bits == pytest.approx(math.log2(math.factorial(256)) / 2048)


TABLE = [
    (lambda: graph_bits(0, 1), r"`num_vertices` .* at least 1; got 0"),
    (lambda: graph_bits(3, 10), r"`num_edges` .* from 0 to 9; got 10"),
    (lambda: graph_bits(3, -1), r"`num_edges` .* got -1"),
    (lambda: graph_bits(3, 4, **PERMUTATIONS), r"`num_edges` .* 3, as many as vertices.* got 4"),
    (lambda: graph_bits(3, 4, graphs="out_regular"), r"`num_edges` .* multiple of 3 .* got 4"),
    (lambda: graph_bits(3, 3, graphs="trees"), r"`graphs` .* 'permutations'; got 'trees'"),
    (lambda: counting_lower_bound(3, 3, 0, 1), r"`d_model` .* at least 1; got 0"),
    (lambda: counting_lower_bound(3, 3, 2, 0), r"`bits` .* \(0, inf\); got 0"),
    (lambda: counting_lower_bound(3, 3, 2, math.nan), r"`bits` .* finite .* got nan"),
    (lambda: counting_lower_bound(3, 10, 2, 1), r"`num_edges` .* got 10"),
    (lambda: head_bits(3, 2, 0), r"`key_dim` .* got 0"),
    (lambda: head_bits(3, 2, math.inf), r"`key_dim` .* got inf"),
    (lambda: head_bits(0, 2, 1), r"`num_vertices` .* got 0"),
    (lambda: sign_pattern_lower_bound(3, 3, -1), r"`d_model` .* got -1"),
    (lambda: sign_pattern_lower_bound(3, 3, 2, heads=0), r"`heads` .* at least 1; got 0"),
    (lambda: sign_pattern_lower_bound(3, 3, 2, graphs=""), r"`graphs` .* got ''"),
    (lambda: single_head_ceiling(0), r"`d_model` .* got 0"),
    (lambda: construction_upper_bound(3, 0, 2, 1, 1.0), r"`num_edges` .* from 1 to 9; got 0"),
    (lambda: construction_upper_bound(3, 3, 2, 4, 1.0), r"`heads` .* from 1 to 3; got 4"),
    (lambda: construction_upper_bound(3, 3, 2, 1, 0.0), r"`constant` .* got 0.0"),
    (lambda: optimal_heads(0, 2), r"`num_edges` .* got 0"),
    (lambda: optimal_heads(2, 0), r"`d_model` .* got 0"),
    (lambda: bits_per_parameter(3, 3, 2, 0), r"`total_key_dim` .* got 0"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(message.replace(" .* ", ".*"), str(error.value)), str(error.value)
