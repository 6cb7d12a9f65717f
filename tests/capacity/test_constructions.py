import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from manyheads.capacity import (
    RelationalGraph,
    block_channel,
    certify,
    gaussian_embeddings,
    one_hot_embeddings,
    permutation_graph,
    power_law_graph,
    random_graph,
    regular_graph,
)
from manyheads.capacity.constructions import one_hot_channel
from tests.capacity.test_graphs import graphs

KINDS = ("frame", "rademacher")
DECORRELATIONS = ("none", "ridge", "pinv")


def signatures(size, key_dim, kind, seeds=range(1)):
    """With one-hot embeddings the weights are the signatures: (size · seeds, size, key_dim)."""
    complete, eye = regular_graph(size, size, seed=0), one_hot_embeddings(size, dtype=torch.float64)
    return torch.cat([
        block_channel(complete, eye, heads=size, key_dim=key_dim, signatures=kind, seed=seed)
        .query_weights
        for seed in seeds
    ])


# One direction for every edge


@settings(deadline=None)
@given(graphs(most=6))
def test_orthonormal_embeddings_make_every_split_exact(graph):
    if 0 < graph.num_edges < graph.num_vertices**2:
        eye = one_hot_embeddings(graph.num_vertices)
        for heads in {1, (graph.num_edges + 1) // 2, graph.num_edges}:
            channel = block_channel(graph, eye, heads=heads)
            certificate = certify(channel, graph, eye)
            assert channel.heads == heads
            assert channel.key_dim == -(-graph.num_edges // heads)
            assert certificate.lowest_edge_score == certificate.margin == 1
            assert channel.recover(eye) == graph


def test_a_score_is_the_sum_over_the_edges_of_the_block():
    graph, x = permutation_graph(6, seed=0), gaussian_embeddings(6, 4, seed=0).double()
    scores = block_channel(graph, x, heads=2).scores(x)
    gram, target = x @ x.T, graph.edges[:, 1]
    for head, block in enumerate(([0, 1, 2], [3, 4, 5])):
        expected = sum(torch.outer(gram[:, i], gram[:, target[i]]) for i in block)
        torch.testing.assert_close(scores[head], expected)


def test_one_head_is_the_sum_of_the_heads():
    graph, x = permutation_graph(12, seed=1), gaussian_embeddings(12, 8, seed=1).double()
    one = block_channel(graph, x, heads=1).scores(x)[0]
    for heads in (2, 3, 5, 12):
        torch.testing.assert_close(block_channel(graph, x, heads=heads).scores(x).sum(dim=0), one)


@pytest.mark.parametrize("seed", range(5))
def test_many_heads_recover_what_one_head_of_the_same_budget_does_not(seed):
    graph, x = permutation_graph(256, seed=seed), gaussian_embeddings(256, 64, seed=seed)
    one, many = (block_channel(graph, x, heads=h) for h in (1, 32))
    assert one.total_key_dim == many.total_key_dim == 256
    assert certify(one, graph, x).margin < 0
    assert certify(many, graph, x).recovers_every_context


@pytest.mark.parametrize("kind", KINDS)
def test_wide_heads_pad_with_zeros_and_need_no_seed(kind):
    graph, x = permutation_graph(6, seed=0), gaussian_embeddings(6, 4, seed=0)
    exact = block_channel(graph, x, heads=2)
    wide = block_channel(graph, x, heads=2, key_dim=5, signatures=kind)
    assert exact.key_dim == 3 and wide.key_dim == 5
    torch.testing.assert_close(wide.scores(x), exact.scores(x))


# Signatures


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size, key_dim", [(2, 1), (5, 3), (8, 7), (12, 4)])
def test_signatures_are_unit(kind, size, key_dim):
    lengths = signatures(size, key_dim, kind).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_rademacher_signatures_are_signs_of_one_size():
    torch.testing.assert_close(signatures(9, 4, "rademacher").abs(),
                               torch.full((9, 9, 4), 0.5).double())


@pytest.mark.parametrize("size, key_dim", [(2, 1), (4, 2), (8, 3), (16, 8), (16, 15), (40, 12)])
def test_frames_have_the_least_energy_that_unit_vectors_can_have(size, key_dim):
    frames = signatures(size, key_dim, "frame")
    energy = (frames @ frames.mT).square().sum(dim=(1, 2))
    least = size**2 / key_dim  # Welch
    assert energy.min() > (1 - 1e-9) * least
    assert energy.max() < 1.01 * least and energy.mean() < 1.001 * least


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_are_fair(kind):
    drawn = signatures(6, 3, kind, seeds=range(400))  # (2400, 6, 3)
    gram = (drawn @ drawn.mT)[:, *torch.triu_indices(6, 6, 1)]  # (2400, 15)
    half = 3.9 * gram.std(dim=0) / len(gram) ** 0.5  # 99.99 %
    assert (gram.mean(dim=0).abs() < half).all()
    kappa = 1 / 3 if kind == "rademacher" else (6 - 3) / (3 * (6 - 1))
    square = gram.square()
    assert ((square.mean(dim=0) - kappa).abs() < 3.9 * square.std(dim=0) / len(gram) ** 0.5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_decides(kind):
    graph, x = permutation_graph(12, seed=0), gaussian_embeddings(12, 8, seed=0)
    first, again, other = (
        block_channel(graph, x, heads=2, key_dim=3, signatures=kind, seed=seed).query_weights
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


# Duals


@pytest.mark.parametrize("key_dim", [None, 3])
def test_exact_duals_leave_only_the_signatures_inside_a_block(key_dim):
    graph, x = permutation_graph(24, seed=0), gaussian_embeddings(24, 16, seed=0).double()
    channel = block_channel(graph, x, heads=3, key_dim=key_dim, decorrelation="pinv", seed=0)
    scores = channel.scores(x)
    for head, (i, j) in enumerate(torch.from_numpy(graph.edges.copy()).view(3, 8, 2).mT):
        inside = scores[head][i][:, j]
        torch.testing.assert_close(inside, inside.T)
        torch.testing.assert_close(inside.diagonal(), torch.ones(8).double())
        if key_dim is None:
            torch.testing.assert_close(inside, torch.eye(8).double())
        else:  # the Gram matrix of a tight frame
            assert torch.linalg.matrix_rank(inside) == key_dim
            torch.testing.assert_close(torch.linalg.eigvalsh(inside)[-3:],
                                       torch.full((3,), 8 / 3).double(), rtol=0.02, atol=0)


@settings(deadline=None, max_examples=40)
@given(graphs(most=6), st.integers(0, 99), st.data())
def test_exact_duals_of_independent_embeddings_recover_any_graph(graph, seed, data):
    m = graph.num_vertices
    if 0 < graph.num_edges < m**2:
        x = gaussian_embeddings(m, m + 10, seed=seed).double()
        heads = data.draw(st.integers(1, graph.num_edges))
        channel = block_channel(graph, x, heads=heads, decorrelation="pinv")
        one = block_channel(graph, x, heads=1, decorrelation="pinv")
        gap = certify(one, graph, x)
        assert abs(gap.lowest_edge_score - 1) < 1e-6
        assert certify(channel, graph, x).lowest_edge_score > 1 - 1e-6
        if graph.in_degrees.all() and graph.out_degrees.all():  # no foreign vertex
            assert gap.recovers_every_context and abs(gap.highest_non_edge_score) < 1e-6


@settings(deadline=None, max_examples=40)
@given(graphs(most=7), st.sampled_from(DECORRELATIONS), st.sampled_from(KINDS), st.data())
def test_any_graph_makes_a_finite_channel_of_the_asked_shape(graph, decorrelation, kind, data):
    if graph.num_edges:
        heads = data.draw(st.integers(1, graph.num_edges))
        key_dim = data.draw(st.integers(1, 9))
        x = gaussian_embeddings(graph.num_vertices, 3, seed=0)
        channel = block_channel(graph, x, heads=heads, key_dim=key_dim, seed=0,
                                decorrelation=decorrelation, signatures=kind)
        assert channel.query_weights.shape == channel.key_weights.shape == (heads, 3, key_dim)


@settings(deadline=None, max_examples=40)
@given(graphs(most=7), st.sampled_from(DECORRELATIONS), st.data())
def test_relabelling_the_vertices_relabels_the_scores(graph, decorrelation, data):
    """Of a matching with one head, where the order of the edges does not matter."""
    if graph.num_edges and max(graph.in_degrees.max(), graph.out_degrees.max()) == 1:
        m = graph.num_vertices
        order = np.array(data.draw(st.permutations(range(m))))
        x = gaussian_embeddings(m, 4, seed=1).double()
        moved = torch.empty_like(x)
        moved[order] = x
        before = block_channel(graph, x, heads=1, decorrelation=decorrelation).scores(x)
        after = block_channel(RelationalGraph(m, order[graph.edges]), moved, heads=1,
                              decorrelation=decorrelation).scores(moved)
        torch.testing.assert_close(after[:, order][:, :, order], before, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("decorrelation", DECORRELATIONS)
def test_rotating_the_embeddings_changes_no_score(decorrelation):
    graph, x = permutation_graph(12, seed=0), gaussian_embeddings(12, 8, seed=0).double()
    rotation, _ = torch.linalg.qr(torch.from_numpy(np.random.default_rng(0).normal(size=(8, 8))))
    how = dict(heads=3, key_dim=2, seed=0, decorrelation=decorrelation)
    scores = [block_channel(graph, y, **how).scores(y) for y in (x, x @ rotation)]
    torch.testing.assert_close(*scores)


@pytest.mark.parametrize("decorrelation", ["ridge", "pinv"])
def test_a_dual_answers_one_to_its_own_vertex_even_in_a_dependent_block(decorrelation):
    graph, x = permutation_graph(9, seed=0), gaussian_embeddings(9, 4, seed=0).double()
    channel = block_channel(graph, x, heads=1, decorrelation=decorrelation)
    order = graph.edges[:, 0].copy(), graph.edges[:, 1].copy()
    for ends, weights in zip(order, (channel.query_weights, channel.key_weights), strict=True):
        answers = (x[ends] * weights[0].T).sum(dim=1)
        torch.testing.assert_close(answers, torch.ones(9).double())


@pytest.mark.parametrize("decorrelation", DECORRELATIONS)
def test_a_vertex_twice_in_a_block_has_one_vector_used_twice(decorrelation):
    star = RelationalGraph(6, [(0, 1), (0, 2), (3, 2)])  # source 0 and target 2 come twice
    x = gaussian_embeddings(6, 8, seed=0).double()
    channel = block_channel(star, x, heads=1, decorrelation=decorrelation)
    used = np.concatenate(star.matchings())[:, 0]
    columns = channel.query_weights[0].T[torch.from_numpy(used == 0)]
    assert len(columns) == 2 and torch.equal(*columns)
    if decorrelation == "pinv":
        scores = channel.scores(x)[0]
        inside = scores[[0, 3]][:, [1, 2]]
        torch.testing.assert_close(inside, torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double())


@pytest.mark.parametrize("decorrelation", DECORRELATIONS)
def test_blocks_of_unequal_size_are_padded(decorrelation):
    graph, x = permutation_graph(7, seed=0), gaussian_embeddings(7, 16, seed=0).double()
    channel = block_channel(graph, x, heads=3, decorrelation=decorrelation)
    assert channel.key_dim == 3  # blocks of 3, 2, 2
    assert (channel.query_weights[1:, :, 2] == 0).all()
    certificate = certify(channel, graph, x)
    if decorrelation == "pinv":
        assert certificate.lowest_edge_score == pytest.approx(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decorrelation", DECORRELATIONS)
def test_float32_and_float64_write_the_same_channel(decorrelation, kind):
    graph = permutation_graph(64, seed=0)
    how = dict(heads=8, key_dim=4, seed=0, decorrelation=decorrelation, signatures=kind)
    x = gaussian_embeddings(64, 32, seed=0)
    single, double = block_channel(graph, x, **how), block_channel(graph, x.double(), **how)
    assert single.query_weights.dtype == torch.float32
    assert double.query_weights.dtype == torch.float64
    torch.testing.assert_close(single.query_weights.double(), double.query_weights,
                               rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(single.scores(x).double(), double.scores(x.double()),
                               rtol=1e-3, atol=1e-3)


# What the constructions achieve


def recovered(m, d_model, heads, key_dim, decorrelation, seed):
    graph = permutation_graph(m, seed=seed)
    x = gaussian_embeddings(m, d_model, seed=seed, dtype=torch.float64)
    channel = block_channel(graph, x, heads=heads, key_dim=key_dim, seed=seed,
                            decorrelation=decorrelation)
    return certify(channel, graph, x).recovers_every_context


@pytest.mark.parametrize("m, d_model, heads, key_dim, decorrelation", [
    (256, 64, 16, 8, "ridge"),  # D_K = 128
    (256, 64, 32, 3, "pinv"),  # 96
    (512, 256, 8, 12, "ridge"),  # 96
    (512, 256, 8, 9, "pinv"),  # 72
])
def test_small_budgets_recover_random_permutations(m, d_model, heads, key_dim, decorrelation):
    wins = sum(recovered(m, d_model, heads, key_dim, decorrelation, seed) for seed in range(5))
    assert wins >= 4


@pytest.mark.parametrize("graph", [
    regular_graph(128, 2, seed=0),
    random_graph(128, 256, seed=0),
    power_law_graph(128, 256, exponent=2.5, seed=0),
], ids=["regular", "random", "power-law"])
def test_graphs_that_are_no_permutations_are_recovered_below_one_direction_an_edge(graph):
    x = gaussian_embeddings(128, 64, seed=0, dtype=torch.float64)
    channel = block_channel(graph, x, heads=64, key_dim=3, seed=0, decorrelation="pinv")
    assert channel.total_key_dim < graph.num_edges
    assert certify(channel, graph, x).recovers_every_context


# One-hot embeddings


@pytest.mark.parametrize("m", [2, 3, 5, 16, 100, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_circle_has_the_margin_of_its_closed_form(m, dtype):
    graph, eye = permutation_graph(m, seed=m), one_hot_embeddings(m, dtype=dtype)
    channel = one_hot_channel(graph, key_dim=2, signatures="circle", dtype=dtype)
    certificate = certify(channel, graph, eye)
    exact = 1 - np.cos(2 * np.pi / m)
    # The weights are rounded too: a score moves by at most 2 units in 1 for each.
    slack = 2 * certificate.error_bound + 8 * torch.finfo(dtype).eps
    assert abs(certificate.margin - exact) <= slack
    assert channel.threshold == pytest.approx((1 + np.cos(2 * np.pi / m)) / 2)
    assert channel.recover(eye) == graph


def test_the_circle_stops_being_certified_in_float32_before_it_fails():
    graph, eye = permutation_graph(512, seed=0), one_hot_embeddings(512)
    channel = one_hot_channel(graph, key_dim=2, signatures="circle", dtype=torch.float32)
    assert not certify(channel, graph, eye).recovers_every_context
    assert channel.recover(eye) == graph


def test_a_single_vertex_is_recovered():
    loop = RelationalGraph(1, [(0, 0)])
    for how in (dict(key_dim=2, signatures="circle"), dict(key_dim=3, seed=0)):
        channel = one_hot_channel(loop, **how)
        assert channel.recover(one_hot_embeddings(1, dtype=torch.float64)) == loop


def test_random_signs_of_the_proved_length_have_margin_one_half():
    m, delta, draws = 16, 0.1, 200
    key_dim = int(np.ceil(8 * np.log(m**2 / (2 * delta))))
    eye, wins = one_hot_embeddings(m, dtype=torch.float64), 0
    for seed in range(draws):
        graph = permutation_graph(m, seed=seed)
        wins += certify(one_hot_channel(graph, key_dim=key_dim, seed=seed), graph, eye).margin >= 0.5
    assert binomtest(wins, draws).proportion_ci(0.998).low >= 1 - delta


@settings(deadline=None)
@given(graphs(most=6), st.integers(0, 99))
def test_one_hot_weights_are_shared_signatures(graph, seed):
    if graph.num_edges:
        channel = one_hot_channel(graph, key_dim=3, seed=seed)
        rows, keys = channel.query_weights[0], channel.key_weights[0]
        torch.testing.assert_close(rows.abs(), torch.full_like(rows, 3**-0.5))
        incidence = torch.from_numpy(graph.adjacency()).double()
        torch.testing.assert_close(keys, incidence.T @ rows)


X = gaussian_embeddings(3, 4, seed=0)
GRAPH = RelationalGraph(3, [(0, 1), (1, 2)])
TABLE = [  # rows that the annotations forbid are in test_bad_inputs.py
    (lambda: block_channel(GRAPH, X * float("nan"), heads=1), r"`embeddings` .* finite"),
    (lambda: block_channel(GRAPH, X[:2], heads=1), r"`graph` .* 2 vertices that have embeddings; got RelationalGraph"),
    (lambda: block_channel(RelationalGraph(3, []), X, heads=1), r"`graph` .* at least one edge"),
    (lambda: block_channel(GRAPH, X, heads=0), r"`heads` .* from 1 to 2; got 0"),
    (lambda: block_channel(GRAPH, X, heads=3), r"`heads` .* from 1 to 2; got 3"),
    (lambda: block_channel(GRAPH, X, heads=1, key_dim=0), r"`key_dim` .* at least 1; got 0"),
    (lambda: block_channel(GRAPH, X, heads=1, key_dim=True), r"`key_dim` .* got True"),
    (lambda: block_channel(GRAPH, X, heads=1, key_dim=1), r"`seed` .* below the block size .* got None"),
    (lambda: block_channel(GRAPH, X, heads=1, key_dim=1, seed=-1), r"`seed` .* at least 0; got -1"),
    (lambda: block_channel(GRAPH, X, heads=1, decorrelation="lasso"), r"`decorrelation` .* 'pinv'; got 'lasso'"),
    (lambda: block_channel(GRAPH, X, heads=1, signatures="circle"), r"`signatures` .* 'rademacher'; got 'circle'"),
    (lambda: one_hot_channel(RelationalGraph(3, []), key_dim=2, seed=0), r"`graph` .* at least one edge"),
    (lambda: one_hot_channel(GRAPH, key_dim=0, seed=0), r"`key_dim` .* at least 1; got 0"),
    (lambda: one_hot_channel(GRAPH, key_dim=2), r"`seed` .* got None"),
    (lambda: one_hot_channel(GRAPH, key_dim=3, signatures="circle"), r"`key_dim` .* 2 for .* got 3"),
    (lambda: one_hot_channel(GRAPH, key_dim=2, signatures="frame", seed=0), r"`signatures` .* 'circle'; got 'frame'"),
    (lambda: one_hot_channel(RelationalGraph(3, [(0, 1), (2, 1)]), key_dim=2, signatures="circle"), r"`graph` .* no key has two queries"),
    (lambda: one_hot_channel(GRAPH, key_dim=2, seed=0, dtype=torch.float16), r"`dtype` .* got torch.float16"),
    (lambda: one_hot_channel(GRAPH, key_dim=2, seed=0, dtype="float32"), r"`dtype` .* got float32"),
]


@pytest.mark.parametrize("call, message", TABLE, ids=[row[1] for row in TABLE])
def test_bad_input_is_refused_with_what_was_given_and_what_is_allowed(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert re.search(message, str(caught.value)), str(caught.value)
