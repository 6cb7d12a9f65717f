import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.capacity import (
    KeyQueryChannel,
    RelationalGraph,
    gaussian_embeddings,
    one_hot_embeddings,
    permutation_graph,
)
from manyheads.capacity import channel as module


def random_channel(heads, d_model, key_dim, *, seed=0, dtype=torch.float64, threshold=0.0):
    weights = torch.from_numpy(
        np.random.default_rng(seed).standard_normal((2, heads, d_model, key_dim))
    ).to(dtype)
    return KeyQueryChannel(weights[0], weights[1], threshold)


def test_sizes_have_the_names_of_the_field():
    channel = random_channel(3, 8, 2)
    assert (channel.heads, channel.d_model, channel.key_dim) == (3, 8, 2)
    assert channel.total_key_dim == 6
    assert channel.num_parameters == 2 * 8 * 6


def test_scores_are_the_definition():
    channel, embeddings = random_channel(3, 8, 2), gaussian_embeddings(7, 8, seed=0).double()
    scores = channel.scores(embeddings)
    for a in range(3):
        for i in range(7):
            for j in range(7):
                query = embeddings[i] @ channel.query_weights[a]
                key = embeddings[j] @ channel.key_weights[a]
                torch.testing.assert_close(scores[a, i, j], query @ key)
    torch.testing.assert_close(channel.scores(embeddings, rows=[5, 1]), scores[:, [5, 1]])


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 23), st.integers(1, 9), st.data())
def test_tiles_cover_every_pair_once_with_the_best_score(heads, key_dim, m, width, data):
    channel = random_channel(heads, 4, key_dim)
    embeddings = gaussian_embeddings(m, 4, seed=0).double()
    seen = torch.full((m, m), torch.nan, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:  # small tiles, so that several are needed
        patch.setattr(module, "_TILE_ROWS", data.draw(st.integers(1, 9)))
        patch.setattr(module, "_TILE_COLUMNS", width)
        patch.setattr(module, "_PROJECTED_ROWS", 2)
        for rows, columns, best in module.best_score_tiles(channel, embeddings):
            assert seen[rows, columns].isnan().all()
            seen[rows, columns] = best
    torch.testing.assert_close(seen, channel.scores(embeddings).amax(dim=0))


def test_a_written_down_head_recovers_its_graph_in_any_context():
    graph = permutation_graph(12, seed=5)
    eye = one_hot_embeddings(12)
    keys = torch.from_numpy(graph.adjacency().T.astype(np.float32))
    channel = KeyQueryChannel(eye[None], keys[None], threshold=0.5)
    assert channel.recover(eye) == graph
    for context in ([3], [4, 1, 9], list(range(11, -1, -1))):
        assert channel.recover(eye, context) == graph.restricted_to(context)


def test_recover_is_the_threshold_on_the_best_score():
    channel, embeddings = random_channel(2, 6, 3, threshold=0.7), gaussian_embeddings(9, 6, seed=1)
    embeddings = embeddings.double()
    reported = channel.scores(embeddings).amax(dim=0) > 0.7
    assert channel.recover(embeddings) == RelationalGraph(9, np.argwhere(reported.numpy()))


def test_attention_is_a_distribution_over_the_context():
    channel, embeddings = random_channel(2, 6, 3), gaussian_embeddings(9, 6, seed=1).double()
    attention = channel.attention(embeddings, [4, 0, 8], 2.0)
    assert attention.shape == (2, 3, 3)
    torch.testing.assert_close(attention.sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
    scores = channel.scores(embeddings)[:, [4, 0, 8]][:, :, [4, 0, 8]]
    torch.testing.assert_close(attention.log().diff(dim=-1), 2 * scores.diff(dim=-1))
    uniform = channel.attention(embeddings, [4, 0, 8], 0.0)
    torch.testing.assert_close(uniform, torch.full_like(uniform, 1 / 3))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000))
def test_scores_know_neither_the_gauge_nor_the_basis(seed):
    channel, embeddings = random_channel(2, 5, 3, seed=seed), gaussian_embeddings(6, 5, seed=0)
    embeddings = embeddings.double()
    rng = np.random.default_rng(seed)
    gauge = torch.from_numpy(np.linalg.qr(rng.standard_normal((3, 3)))[0]) * 1.7
    same = KeyQueryChannel(
        channel.query_weights @ gauge, channel.key_weights @ torch.linalg.inv(gauge).T, 0.0
    )
    torch.testing.assert_close(same.scores(embeddings), channel.scores(embeddings))
    turn = torch.from_numpy(np.linalg.qr(rng.standard_normal((5, 5)))[0])
    turned = KeyQueryChannel(turn.T @ channel.query_weights, turn.T @ channel.key_weights, 0.0)
    torch.testing.assert_close(turned.scores(embeddings @ turn), channel.scores(embeddings))


@pytest.mark.parametrize("context", [
    np.arange(12, dtype=np.uint8), np.arange(12)[::-1], np.arange(12, dtype=">i8"),
    torch.arange(12, dtype=torch.uint8),
], ids=["uint8", "reversed", "big-endian", "torch"])
def test_a_context_is_vertices_whatever_its_integers(context):
    graph, eye = permutation_graph(12, seed=5), one_hot_embeddings(12)
    keys = torch.from_numpy(graph.adjacency().T.astype(np.float32))
    channel = KeyQueryChannel(eye[None], keys[None], threshold=0.5)
    assert channel.recover(eye, context) == graph.restricted_to(context)
    assert channel.attention(eye, context, 1.0).shape == (1, 12, 12)
    assert channel.scores(eye, rows=context).shape == (1, 12, 12)
