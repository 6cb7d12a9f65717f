import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from manyheads.capacity import (
    KeyQueryChannel,
    block_channel,
    certify,
    gaussian_embeddings,
    incoherence,
    one_hot_embeddings,
    permutation_graph,
    pretrained_embeddings,
    rademacher_embeddings,
    token_embeddings,
    welch_bound,
)
from manyheads.capacity.embeddings import (
    centered,
    correlated_embeddings,
    effective_dimension,
    interference,
    sparse_embeddings,
    whitened,
    whitening,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [
    gaussian_embeddings,
    rademacher_embeddings,
    partial(sparse_embeddings, nonzeros=5),
    partial(correlated_embeddings, strength=0.3),
])
def test_rows_are_unit_vectors_and_repeat_for_a_seed(make, dtype):
    embeddings = make(50, 24, seed=1, dtype=dtype)
    assert embeddings.shape == (50, 24) and embeddings.dtype == dtype
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(50, dtype=dtype))
    assert torch.equal(embeddings, make(50, 24, seed=1, dtype=dtype))
    assert not torch.equal(embeddings, make(50, 24, seed=2, dtype=dtype))


def test_gaussian_cosines_have_the_variance_of_the_sphere():
    embeddings = gaussian_embeddings(400, 16, seed=0, dtype=torch.float64)
    cosines = (embeddings @ embeddings.T)[~torch.eye(400, dtype=bool)]
    # Var cos = 1/d; 79800 nearly independent pairs put the estimate within 3 %.
    assert cosines.square().mean().item() == pytest.approx(1 / 16, rel=0.03)


def test_rademacher_entries_are_signs():
    assert set(rademacher_embeddings(9, 16, seed=0).unique().tolist()) == {-0.25, 0.25}


def test_incoherence_of_known_systems():
    assert incoherence(one_hot_embeddings(5)) == 0
    angles = torch.arange(3, dtype=torch.float64) * 2 * math.pi / 3
    mercedes = torch.stack([angles.cos(), angles.sin()], dim=1)
    assert incoherence(mercedes) == pytest.approx(0.5)
    assert welch_bound(3, 2) == pytest.approx(0.5)  # which those three vectors attain
    assert incoherence(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])) == 1


def test_incoherence_looks_across_row_blocks():
    embeddings = gaussian_embeddings(2500, 64, seed=0)
    embeddings[2400] = -embeddings[3]
    assert incoherence(embeddings) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("m", "d"), [(20, 4), (64, 16), (300, 32), (8, 8)])
def test_no_embeddings_beat_the_welch_bound(m, d):
    for seed in range(5):
        assert incoherence(gaussian_embeddings(m, d, seed=seed)) >= welch_bound(m, d)


def test_token_embeddings_are_words_with_meanings():
    paris, rome, banana = token_embeddings(["paris", "rome", "banana"])
    assert paris @ rome > paris @ banana


def test_pretrained_tokens_are_distinct_unit_rows():
    embeddings = pretrained_embeddings("minilm", 200, seed=0)
    assert embeddings.shape == (200, 384)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(200))
    assert incoherence(embeddings) < 1 - 1e-6
    assert torch.equal(embeddings, pretrained_embeddings("minilm", 200, seed=0))


def test_pretrained_from_a_local_file(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"wte": torch.eye(6) * 3}, path)
    embeddings = pretrained_embeddings(path, 6, seed=0, tensor="wte")
    assert sorted(embeddings.argmax(dim=1).tolist()) == list(range(6))
    assert torch.equal(embeddings.norm(dim=1), torch.ones(6))


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"wte": torch.eye(6)}, path)
    with pytest.raises(ValueError, match="`names` must be tensors of model.safetensors.*'?wpe"):
        pretrained_embeddings(path, 6, seed=0, tensor="wpe")
    (tmp_path / "pickle.pt").write_bytes(b"\x80\x04not a tensor file")
    with pytest.raises(ValueError, match="safetensors file; got pickle.pt, which is not one"):
        pretrained_embeddings(tmp_path / "pickle.pt", 6, seed=0, tensor="wte")


def test_sparse_rows_have_their_non_zeros_at_fair_places():
    embeddings = sparse_embeddings(2000, 12, nonzeros=3, seed=0, dtype=torch.float64)
    assert torch.equal((embeddings != 0).sum(dim=1), torch.full((2000,), 3))
    sizes = embeddings[embeddings != 0].abs()
    torch.testing.assert_close(sizes, torch.full_like(sizes, 3**-0.5))
    # 500 expected a place, with standard deviation 19; the signs are fair.
    assert ((embeddings != 0).sum(dim=0) - 500).abs().max() < 90
    assert abs((embeddings > 0).sum().item() - 3000) < 160


def test_correlated_rows_share_one_direction():
    embeddings = correlated_embeddings(500, 40, strength=0.7, seed=0, dtype=torch.float64)
    cosines = (embeddings @ embeddings.T)[~torch.eye(500, dtype=bool)]
    # Standard deviation of a cosine: 0.3 / sqrt(39), of their mean far less.
    assert cosines.mean().item() == pytest.approx(0.7, abs=2e-3)
    assert cosines.std().item() == pytest.approx(0.3 / 39**0.5, rel=0.05)
    own = correlated_embeddings(9, 6, strength=0.0, seed=1)
    assert torch.equal(own[:, 1:], gaussian_embeddings(9, 5, seed=1)) and not own[:, 0].any()


def test_centering_removes_a_shared_direction():
    embeddings = correlated_embeddings(400, 20, strength=0.9, seed=0, dtype=torch.float64)
    assert effective_dimension(embeddings) == pytest.approx(1 / 0.81, rel=0.01)
    assert centered(embeddings).mean(dim=0).norm() < 0.02
    left = 1 / (1 / 19 + 1 / 400)  # of 400 random rows in 19 dimensions
    assert effective_dimension(centered(embeddings)) == pytest.approx(left, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whitening_makes_the_second_moment_isotropic(dtype):
    stretch = torch.linspace(1, 20, 24, dtype=dtype)
    embeddings = gaussian_embeddings(300, 24, seed=0, dtype=dtype) * stretch
    rows = embeddings @ whitening(embeddings)
    torch.testing.assert_close(rows.T @ rows / 300, torch.eye(24, dtype=dtype) / 24,
                               rtol=0, atol=1e-4)
    assert effective_dimension(embeddings) < 16 < effective_dimension(whitened(embeddings))
    torch.testing.assert_close(whitened(embeddings).norm(dim=1), torch.ones(300, dtype=dtype))


def test_whitening_keeps_to_the_span():
    low = gaussian_embeddings(50, 8, seed=0, dtype=torch.float64)
    basis = gaussian_embeddings(8, 30, seed=1, dtype=torch.float64)  # 8 of 30 dimensions
    rows = (low @ basis) @ whitening(low @ basis)
    assert rows.square().sum(dim=1).mean().item() == pytest.approx(1)
    spectrum = torch.linalg.eigvalsh(rows.T @ rows / 50)
    torch.testing.assert_close(spectrum[22:], torch.full((8,), 1 / 8, dtype=torch.float64))
    assert spectrum[:22].abs().max() < 1e-9


def test_as_many_dimensions_as_vertices_are_whitened_to_orthonormal():
    assert incoherence(whitened(gaussian_embeddings(12, 12, seed=0, dtype=torch.float64))) < 1e-6


def test_effective_dimension_lies_between_one_and_d_model():
    assert effective_dimension(one_hot_embeddings(7)) == pytest.approx(7)
    assert effective_dimension(torch.ones(5, 3)) == pytest.approx(1)
    embeddings = gaussian_embeddings(40, 10, seed=0, dtype=torch.float64)
    by_pairs = 1 / (embeddings @ embeddings.T).square().mean().item()
    assert effective_dimension(3 * embeddings) == pytest.approx(by_pairs)
    assert by_pairs < 10


def test_interference_by_hand():
    embeddings = gaussian_embeddings(9, 4, seed=0, dtype=torch.float64)
    block = [3, 5, 3]  # a vertex twice
    found = interference(embeddings, block)
    for i in range(9):
        for e, k in enumerate(block):
            expected = 0 if i == k else embeddings[i] @ embeddings[k]
            assert found[i, e].item() == pytest.approx(float(expected))
    assert not interference(one_hot_embeddings(5), np.arange(5)).any()


@pytest.mark.parametrize("decorrelation", ["none", "ridge", "pinv"])
def test_interference_bounds_every_score(decorrelation):
    """The theorem of the chapter on embeddings, pair by pair."""
    m, heads = 60, 5
    graph = permutation_graph(m, seed=0)
    x = correlated_embeddings(m, 24, strength=0.2, seed=0, dtype=torch.float64)
    channel = block_channel(graph, x, heads=heads, decorrelation=decorrelation)
    for head, block in enumerate(np.array_split(graph.edges, heads)):
        sources, targets = (
            interference(x, block[:, side], weights[head].T)
            for side, weights in enumerate((channel.query_weights, channel.key_weights))
        )
        energy = (sources.norm(dim=1)[:, None] * targets.norm(dim=1)).numpy()
        leak = np.zeros((m, m))
        leak[block[:, 0]] += targets.T.abs().numpy()  # a source meets every key
        leak[:, block[:, 1]] += sources.abs().numpy()
        wanted = np.zeros((m, m))
        wanted[tuple(block.T)] = 1
        error = np.abs(channel.scores(x)[head].numpy() - wanted)
        assert (error <= energy + leak + 1e-12).all()


def test_whitening_can_be_written_into_the_weights():
    graph = permutation_graph(40, seed=0)
    x = correlated_embeddings(40, 16, strength=0.5, seed=0, dtype=torch.float64)
    turn = whitening(x)
    channel = block_channel(graph, x @ turn, heads=8)
    inside = KeyQueryChannel(turn @ channel.query_weights, turn @ channel.key_weights, 0.5)
    torch.testing.assert_close(inside.scores(x), channel.scores(x @ turn))
    margins = (certify(inside, graph, x).margin, certify(channel, graph, x @ turn).margin)
    assert margins[0] == pytest.approx(margins[1])


EYE = torch.eye(3)
TABLE = [
    (lambda: sparse_embeddings(3, 4, nonzeros=5, seed=0), r"`nonzeros` .* from 1 to 4; got 5"),
    (lambda: sparse_embeddings(3, 4, nonzeros=0, seed=0), r"`nonzeros` .* got 0"),
    (lambda: correlated_embeddings(3, 4, strength=1.0, seed=0), r"`strength` .* got 1.0"),
    (lambda: correlated_embeddings(3, 4, strength=-0.1, seed=0), r"`strength` .* got -0.1"),
    (lambda: correlated_embeddings(3, 1, strength=0.5, seed=0), r"`d_model` .* at least 2; got 1"),
    (lambda: centered(torch.ones(3, 2)), r"`embeddings` .* zero rows"),
    (lambda: whitening(EYE * 0), r"`embeddings` .* not zero; got .* \(3, 3\)"),
    (lambda: whitened(EYE * float("nan")), r"`embeddings` .* finite"),
    (lambda: effective_dimension(EYE * 0), r"`embeddings` .* zero rows"),
    (lambda: interference(EYE, []), r"`block` .* non-empty"),
    (lambda: interference(EYE, [0.5]), r"`block` .* sequence of whole numbers"),
    (lambda: interference(EYE, [0, 3]), r"`block` .* 0..2; got vertex 3"),
    (lambda: interference(EYE, [0], EYE), r"`vectors` .* \(1, 3\); got .* \(3, 3\)"),
    (lambda: interference(EYE, [0], EYE[:1].double()), r"`vectors` .* got torch.float64"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(message.replace(" .* ", ".*"), str(error.value)), str(error.value)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_lengths_neither_overflow_nor_vanish(size):
    rows = torch.full((3, 4), size)
    rows[1] *= -1
    assert incoherence(rows) == pytest.approx(1)


def test_a_block_is_vertices_whatever_its_integers():
    x = gaussian_embeddings(6, 4, seed=0)
    block = np.array([5, 0, 5], dtype=np.uint8)
    assert torch.equal(interference(x, block), interference(x, [5, 0, 5]))
