import math
import re
from itertools import combinations

import pytest
import torch

from manyheads.capacity import (
    RelationalGraph,
    block_channel,
    certify,
    gaussian_embeddings,
    one_hot_embeddings,
    permutation_graph,
    regular_graph,
)
from manyheads.capacity.softmax import attention_with_sink, margin_and_spread, softmax_window


def example(m=8, d=6, heads=3, seed=0, graph=None):
    graph = permutation_graph(m, seed=seed) if graph is None else graph
    x = gaussian_embeddings(m, d, seed=seed, dtype=torch.float64)
    return block_channel(graph, x, heads=heads, decorrelation="ridge"), graph, x


def right_by_brute_force(channel, graph, x, size, beta):
    """Every key set of this size, every query, every head."""
    scores, related = channel.scores(x), torch.from_numpy(graph.adjacency())
    always = torch.ones(channel.heads, *related.shape, dtype=torch.bool)  # above 1/2 so far
    for keys in combinations(range(len(x)), size):
        above = (beta * scores[:, :, keys]).softmax(dim=-1) > 0.5
        if (above & ~related[:, keys]).any():
            return False
        always[:, :, keys] &= above
    return bool(always.any(dim=0)[related].all())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [3, 4, 6, 8])
def test_the_window_is_what_all_key_sets_allow(seed, size):
    channel, graph, x = example(d=(16, 96)[seed % 2], heads=2 + seed % 3, seed=seed)
    low, high = softmax_window(channel, graph, x, size=size)
    for beta in {b * f for b in (low, high) for f in (0.5, 0.999, 1.001, 2) if math.isfinite(b)}:
        right = right_by_brute_force(channel, graph, x, size, beta)
        assert right == (low < beta <= high), (beta, low, high)


def test_windows_of_some_of_these_are_open():
    channel, graph, x = example(d=96)
    low, high = softmax_window(channel, graph, x, size=4)
    assert 0 < low < high


@pytest.mark.parametrize("degree", [1, 2])
def test_margin_and_spread_by_brute_force(degree):
    channel, graph, x = example(m=9, graph=regular_graph(9, degree, seed=1))
    scores = channel.scores(x).tolist()
    related = graph.adjacency()
    gamma = min(
        max(row[i][j] - max(row[i][k] for k in range(9) if k != j) for row in scores)
        for i, j in graph.edges.tolist()
    )
    delta = max(
        max(row[i][k] for k in range(9) if not related[i, k]) - min(row[i])
        for row in scores for i in range(9)
    )
    assert margin_and_spread(channel, graph, x) == pytest.approx((gamma, delta), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_margin_and_spread_bound_the_window(seed):
    channel, graph, x = example(m=40, d=32, heads=8, seed=seed)
    gamma, delta = margin_and_spread(channel, graph, x)
    for size in (3, 10, 40):
        low, high = softmax_window(channel, graph, x, size=size)
        assert low <= math.log(size - 1) / gamma * (1 + 1e-9)
        assert high >= math.log(size - 1) / delta * (1 - 1e-9)


def test_chunks_do_not_matter(monkeypatch):
    channel, graph, x = example(m=30, d=20, heads=5, graph=regular_graph(30, 2, seed=0))

    def found():
        return *softmax_window(channel, graph, x, size=7), *margin_and_spread(channel, graph, x)

    whole = found()
    monkeypatch.setattr("manyheads.capacity.softmax._CHUNK", 5 * 30 * 7)
    assert found() == pytest.approx(whole, rel=1e-12)


def test_one_hot_embeddings_have_no_upper_end():
    x, graph = one_hot_embeddings(12, dtype=torch.float64), permutation_graph(12, seed=0)
    channel = block_channel(graph, x, heads=1)
    assert margin_and_spread(channel, graph, x) == (1, 0)
    low, high = softmax_window(channel, graph, x, size=5)
    assert low == pytest.approx(math.log(4)) and high == math.inf


def test_two_keys_leave_no_window():
    low, high = softmax_window(*example(d=24), size=2)
    assert low == high == 0


def test_two_targets_in_one_head_leave_no_window():
    x, graph = one_hot_embeddings(9, dtype=torch.float64), regular_graph(9, 2, seed=0)
    channel = block_channel(graph, x, heads=1)
    assert certify(channel, graph, x).margin == 1  # and yet
    assert softmax_window(channel, graph, x, size=4)[0] == math.inf


def test_a_vertex_related_to_all_has_no_unrelated_key():
    graph = RelationalGraph(3, [(0, 0), (0, 1), (0, 2), (1, 2)])
    channel = block_channel(graph, one_hot_embeddings(3), heads=4)
    gamma, delta = margin_and_spread(channel, graph, one_hot_embeddings(3))
    assert (gamma, delta) == (1, 0)


@pytest.mark.parametrize("beta", [0.01, 1.0, 30.0])
def test_outweighing_the_sink_is_being_above_the_threshold(beta):
    channel, _, x = example(m=20, d=10, heads=4, seed=2)
    context = [3, 19, 0, 7, 11, 4]
    weights = attention_with_sink(channel, x, context, beta)
    assert weights.shape == (4, 6, 7)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, 6, dtype=x.dtype))
    reported = (weights[..., :-1] > weights[..., -1:]).any(dim=0)
    expected = torch.from_numpy(channel.recover(x, context).adjacency())
    assert torch.equal(reported, expected) and expected.any() and not expected.all()
    # Without the sink's share it is plain attention.
    plain = weights[..., :-1] / weights[..., :-1].sum(dim=-1, keepdim=True)
    torch.testing.assert_close(plain, channel.attention(x, context, beta))


CHANNEL, GRAPH, X = example()
TABLE = [
    (lambda: softmax_window(CHANNEL, GRAPH, X, size=1), r"`size` .* from 2 to 8; got 1"),
    (lambda: softmax_window(CHANNEL, GRAPH, X, size=9), r"`size` .* from 2 to 8; got 9"),
    (lambda: softmax_window(CHANNEL, GRAPH, X.float(), size=3), r"`embeddings` .* float64"),
    (lambda: margin_and_spread(CHANNEL, RelationalGraph(8, []), X), r"`graph` .* num_edges=0"),
    (lambda: attention_with_sink(CHANNEL, X, [], 1.0), r"`context` .* non-empty"),
    (lambda: attention_with_sink(CHANNEL, X, [0], -1.0), r"`inverse_temperature` .* got -1.0"),
    (lambda: attention_with_sink(CHANNEL, X[:, :2], [0], 1.0), r"`embeddings` .* d_model = 6"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(message.replace(" .* ", ".*"), str(error.value)), str(error.value)
