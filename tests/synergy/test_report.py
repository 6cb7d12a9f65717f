import re

import pytest
import torch

from manyheads.synergy import (
    HeadSystem, Transformer, attention_report, expected_hitting_times, head_weights,
    minimax_fidelity, mixing_time, node_fidelities,
)
from tests.synergy.examples import random_attention

ATTENTION = random_attention(2, 3, 4, 9, 9)  # (layers, batch, heads, T, T)
WEIGHTS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)


def test_a_row_is_what_the_functions_say():
    report = attention_report(ATTENTION, weights=WEIGHTS, horizon=12)
    assert len(report) == 2 * 3 * (4 + 1)
    assert report.columns.tolist() == ["sequence", "layer", "head", "weight", "slowest_start",
                                       "mean_start", "mixing_time", "weakest_signal",
                                       "weakest_token"]
    for _, row in report.iterrows():
        system = HeadSystem.from_attention(ATTENTION[row["layer"], row["sequence"]],
                                           WEIGHTS[row["layer"]])
        if row["head"] != "all":
            assert row["weight"] == WEIGHTS[row["layer"], row["head"]]
            system = system.head(row["head"])
        walk, diffusion = system.walk_matrix(), system.diffusion_matrix()
        times = expected_hitting_times(walk)
        assert row["slowest_start"] == pytest.approx(times.max().item())
        assert row["mean_start"] == pytest.approx(times.mean().item())
        assert row["mixing_time"] == mixing_time(walk).item()
        assert row["weakest_signal"] == pytest.approx(minimax_fidelity(diffusion, 12).item())
        assert row["weakest_token"] == node_fidelities(diffusion, 12)[:-1].argmin().item()


def test_lists_of_layers_and_single_sequences_are_read_too():
    whole = attention_report(ATTENTION)
    assert attention_report(list(ATTENTION)).equals(whole)
    assert attention_report(tuple(ATTENTION)).equals(whole)
    single = attention_report(ATTENTION[:, 1])
    assert single.drop(columns="sequence").equals(
        whole[whole["sequence"] == 1].drop(columns="sequence").reset_index(drop=True))
    assert len(attention_report(ATTENTION.float())) == len(whole)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_left_out_whatever_is_in_it(side):
    """Fully masked rows are NaN in some models, uniform over the future in others."""
    span = slice(3, 12) if side == "left" else slice(0, 9)
    padded = torch.full((2, 3, 4, 12, 12), torch.nan, dtype=torch.float64)
    padded[..., span, :] = 0
    padded[..., span, span] = ATTENTION
    mask = torch.zeros(3, 12, dtype=torch.long)
    mask[:, span] = 1
    report = attention_report(padded, mask=mask, horizon=9)
    clean = attention_report(ATTENTION, horizon=9)
    clean["weakest_token"] += span.start
    assert report.equals(clean) and not report.isna().any(axis=None)


def test_sequences_of_different_lengths_stay_in_order():
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[0, 5:] = 0
    report = attention_report(ATTENTION, mask=mask, horizon=9)
    short = attention_report(ATTENTION[:, :1, :, :5, :5], horizon=9)
    assert report["sequence"].is_monotonic_increasing
    assert report[report["sequence"] == 0].equals(short)


def test_one_token_is_there():
    report = attention_report(torch.ones(1, 2, 1, 1))
    assert (report["weakest_signal"] == 1).all() and (report["slowest_start"] == 0).all()


def test_a_head_that_never_arrives_is_infinitely_slow():
    report = attention_report(torch.eye(3).expand(1, 1, 3, 3))
    assert (report["slowest_start"] == torch.inf).all() and (report["weakest_signal"] == 0).all()


def test_a_transformer_is_read_with_its_own_weights():
    model = Transformer(vocabulary=11, length=9, heads=4, layers=2, d_model=16, mlp_dim=16, seed=0)
    tokens = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(0))
    report = attention_report(model, tokens)
    with torch.no_grad():
        attention = model.attention(tokens)
    weights = torch.stack([head_weights(model, layer) for layer in range(2)]).detach()
    assert report.equals(attention_report(attention, weights=weights))
    assert attention_report(model, tokens[0]).equals(attention_report(model, tokens[:1]))


def having(index, entry):
    attention = ATTENTION.clone()
    attention[index] = entry
    return attention


@pytest.mark.parametrize(("given", "message"), [
    ((ATTENTION.mT,), "causal: lower triangular"),
    ((2 * ATTENTION,), "every row summing to 1"),
    ((having((0, 0, 0, 3, 1), torch.nan),), "finite everywhere"),
    ((ATTENTION.half(),), "`model_or_attention` must be a float32 or float64"),
    ((ATTENTION[0, 0],), r"attention of shape \(layers, heads, T, T\)"),
    ((ATTENTION[..., :5],), "square in its last two axes"),
    (([],), "a list of one tensor a layer"),
    ((["x"],), "`model_or_attention` must be a float32 or float64"),
    (([ATTENTION[0], ATTENTION[0][:1]],), "of one shape in all layers"),
    ((3,), "a Transformer, a tensor, or a list"),
    ((ATTENTION, torch.zeros(3)), "`tokens` must be given for a Transformer only"),
])
def test_bad_input_is_named(given, message):
    with pytest.raises(ValueError) as error:
        attention_report(*given)
    assert re.search(message, str(error.value)), str(error.value)


@pytest.mark.parametrize(("given", "message"), [
    ({"weights": WEIGHTS[:1]}, "`weights` must be one for each layer"),
    ({"weights": "ab"}, "`weights` must be numbers of shape"),
    ({"weights": WEIGHTS * 2}, "`weights` must be"),
    ({"mask": torch.ones(3, 8)}, r"`mask` must be 0 or 1, of shape"),
    ({"mask": 2 * torch.ones(3, 9)}, "`mask` must be 0 or 1"),
    ({"mask": torch.tensor([[1, 0, 1, 1, 1, 1, 1, 1, 1]] * 3)}, "stand together.*101111111"),
    ({"mask": torch.zeros(3, 9)}, "stand together.*000000000 for sequence 0"),
    ({"horizon": 0}, "`horizon` must be .* got 0"),
])
def test_bad_input_beside_the_attention_is_named(given, message):
    with pytest.raises(ValueError) as error:
        attention_report(ATTENTION, **given)
    assert re.search(message, str(error.value)), str(error.value)


def test_bad_input_without_tokens_is_named():
    model = Transformer(vocabulary=4, length=4, heads=1, layers=1, d_model=4, mlp_dim=4, seed=0)
    with pytest.raises(ValueError, match="`tokens` must be given for a Transformer"):
        attention_report(model)
