"""Files of models: the published layout, our own, and what is refused."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from manyheads.synergy.checkpoints import (
    load_checkpoint, load_published_checkpoint, save_checkpoint,
)
from manyheads.synergy.transformer import Transformer, head_weights
from tests.synergy.test_transformer import by_loops, some_tokens

V, LENGTH, E, MLP, LAYERS = 11, 9, 8, 20, 3


def published(second=3, dtype=torch.float32):
    """A state dict of the published layout, written out name by name."""
    shapes = {"token_emb.weight": (V, E), "pos_emb.weight": (LENGTH, E),
              "out_proj.weight": (V, E), "out_proj.bias": (V,)}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        for part in ("W_q", "W_k", "W_v", "out_proj"):
            shapes |= {f"{at}attn.{part}.weight": (E, E), f"{at}attn.{part}.bias": (E,)}
        shapes |= {f"{at}ln1.weight": (E,), f"{at}ln2.weight": (E,),
                   f"{at}mlp.0.weight": (MLP, E), f"{at}mlp.0.bias": (MLP,),
                   f"{at}mlp.{second}.weight": (E, MLP), f"{at}mlp.{second}.bias": (E,)}
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)
            for name, shape in shapes.items()}


def saved(tmp_path, state, name="4_heads_copy.pt"):
    torch.save(state, tmp_path / name)
    return tmp_path / name


class TestPublished:
    @pytest.mark.parametrize("heads", [1, 4])
    @pytest.mark.parametrize("second", [2, 3])
    def test_equals_an_independent_forward_pass(self, tmp_path, heads, second):
        path = saved(tmp_path, published(second, torch.float64))
        model = load_published_checkpoint(path, heads=heads)
        assert not model.training and model.config == dict(
            vocabulary=V, length=LENGTH, heads=heads, layers=LAYERS, d_model=E, mlp_dim=MLP,
            dropout=0.1)
        tokens = some_tokens(LENGTH, vocabulary=V)
        logits, attention = by_loops(published(3, torch.float64), heads, tokens.tolist())
        np.testing.assert_allclose(model(tokens).detach(), logits, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(model.attention(tokens).detach(), attention,
                                   rtol=1e-9, atol=1e-12)

    def test_heads_from_the_name_and_precision_from_the_file(self, tmp_path):
        model = load_published_checkpoint(str(saved(tmp_path, published(), "2_heads_cycle.pt")))
        assert model.heads == 2 and model.pos_emb.weight.dtype == torch.float32
        assert head_weights(model, LAYERS - 1).shape == (2,)

    def test_an_ordered_dict_of_parameters_will_do(self, tmp_path):
        model = load_published_checkpoint(saved(tmp_path, published()))
        again = load_published_checkpoint(saved(tmp_path, model.state_dict(), "4_heads_again.pt"))
        tokens = some_tokens(2, 5, vocabulary=V)
        assert torch.equal(model(tokens), again(tokens))


def changed(**entries):
    """The published state dict with entries replaced; None takes one out; `__` is a dot."""
    state = published()
    for name, value in entries.items():
        name = name.replace("__", ".")
        if value is None:
            del state[name]
        else:
            state[name] = value
    return state


@pytest.mark.parametrize("state, message", [
    (changed(layers__1__ln2__weight=None),
     r"must be a Transformer's state dict of 46 tensors; got 4_heads_copy.pt without "
     r"layers.1.ln2.weight"),
    (changed(token_emb__weight=None), "with token_emb.weight; got 4_heads_copy.pt"),
    (changed(layers__0__mlp__0__weight=None), "with layers.0.mlp.0.weight"),
    (changed(extra=torch.ones(2)), "with, besides, extra"),
    (changed(layers__9__ln1__weight=torch.ones(E)), "without layers.3.*and .* more"),
    (changed(layers__99999999999__ln1__weight=torch.ones(E)), "without layers.3"),
    (changed(layers__1__attn__W_k__weight=torch.ones(E, E + 1)),
     r"`layers.1.attn.W_k.weight` must be of shape \(8, 8\).*; got a float32 tensor of "
     r"shape \(8, 9\)"),
    (changed(token_emb__weight=torch.ones(V)), "`token_emb.weight` must be of shape"),
    (changed(out_proj__bias=torch.ones(V).double()), "`out_proj.bias` must be torch.float32"),
    (changed(out_proj__bias=torch.ones(V, dtype=torch.int64)), "`out_proj.bias` must be a float32"),
    (changed(token_emb__weight=torch.ones(V, E, dtype=torch.int64)), "`token_emb.weight` must be"),
    (changed(out_proj__bias=torch.full((V,), math.nan)), "`out_proj.bias` must be finite"),
    (changed(out_proj__bias=torch.tensor(1.0)), r"`out_proj.bias` must be of shape \(11,\)"),
    ({}, "`path` must be a state dict"),
    ([torch.ones(2)], "`path` must be a state dict.*copy.pt, with .*list"),
    ({"epoch": 3}, "`path` must be a state dict.*with other entries"),
    ({1: torch.ones(2)}, "`path` must be a state dict"),
])
def test_bad_input_states(tmp_path, state, message):
    with pytest.raises(ValueError, match=message):
        load_published_checkpoint(saved(tmp_path, state), heads=4)


def test_bad_input_heads(tmp_path):
    path = saved(tmp_path, published(), "copy.pt")
    with pytest.raises(ValueError, match="`heads` must be given for a file whose name"):
        load_published_checkpoint(path)
    for heads, message in ((3, "divisor of d_model = 8"), (0, "whole num"), (2.0, "whole num")):
        with pytest.raises(ValueError, match=f"`heads` must be a.*{message}"):
            load_published_checkpoint(path, heads=heads)


class Attack:
    """Unpickling this would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_bad_input_code_is_not_run(tmp_path):
    mark = tmp_path / "ran"
    for name, write in (("4_heads_a.pt", torch.save),
                        ("4_heads_b.pt", lambda what, path: path.write_bytes(pickle.dumps(what)))):
        write({"token_emb.weight": Attack(mark)}, tmp_path / name)
        with pytest.raises(ValueError, match="`path` must be a file of tensors alone.*Unpickling"):
            load_published_checkpoint(tmp_path / name)
    torch.save(nn.Linear(2, 2), tmp_path / "4_heads_c.pt")  # a whole module needs code as well
    with pytest.raises(ValueError, match="`path` must be a file of tensors alone"):
        load_published_checkpoint(tmp_path / "4_heads_c.pt")
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut short"])
def test_bad_input_no_such_file(tmp_path, content):
    path = tmp_path / "4_heads_copy.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="`path` must be a file of tensors alone"):
        load_published_checkpoint(path)
    with pytest.raises(ValueError, match="`path` must be a safetensors file of this package"):
        load_checkpoint(path)
    for load in (load_published_checkpoint, load_checkpoint):
        for nothing in (tmp_path / "absent.pt", tmp_path, 3, None):
            with pytest.raises(ValueError, match="`path` must be the path of a checkpoint"):
                load(nothing)


def test_bad_input_cut_short(tmp_path):
    path = saved(tmp_path, published())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="`path` must be a file of tensors alone"):
        load_published_checkpoint(path)


class TestOwn:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_round_trip(self, tmp_path, dtype):
        model = Transformer(vocabulary=V, length=LENGTH, heads=2, layers=2, d_model=E, mlp_dim=MLP,
                            dropout=0.25, seed=3).to(dtype)
        save_checkpoint(model, tmp_path / "model.safetensors")
        again = load_checkpoint(tmp_path / "model.safetensors")
        assert again.config == model.config and not again.training
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name])
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]

    def test_a_failed_write_leaves_the_old_file(self, tmp_path):
        model = Transformer(vocabulary=V, length=LENGTH, heads=2, layers=1, d_model=E)
        folder = tmp_path / "model.safetensors"
        folder.mkdir()
        with pytest.raises(OSError):
            save_checkpoint(model, folder)
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_bad_input_to_own_files(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "other.safetensors"
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="the configuration of a Transformer; got other.*None"):
        load_checkpoint(path)
    save_file({"weight": torch.ones(2)}, path, metadata={"config": "not JSON"})
    with pytest.raises(ValueError, match="`path` must be a safetensors file of this package"):
        load_checkpoint(path)
    save_file({"weight": torch.ones(2)}, path, metadata={
        "config": '{"vocabulary": 3, "length": 2, "heads": 1, "layers": 1, "d_model": 4}'})
    with pytest.raises(ValueError, match="got other.safetensors without token_emb"):
        load_checkpoint(path)
    with pytest.raises(ValueError, match="`model` must be a Transformer"):
        save_checkpoint(nn.Linear(2, 2), path)
    with pytest.raises(ValueError, match="`path` must be a path; got 3"):
        save_checkpoint(Transformer(vocabulary=3, length=2, heads=1), 3)
