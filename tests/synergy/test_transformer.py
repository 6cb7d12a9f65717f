"""The Transformer against a forward pass written by other means, and what it promises."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.synergy.transformer import Transformer, head_weights
from manyheads.synergy import HeadSystem

F64 = torch.float64


def small(heads=4, **changes):
    """Two layers of width 8, in float64, without dropout."""
    config = dict(vocabulary=10, length=7, layers=2, d_model=8, mlp_dim=12, dropout=0.0, seed=1)
    return Transformer(heads=heads, **config | changes).double()


def some_tokens(*shape, vocabulary=10, seed=0):
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def by_loops(state, heads, tokens):
    """Logits and attention of one sequence in NumPy, head by head and token by token."""
    state = {name: value.numpy() for name, value in state.items()}

    def linear(name, x):
        return state[f"{name}.weight"] @ x + state[f"{name}.bias"]

    def normalised(name, x):
        return x / math.sqrt(np.mean(x**2) + np.finfo(x.dtype).eps) * state[f"{name}.weight"]

    stream = [state["token_emb.weight"][token] + state["pos_emb.weight"][place]
              for place, token in enumerate(tokens)]
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("layers."))
    width = len(stream[0]) // heads
    seen = np.zeros((layers, heads, len(tokens), len(tokens)))
    for layer in range(layers):
        at = f"layers.{layer}"
        inside = [normalised(f"{at}.ln1", x) for x in stream]
        query, key, value = ([linear(f"{at}.attn.{part}", x) for x in inside]
                             for part in ("W_q", "W_k", "W_v"))
        for i in range(len(tokens)):
            read = np.zeros_like(stream[i])
            for a in range(heads):
                mine = slice(a * width, (a + 1) * width)
                scores = [query[i][mine] @ key[j][mine] / math.sqrt(width) for j in range(i + 1)]
                chances = np.exp(scores) / sum(np.exp(scores))
                seen[layer, a, i, :i + 1] = chances
                read[mine] = sum(c * value[j][mine] for j, c in enumerate(chances))
            stream[i] = stream[i] + linear(f"{at}.attn.out_proj", read)
            hidden = linear(f"{at}.mlp.0", normalised(f"{at}.ln2", stream[i]))
            stream[i] = stream[i] + linear(f"{at}.mlp.3", np.maximum(hidden, 0))
    return np.array([linear("out_proj", x) for x in stream]), seen


class TestForward:
    @pytest.mark.parametrize("heads", [1, 2, 8])
    def test_equals_loops(self, heads):
        model, tokens = small(heads), some_tokens(3, 7)
        logits, attention = model(tokens, return_attention=True)
        assert logits.shape == (3, 7, 10) and attention.shape == (2, 3, heads, 7, 7)
        for row in range(3):
            expected, seen = by_loops(model.state_dict(), heads, tokens[row].tolist())
            np.testing.assert_allclose(logits[row].detach(), expected, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(attention[:, row].detach(), seen,
                                       rtol=1e-10, atol=1e-12)

    def test_fast_attention_gives_the_same(self):
        model, tokens = small(), some_tokens(4, 7)
        torch.testing.assert_close(model(tokens), model(tokens, return_attention=True)[0])
        single = model.float()
        torch.testing.assert_close(single(tokens), single(tokens, return_attention=True)[0],
                                   rtol=1e-4, atol=1e-5)

    def test_one_sequence_needs_no_batch_axis(self):
        model, tokens = small(), some_tokens(2, 5)
        torch.testing.assert_close(model(tokens[0]), model(tokens)[0])
        torch.testing.assert_close(model.attention(tokens[0]), model.attention(tokens)[:, 0])
        assert model(tokens[0, :1]).shape == (1, 10)
        assert model.attention(tokens[0, :1]).shape == (2, 4, 1, 1)

    @given(st.integers(1, 6), st.integers(0, 9))
    def test_no_token_sees_a_later_one(self, place, token):
        model, tokens = small(), some_tokens(1, 7)
        changed = tokens.clone()
        changed[0, place] = token
        torch.testing.assert_close(model(tokens)[:, :place], model(changed)[:, :place])

    def test_attention_is_what_a_head_system_takes(self):
        layer = small().attention(some_tokens(3, 7))[1]
        assert HeadSystem.from_attention(layer.detach()).heads == 4

    def test_gradient_flows_through_the_attention(self):
        model = small()
        model.attention(some_tokens(1, 7))[0, 0, 0, -1, 0].backward()
        assert model.layers[0].attn.W_q.weight.grad.abs().sum() > 0


class TestParameters:
    def test_as_many_for_every_number_of_heads(self):
        models = [small(heads) for heads in (1, 2, 4, 8)]
        shapes = [{name: value.shape for name, value in model.state_dict().items()}
                  for model in models]
        assert all(shape == shapes[0] for shape in shapes)
        paper = [sum(p.numel() for p in Transformer(vocabulary=256, length=100, heads=heads)
                     .parameters()) for heads in (1, 4, 8, 16)]
        embeddings, ends = (256 + 100) * 64, 256 * 65
        block = 4 * (64 * 64 + 64) + (64 * 128 + 128) + (128 * 64 + 64) + 2 * 64
        assert paper == [embeddings + ends + 4 * block] * 4

    def test_seed_alone_decides_the_weights(self):
        torch.manual_seed(5)
        first = small(1).state_dict()
        torch.manual_seed(6)
        second, other = small(8).state_dict(), small(1, seed=2).state_dict()
        for name, value in first.items():
            assert torch.equal(value, second[name])
            assert "ln" in name or not torch.equal(value, other[name])

    def test_global_random_state_is_left_alone(self):
        before = torch.get_rng_state()
        small()(some_tokens(2, 7))
        assert torch.equal(before, torch.get_rng_state())


class TestDropout:
    def test_drops_the_stated_share_and_keeps_the_mean(self):
        torch.manual_seed(0)
        drop = Transformer(vocabulary=2, length=2, heads=1, dropout=0.3).layers[0].attn.dropout
        x = torch.ones(1000, 1001)
        dropped = drop(x)
        share = (dropped == 0).double().mean().item()
        assert abs(share - 0.3) < 5 * math.sqrt(0.21 / x.numel()) + 1 / 2**16
        kept = dropped[dropped > 0]
        assert abs(kept[0].item() * (1 - drop.probability) - 1) < 1e-6
        assert kept.eq(kept[0]).all()

    def test_in_training_only_and_never_in_the_attention_shown(self):
        model, tokens = small(dropout=0.5), some_tokens(2, 7)
        torch.manual_seed(0)
        assert not torch.equal(model(tokens), model(tokens))
        attention = model.attention(tokens)
        assert model.training
        torch.testing.assert_close(attention, small().attention(tokens))
        torch.testing.assert_close(model.eval()(tokens), small()(tokens))

    def test_mean_over_masks_of_a_linear_readout(self):
        """Attention with dropout is attention on average."""
        model = small(dropout=0.2, layers=1)
        attend, x = model.layers[0].attn, torch.randn(1, 7, 8, dtype=F64)
        torch.manual_seed(0)
        draws = torch.stack([attend(x, False)[0] for _ in range(4000)])
        error = draws.std(0) / math.sqrt(len(draws))
        off = (draws.mean(0) - attend.eval()(x, False)[0]).abs() / error.clamp(min=1e-12)
        assert off.max() < 5


class TestHeadWeights:
    def test_norms_of_column_slices(self):
        model = small(2)
        columns = model.layers[1].attn.out_proj.weight.detach().numpy()
        norms = np.array([np.linalg.norm(columns[:, :4]), np.linalg.norm(columns[:, 4:])])
        np.testing.assert_allclose(head_weights(model, 1), norms / norms.sum(), rtol=1e-12)
        assert not head_weights(model, 1).requires_grad

    def test_one_head_has_weight_one(self):
        assert head_weights(small(1), 0).tolist() == [1.0]


@pytest.mark.parametrize("changes, message", [
    (dict(vocabulary=0), "`vocabulary` must be a whole number at least 1"),
    (dict(length=2.0), "`length` must be a whole number"),
    (dict(heads=3), "`heads` must be a divisor of d_model = 8; got 3"),
    (dict(heads=0), "`heads` must be a whole number"),
    (dict(layers=True), "`layers` must be a whole number"),
    (dict(d_model="8"), "`d_model` must be a whole number"),
    (dict(mlp_dim=-1), "`mlp_dim` must be a whole number"),
    (dict(dropout=1.0), r"`dropout` must be a finite number in \[0, 0.99\]"),
    (dict(dropout=math.nan), "`dropout` must be a finite number"),
    (dict(seed=-1), "`seed` must be a whole number at least 0"),
])
def test_bad_input_to_the_constructor(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@pytest.mark.parametrize("tokens, message", [
    ([[1, 2]], "`tokens` must be a tensor of int64"),
    (torch.ones(1, 3), "`tokens` must be a tensor of int64 or int32 tokens; got a float32"),
    (torch.zeros(1, 8, dtype=torch.int64), "`tokens` must be of shape .* T from 1 to 7"),
    (torch.zeros(1, 1, 3, dtype=torch.int64), "`tokens` must be of shape"),
    (torch.zeros(0, 3, dtype=torch.int64), "`tokens` must be of shape"),
    (torch.zeros(2, 0, dtype=torch.int64), "`tokens` must be of shape"),
    (torch.tensor([[1, 10]]), "`tokens` must be from 0 to 9; got tokens from 1 to 10"),
    (torch.tensor([[-1, 2]]), "`tokens` must be from 0 to 9; got tokens from -1 to 2"),
])
@pytest.mark.parametrize("call", ["forward", "attention"])
def test_bad_input_tokens(call, tokens, message):
    with pytest.raises(ValueError, match=message):
        getattr(small(), call)(tokens)


def test_bad_input_to_the_rest():
    with pytest.raises(ValueError, match="`return_attention` must be True or False"):
        small()(some_tokens(1, 3), return_attention=1)
    with pytest.raises(ValueError, match="`layer` must be a whole number from 0 to 1; got 2"):
        head_weights(small(), 2)
    with pytest.raises(ValueError, match="`model` must be a Transformer"):
        head_weights(torch.nn.Linear(2, 2), 0)
