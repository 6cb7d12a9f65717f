import re
from dataclasses import replace

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
    first, again = (train_channel(GRAPHS[:1], X[0], heads=1, key_dim=8, steps=400, seed=1)
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


@pytest.mark.parametrize("objective", ["margin", "threshold", "softmax"])
def test_every_objective_lowers_its_loss_and_finds_rows(objective):
    training = train_channel(GRAPHS, X, heads=2, key_dim=8, steps=300, seed=0, objective=objective)
    for _, run in training.curve.groupby("run"):
        assert run["loss"].iloc[-1] < 0.5 * run["loss"].iloc[0]
    assert min(training.row_recovery) > 0.9
    for graph, embeddings, channel, found in zip(
        GRAPHS, X, training.channels, training.certificates, strict=True
    ):
        assert certify(channel, graph, embeddings) == found


def test_softmax_stops_when_all_rows_are_recovered():
    training = train_channel(GRAPHS, X, heads=2, key_dim=8, steps=300, seed=0, objective="softmax")
    assert training.curve["step"].max() < 300
    for graph, embeddings, channel, rows in zip(
        GRAPHS, X, training.channels, training.row_recovery, strict=True
    ):
        best = channel.scores(embeddings).amax(0).argmax(1)
        assert rows == 1 and best[graph.edges[:, 0].copy()].tolist() == graph.edges[:, 1].tolist()


def test_the_threshold_is_the_one_of_the_best_f1():
    training = train_channel(GRAPHS[:1], X[0], heads=1, key_dim=2, steps=100, seed=0)
    channel, found = training.channels[0], training.certificates[0]
    assert found.margin < 0 and 0 < found.f1 < 1
    for other in torch.linspace(-5, 10, 301).tolist():
        assert certify(replace(channel, threshold=other), GRAPHS[0], X[0]).f1 <= found.f1 + 1e-12


def test_a_failing_run_keeps_the_weights_with_most_rows():
    training = train_channel(GRAPHS[:1], X[0], heads=1, key_dim=3, steps=100, seed=0)
    assert training.row_recovery[0] == training.curve["rows"].max()


def test_training_needs_no_gradient_mode():
    with torch.no_grad():
        training = train_channel(GRAPHS[:1], X[0], heads=1, key_dim=2, steps=20, seed=0)
    assert training.curve["loss"].iloc[-1] < training.curve["loss"].iloc[0]


def test_seeds_may_be_given_run_by_run():
    both = train_channel(GRAPHS[:2], X[:2], heads=1, key_dim=2, steps=20, seed=[4, 9])
    one = train_channel(GRAPHS[1:2], X[1], heads=1, key_dim=2, steps=20, seed=9)
    torch.testing.assert_close(both.channels[1].key_weights, one.channels[0].key_weights,
                               rtol=1e-3, atol=1e-3)


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
    ({"seed": [1, 2]}, "`seed` must be a whole number, or 3 of them"),
    ({"seed": [1, 2, -3]}, "`seed` .* got -3"),
    ({"objective": "hinge"}, "`objective` must be .* got 'hinge'"),
])
def test_bad_input_is_named(change, message):
    good = {"graphs": GRAPHS, "embeddings": X, "heads": 1, "key_dim": 2, "steps": 5, "seed": 0}
    given = good | change
    with pytest.raises(ValueError) as error:
        train_channel(given.pop("graphs"), given.pop("embeddings"), **given)
    assert re.search(message, str(error.value)), str(error.value)
