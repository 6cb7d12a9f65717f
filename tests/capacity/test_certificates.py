"""Certificates against exact rational arithmetic and brute force over all contexts."""

import math
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.capacity import (
    KeyQueryChannel,
    RelationalGraph,
    certify,
    gaussian_embeddings,
    permutation_graph,
)
from manyheads.capacity import channel as channel_module


def exact(tensor):
    """The rationals that the floats of a tensor stand for."""
    return np.vectorize(Fraction, otypes=[object])(tensor.double().numpy())


def exact_best_scores(channel, embeddings):
    x = exact(embeddings)
    heads = [
        (x @ exact(query)) @ (x @ exact(key)).T
        for query, key in zip(channel.query_weights, channel.key_weights, strict=True)
    ]
    return np.max(np.stack(heads), axis=0)


def some_threshold_is_right_in_every_context(best, graph):
    """Straight from the definition, over all 2^m - 1 contexts and all thresholds that matter."""
    vertices = range(graph.num_vertices)
    contexts = chain.from_iterable(combinations(vertices, k) for k in range(1, len(vertices) + 1))
    owed = graph.adjacency()
    lowest = min(best[owed])
    thresholds = {score for score in best.flat if score < lowest} | {lowest - 1}
    squares = [np.ix_(context, context) for context in contexts]
    return any(
        all(np.array_equal(best[square] > theta, owed[square]) for square in squares)
        for theta in thresholds
    )


@st.composite
def cases(draw, dtype=torch.float32):
    m, d, k, h = (draw(st.integers(low, high)) for low, high in ((2, 5), (1, 4), (1, 3), (1, 3)))
    pairs = [(i, j) for i in range(m) for j in range(m)]
    few = st.lists(st.sampled_from(pairs), min_size=1, max_size=m * m - 1, unique=True)
    entries = st.floats(-2, 2, width=32) if draw(st.booleans()) else st.integers(-2, 2)

    def tensor(*shape):
        size = math.prod(shape)
        values = draw(st.lists(entries, min_size=size, max_size=size))
        return torch.tensor(values, dtype=dtype).reshape(shape)

    channel = KeyQueryChannel(tensor(h, d, k), tensor(h, d, k), 0.25)
    return channel, RelationalGraph(m, draw(few)), tensor(m, d)


@settings(deadline=None, max_examples=200)
@given(cases())
def test_true_is_a_proof_and_false_hides_no_success(case):
    channel, graph, embeddings = case
    certificate = certify(channel, graph, embeddings)
    best, owed = exact_best_scores(channel, embeddings), graph.adjacency()
    margin = best[owed].min() - best[~owed].max()
    # Context reduction: brute force over all contexts agrees with the exact margin.
    assert some_threshold_is_right_in_every_context(best, graph) == (margin > 0)
    if certificate.recovers_every_context:
        assert margin > 0
    elif margin > 0:
        assert margin <= 4 * Fraction(certificate.error_bound)


@settings(deadline=None, max_examples=200)
@given(cases())
def test_no_score_is_further_off_than_the_error_bound(case):
    channel, graph, embeddings = case
    certificate = certify(channel, graph, embeddings)
    best, owed = exact_best_scores(channel, embeddings), graph.adjacency()
    bound = Fraction(certificate.error_bound)
    assert abs(Fraction(certificate.lowest_edge_score) - best[owed].min()) <= bound
    assert abs(Fraction(certificate.highest_non_edge_score) - best[~owed].max()) <= bound
    wide = certify(
        KeyQueryChannel(channel.query_weights.double(), channel.key_weights.double(), 0.25),
        graph,
        embeddings.double(),
    )
    assert abs(wide.margin - certificate.margin) <= 2 * (certificate.error_bound + 1e-12)


def test_the_error_bound_is_of_the_size_of_the_errors():
    """A bound that is sound but absurdly wide would certify nothing."""
    m, d, h, k = 300, 64, 4, 16
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal((2, h, d, k))) / 8
    x = gaussian_embeddings(m, d, seed=0)
    narrow = KeyQueryChannel(weights[0].float(), weights[1].float(), 0.0)
    wide = KeyQueryChannel(narrow.query_weights.double(), narrow.key_weights.double(), 0.0)
    error = (narrow.scores(x).double() - wide.scores(x.double())).abs().max().item()
    bound = certify(narrow, permutation_graph(m, seed=0), x).error_bound
    assert error < bound < 5000 * error  # random errors cancel, a worst case does not


@settings(deadline=None, max_examples=60)
@given(cases(dtype=torch.float64), st.integers(1, 3), st.integers(1, 3))
def test_everything_in_a_certificate_is_its_definition(case, height, width):
    channel, graph, embeddings = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel_module, "_TILE_ROWS", height)
        patch.setattr(channel_module, "_TILE_COLUMNS", width)
        certificate = certify(channel, graph, embeddings)
    best = channel.scores(embeddings).amax(dim=0).numpy()
    owed, tolerance = graph.adjacency(), {"abs": 1e-12}
    assert certificate.margin == pytest.approx(best[owed].min() - best[~owed].max(), **tolerance)
    assert best[certificate.worst_edge] == pytest.approx(best[owed].min(), **tolerance)
    assert best[certificate.worst_non_edge] == pytest.approx(best[~owed].max(), **tolerance)
    assert owed[certificate.worst_edge] and not owed[certificate.worst_non_edge]
    midpoint = (best[owed].min() + best[~owed].max()) / 2
    assert certificate.threshold == pytest.approx(midpoint, **tolerance)
    rows = [
        best[i][owed[i]].min() - best[i][~owed[i]].max() if not owed[i].all() else math.inf
        for i in range(len(best))
        if owed[i].any()
    ]
    assert certificate.row_margin == pytest.approx(min(rows), **tolerance)
    if (abs(best - channel.threshold) > 1e-9).all():
        reported = best > channel.threshold
        right = (reported & owed).sum()
        assert certificate.recall == right / owed.sum()
        assert certificate.f1 == 2 * right / (owed.sum() + reported.sum())
        if reported.any():
            assert certificate.precision == right / reported.sum()
        else:
            assert math.isnan(certificate.precision)


@settings(deadline=None, max_examples=40)
@given(cases(dtype=torch.float64), st.randoms(use_true_random=False))
def test_relabelling_the_vertices_changes_no_margin(case, random):
    channel, graph, embeddings = case
    order = list(range(graph.num_vertices))
    random.shuffle(order)
    place = np.argsort(order)
    moved = RelationalGraph(graph.num_vertices, place[graph.edges])
    before, after = (
        certify(channel, graph, embeddings),
        certify(channel, moved, embeddings[order]),
    )
    assert after.margin == pytest.approx(before.margin, abs=1e-12)
    assert after.row_margin == pytest.approx(before.row_margin, abs=1e-12)


def test_a_certified_threshold_recovers_sampled_contexts():
    graph, d = permutation_graph(40, seed=0), 40
    x = gaussian_embeddings(40, d, seed=0, dtype=torch.float64)
    dual = torch.linalg.inv(x).T  # <dual_i, x_j> = [i = j]: one full head stores anything
    keys = dual[torch.from_numpy(graph.edges[:, 1].copy())].T
    certificate = certify(KeyQueryChannel(dual.T[None], keys[None], 0.0), graph, x)
    assert certificate.recovers_every_context
    channel = KeyQueryChannel(dual.T[None], keys[None], certificate.threshold)
    assert channel.recover(x) == graph
    assert certify(channel, graph, x).f1 == 1


def test_an_overflow_proves_nothing():
    query = torch.tensor([3e38, 3e38, -3.4e38])[None, :, None]
    channel = KeyQueryChannel(query, torch.full((1, 3, 1), 0.1), 0.0)
    graph = RelationalGraph(3, [(0, 0), (0, 1), (0, 2)])
    x = torch.tensor([[1.0, 1, 1], [1, 0, 0], [0, 1, 0]])
    certificate = certify(channel, graph, x)
    assert certificate.error_bound == math.inf and not certificate.recovers_every_context


def test_weights_that_are_being_learnt_are_certified_as_they_are():
    graph = permutation_graph(6, seed=0)
    x, weights = torch.eye(6), torch.ones(1, 6, 2)
    plain = KeyQueryChannel(weights, weights, 0.5)
    learnt = KeyQueryChannel(torch.nn.Parameter(weights), torch.nn.Parameter(weights), 0.5)
    assert certify(learnt, graph, x.clone().requires_grad_()) == certify(plain, graph, x)
    assert learnt.recover(x) == plain.recover(x)
