import re

import pytest
import torch

from manyheads.capacity import (
    RelationalGraph,
    certify,
    gaussian_embeddings,
    permutation_graph,
    regular_graph,
)
from manyheads.capacity.learning import train_channel

GRAPHS = [permutation_graph(32, seed=seed) for seed in range(3)]
X = torch.stack([gaussian_embeddings(32, 16, seed=seed) for seed in range(3)])


def test_trained_channels_are_certified():
    training = train_channel(GRAPHS, X, heads=2, key_dim=6, steps=400, seed=0)
    for graph, embeddings, channel, certificate in zip(
        GRAPHS, X, training.channels, training.certificates, strict=True
    ):
        assert (channel.heads, channel.key_dim) == (2, 6)
        assert certify(channel, graph, embeddings) == certificate
        assert certificate.recovers_every_context and certificate.f1 == 1
        assert channel.recover(embeddings) == graph
    assert training.curve["step"].max() < 400, "did not stop when all were certified"


def test_a_run_is_the_same_in_company_and_alone():
    together = train_channel(GRAPHS, X, heads=2, key_dim=2, steps=30, seed=5)
    for run, graph in enumerate(GRAPHS):
        alone = train_channel([graph], X[run], heads=2, key_dim=2, steps=30, seed=5 + run)
        torch.testing.assert_close(
            alone.channels[0].query_weights, together.channels[run].query_weights,
            rtol=1e-3, atol=1e-3,
        )


def test_graphs_may_come_from_a_generator():
    training = train_channel((g for g in GRAPHS), X, heads=1, key_dim=2, steps=2, seed=0)
    assert len(training.channels) == len(training.certificates) == 3


def test_the_seed_decides_and_the_best_is_kept():
    first, again = (train_channel(GRAPHS[:1], X[0], heads=1, key_dim=3, steps=50, seed=1)
                    for _ in range(2))
    assert torch.equal(first.channels[0].key_weights, again.channels[0].key_weights)
    other = train_channel(GRAPHS[:1], X[0], heads=1, key_dim=3, steps=50, seed=2)
    assert not torch.equal(first.channels[0].key_weights, other.channels[0].key_weights)
    best = first.curve["margin"].max()
    assert first.certificates[0].margin == pytest.approx(best, abs=1e-4)


def test_graphs_with_several_keys_a_query_are_learnt_in_float64():
    graph = regular_graph(24, 3, seed=0)
    x = gaussian_embeddings(24, 16, seed=0, dtype=torch.float64)
    training = train_channel([graph], x, heads=3, key_dim=8, steps=600, seed=0)
    assert training.channels[0].query_weights.dtype == torch.float64
    assert training.certificates[0].recovers_every_context


FULL = RelationalGraph(2, [(0, 0), (0, 1)])


@pytest.mark.parametrize(("change", "message"), [
    ({"graphs": []}, "`graphs` must be a non-empty list"),
    ({"graphs": ["graph"]}, "`graphs` must be a non-empty list of RelationalGraph"),
    ({"graphs": [permutation_graph(5, seed=0)]}, "on the 32 vertices.*num_vertices=5"),
    ({"graphs": [RelationalGraph(32, [])]}, "with an edge.* num_edges=0"),
    ({"graphs": [FULL], "embeddings": torch.eye(2)}, "no query related to every key"),
    ({"embeddings": X[:2]}, r"`embeddings` must be .*3, m, d_model.* \(2, 32, 16\)"),
    ({"embeddings": X.int()}, "`embeddings` must be a float32 or float64"),
    ({"heads": 0}, "`heads` .* got 0"),
    ({"key_dim": 1.5}, "`key_dim` .* got 1.5"),
    ({"steps": 0}, "`steps` .* got 0"),
    ({"seed": -1}, "`seed` .* got -1"),
])
def test_bad_input_is_named(change, message):
    good = {"graphs": GRAPHS, "embeddings": X, "heads": 1, "key_dim": 2, "steps": 5, "seed": 0}
    given = good | change
    with pytest.raises(ValueError) as error:
        train_channel(given.pop("graphs"), given.pop("embeddings"), **given)
    assert re.search(message, str(error.value)), str(error.value)
