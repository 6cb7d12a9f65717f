import pytest
import torch
from torch.nn.functional import layer_norm

from manyheads.capacity import (
    READOUTS,
    RelationalGraph,
    Router,
    gaussian_embeddings,
    permutation_graph,
    sample_contexts_of_edges,
    train_router,
)
from manyheads.capacity.routing import LABEL_DIM, LABELS

GRAPH = permutation_graph(24, seed=0)
X = gaussian_embeddings(24, 16, seed=0)


def router(readout, heads=2, key_dim=4, x=X, seed=0):
    return Router(x, heads=heads, key_dim=key_dim, readout=readout, seed=seed)


def weights_of(model):
    return sum(weights.numel() for weights in model.parameters())


@pytest.mark.parametrize("readout", READOUTS)
def test_as_many_parameters_for_every_number_of_heads(readout):
    counts = {weights_of(router(readout, heads, 16 // heads)) for heads in (1, 2, 4, 8, 16)}
    width = 16 + (LABEL_DIM if readout == "block" else 0)
    rest = 2 * width**2 + 8 * width**2 + 4 * width if readout == "block" else 0
    assert counts == {2 * width * 16 + 2 + rest}


def test_contexts_are_different_edges_with_queries_first():
    context, labels = sample_contexts_of_edges(GRAPH, 7, 50, seed=0)
    assert context.shape == labels.shape == (50, 14)
    assert labels.min() >= 0 and labels.max() < LABELS
    edges = {tuple(edge) for edge in GRAPH.edges.tolist()}
    for row, of in zip(context.tolist(), labels.tolist(), strict=True):
        pairs = set(zip(row[:7], row[7:], strict=True))
        assert len(pairs) == 7 and pairs <= edges
        assert len(set(zip(row, of, strict=True))) == len(set(row)), "a vertex with two labels"
    everything, _ = sample_contexts_of_edges(GRAPH, 24, 3, seed=0)
    assert (everything.sort().values == torch.arange(24).repeat_interleave(2)).all()


def test_contexts_repeat_by_seed_and_use_every_edge():
    first, again, other = (sample_contexts_of_edges(GRAPH, 5, 40, seed=s) for s in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert set(first[0][:, :5].flatten().tolist()) == set(range(24))


def by_hand(model, context, labels, queries):
    """Each query's log-probabilities, with a loop for every sum."""
    x, out = model.embeddings, []
    if model.readout == "block":
        x = torch.cat([x[context], model.labels[labels]], dim=1)
    else:
        x = x[context]
    inside = layer_norm(x, x.shape[1:]) if model.readout == "block" else x
    for q in range(queries):
        found, label_chances = torch.zeros(x.shape[1]), torch.zeros(LABELS)
        routed = {"value": torch.zeros(LABEL_DIM), "vertex": torch.zeros(x.shape[1])}
        for head in range(len(model.query)):
            scores = torch.stack([(inside[q] @ model.query[head]) @ (token @ model.key[head])
                                  for token in inside])
            weights = (model.sharpness[0] * scores).softmax(0)
            for j, weight in enumerate(weights):
                share = weight / len(model.query)
                label_chances[labels[j]] += share
                routed["value"] += share * model.labels[labels[j]]
                routed["vertex"] += share * x[j]
                if model.readout == "block":
                    found += weight * (inside[j] @ model.value[head]) @ model.out[head]
        if model.readout == "attention":
            out.append(label_chances.clamp(min=1e-9).log())
            continue
        if model.readout == "block":
            stream = x[q] + found
            stream = stream + (layer_norm(stream, stream.shape) @ model.up).relu() @ model.down
            routed["block"] = stream[-LABEL_DIM:]
        among = model.embeddings if model.readout == "vertex" else model.labels
        out.append((model.sharpness[1] * among @ routed[model.readout]).log_softmax(0))
    return torch.stack(out)


@pytest.mark.parametrize("readout", READOUTS)
def test_forward_is_what_the_definition_says(readout):
    model = router(readout, heads=4)
    context, labels = sample_contexts_of_edges(GRAPH, 3, 2, seed=0)
    with torch.no_grad():
        batch = model(context, labels, 3)
        for one, row, of in zip(batch, context, labels, strict=True):
            torch.testing.assert_close(one, by_hand(model, row, of, 3), rtol=1e-4, atol=1e-5)
    assert batch.exp().sum(-1).allclose(torch.ones(2, 3), atol=1e-5)


@pytest.mark.parametrize("readout", READOUTS)
def test_one_head_that_knows_the_permutation_is_right(readout):
    """Weights by hand: orthogonal embeddings, the permutation as a bilinear form."""
    x = torch.eye(24)
    model = router(readout, heads=1, key_dim=24, x=x)
    with torch.no_grad():
        for side in (model.query, model.key):
            side.zero_()
        model.query[0, :24] = torch.from_numpy(GRAPH.adjacency()).to(x)
        model.key[0, :24] = torch.eye(24)
        model.sharpness[:] = 60
        if readout == "block":
            model.down.zero_()
    context, labels = sample_contexts_of_edges(GRAPH, 12, 20, seed=0)
    found = model(context, labels, 12).argmax(-1)
    assert (found == model.answers(context, labels, 12)).all()


@pytest.mark.parametrize("readout", READOUTS)
def test_the_answer_is_only_in_the_context(readout):
    """Without attention to tell tokens apart, no more than chance."""
    model = router(readout)
    with torch.no_grad():
        model.query.zero_()
    context, labels = sample_contexts_of_edges(GRAPH, 12, 50, seed=0)
    found = model(context, labels, 12).argmax(-1)
    assert (found == model.answers(context, labels, 12)).double().mean() < 0.25


@pytest.mark.parametrize("readout", READOUTS)
def test_training_stores_a_small_permutation(readout):
    routing = train_router(GRAPH, X, heads=2, key_dim=8, readout=readout, edges=12, steps=300,
                           seed=0, progress=False)
    assert routing.accuracy > 0.8
    assert routing.curve["step"].tolist() == list(range(300))
    assert routing.curve["loss"].iloc[-20:].mean() < 0.5 * routing.curve["loss"].iloc[0]


def test_the_seed_decides_and_frozen_is_frozen():
    first, again, other = (train_router(GRAPH, X, heads=2, key_dim=2, readout="block", edges=6,
                                        steps=5, seed=seed, progress=False) for seed in (0, 0, 1))
    assert torch.equal(first.model.key, again.model.key) and first.accuracy == again.accuracy
    assert not torch.equal(first.model.key, other.model.key)
    assert torch.equal(first.model.embeddings, X)
    assert {"embeddings", "labels"}.isdisjoint(dict(first.model.named_parameters()))


def test_the_dtype_is_that_of_the_embeddings():
    x = gaussian_embeddings(24, 16, seed=0, dtype=torch.float64)
    routing = train_router(GRAPH, x, heads=2, key_dim=2, readout="block", edges=6, steps=2,
                           seed=0, progress=False)
    assert all(weights.dtype == torch.float64 for weights in routing.model.parameters())


def test_progress_goes_to_stderr(capsys, monkeypatch):
    monkeypatch.setattr("manyheads.capacity.routing._REPORT_EVERY", 0)
    train_router(GRAPH, X, heads=1, key_dim=2, readout="value", edges=4, steps=2, seed=0)
    said = capsys.readouterr()
    assert said.err.startswith("step 1 of 2, loss") and not said.out


@pytest.mark.parametrize("change, message", [
    ({"graph": RelationalGraph(24, [(0, 1), (0, 2)])}, "graph` must be with at most one target"),
    ({"graph": permutation_graph(23, seed=0)}, "graph` must be on the 24 vertices"),
    ({"graph": GRAPH.edges}, "graph` must be a RelationalGraph"),
    ({"embeddings": X[0]}, "embeddings"),
    ({"heads": 3, "readout": "block"}, "heads` must be a divisor of d_model \\+ 16 = 32"),
    ({"heads": 0}, "heads"),
    ({"key_dim": 1.5}, "key_dim"),
    ({"readout": "mlp"}, "readout"),
    ({"edges": 25}, "edges"),
    ({"batch": 0}, "contexts"),
    ({"steps": 0}, "steps"),
    ({"seed": -1}, "seed"),
    ({"progress": 1}, "progress"),
])
def test_bad_input_is_refused(change, message):
    good = dict(graph=GRAPH, embeddings=X, heads=2, key_dim=2, readout="value", edges=4, steps=1,
                seed=0, progress=False)
    with pytest.raises(ValueError, match=message):
        train_router(**{**good, **change})


def test_bad_input_to_contexts_is_refused():
    for graph, edges, contexts in [(GRAPH.edges, 1, 1), (GRAPH, 0, 1), (GRAPH, 1, 0)]:
        with pytest.raises(ValueError):
            sample_contexts_of_edges(graph, edges, contexts, seed=0)
