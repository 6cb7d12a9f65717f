import pytest
import torch
from hypothesis import given, settings

from manyheads.capacity import (
    block_channel,
    certify,
    gaussian_embeddings,
    one_hot_embeddings,
    permutation_graph,
)
from tests.capacity.test_graphs import graphs


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
