import math

import pytest
import torch
from safetensors.torch import save_file

from manyheads.capacity import (
    gaussian_embeddings,
    incoherence,
    one_hot_embeddings,
    pretrained_embeddings,
    rademacher_embeddings,
    token_embeddings,
    welch_bound,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [gaussian_embeddings, rademacher_embeddings])
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
