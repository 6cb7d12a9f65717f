"""What a practitioner takes home: the measures of any model's attention, as a table."""

from collections.abc import Sequence

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_count, check_tensor, refuse
from manyheads.synergy.diffusion import node_fidelities
from manyheads.synergy.heads import HeadSystem
from manyheads.synergy.transformer import Transformer, head_weights
from manyheads.synergy.walks import expected_hitting_times, mixing_time

__all__ = ["attention_report"]

MIXTURE = "all"  # stands in the column `head` for the layer as a whole


def attention_report(model_or_attention, tokens=None, *, weights=None, mask=None,
                     horizon: int | None = None) -> pd.DataFrame:
    """How fast and how clearly every head, and every layer, delivers to the last token.

    Parameters
    ----------
    model_or_attention
        A `Transformer`, or causal attention: a tensor (layers, heads, T, T) or
        (layers, batch, heads, T, T), or a list of one (batch, heads, T, T) tensor
        a layer, as Hugging Face models return it
        (``model(ids, output_attentions=True).attentions``).
    tokens
        For a `Transformer`: whole numbers, shape (batch, T) or (T,).
    weights
        How much each head counts in its layer's mixture: shape (layers, heads),
        each row summing to 1. Default: those of `head_weights` for a
        `Transformer`, else all equal.
    mask
        Which tokens are real, shape (batch, T), 1 or True where they are; they
        must stand together, padding before or after them. Rows and columns of
        padding are left out, whatever is in them.
    horizon
        The last step at which signals are looked at. Default: as many as tokens.

    Returns
    -------
    DataFrame
        A row for every sequence, layer and head, and one with head "all" for the
        layer's mixture, 0-based, and the columns

        - ``weight``: of the head in the mixture,
        - ``slowest_start``, ``mean_start``: expected hitting time of the last
          token, in steps, from the slowest token and averaged over all,
        - ``mixing_time``: steps until the walk from the slowest start is within
          total variation 1/4 of the last token,
        - ``weakest_signal``, ``weakest_token``: minimax fidelity, and whose it is.

    Raises
    ------
    ValueError
        If the attention is not causal, has a NaN or a row that does not sum to 1
        outside padding (real tokens that attend to padding among them), or
        `tokens`, `weights`, `mask` or `horizon` do not fit it.

    Examples
    --------
    >>> uniform = torch.ones(3, 3).tril() / torch.tensor([[1.0], [2.0], [3.0]])
    >>> report = attention_report(uniform.expand(1, 2, 3, 3))  # one layer, two heads
    >>> report[["layer", "head", "mean_start", "weakest_signal"]].round(3)
       layer head  mean_start  weakest_signal
    0      0    0       2.067           0.333
    1      0    1       2.067           0.333
    2      0  all       2.067           0.333
    """
    if isinstance(model_or_attention, Transformer):
        model = model_or_attention
        layers = _layers(_attention_of(model, tokens))
        if weights is None:
            weights = [head_weights(model, layer) for layer in range(len(layers))]
    elif tokens is not None:
        refuse("tokens", "given for a Transformer only", tokens)
    else:
        layers = _layers(model_or_attention)
    weights = _check_weights(weights, layers)
    spans = _spans(mask, layers[0])
    nodes = layers[0].shape[-1]
    horizon = nodes if horizon is None else check_count("horizon", horizon)
    parts = []
    for first, stop in sorted(set(spans)):
        sequences = [row for row, span in enumerate(spans) if span == (first, stop)]
        for layer, attention in enumerate(layers):
            real = attention[sequences][..., first:stop, first:stop]
            measures = _measures(real, weights[layer], horizon, first)
            where = {"sequence": torch.tensor(sequences).repeat_interleave(real.shape[1] + 1),
                     "layer": layer,
                     "head": [*range(real.shape[1]), MIXTURE] * len(sequences)}
            parts.append(pd.DataFrame(where | measures))
    report = pd.concat(parts).sort_values(["sequence", "layer"], kind="stable")
    return report.reset_index(drop=True)


def _measures(attention: Float[Tensor, "batch heads n n"], weights: Tensor, horizon: int,
              first: int) -> dict:
    """The columns of the report for one layer, each of batch * (heads + 1) values."""
    system = HeadSystem.from_attention(attention, weights.to(attention))
    alone = HeadSystem.from_attention(attention.unsqueeze(-3))

    def both(method):  # (batch, heads + 1, n, n), the mixture last
        return torch.cat([getattr(alone, method)(), getattr(system, method)().unsqueeze(1)], 1)

    walk = both("walk_matrix")
    times = expected_hitting_times(walk)
    # One token is its own last one: it is there, and nothing can be weak.
    signals = node_fidelities(both("diffusion_matrix"), horizon)[..., :-1]
    least = signals.min(-1) if signals.shape[-1] else None
    shares = torch.cat([weights, weights.new_ones(1)]).expand(len(attention), -1)
    columns = {
        "weight": shares,
        "slowest_start": times.amax(-1),
        "mean_start": times.mean(-1),
        "mixing_time": mixing_time(walk),
        "weakest_signal": least.values if least else torch.ones_like(shares),
        "weakest_token": least.indices + first if least else torch.full_like(shares, first).long(),
    }
    return {name: values.detach().flatten().cpu().numpy() for name, values in columns.items()}


def _attention_of(model: Transformer, tokens) -> Tensor:
    if tokens is None:
        refuse("tokens", "given for a Transformer: whole numbers, (batch, T) or (T,)", "None")
    with torch.no_grad():
        return model.attention(tokens)


def _layers(attention) -> list[Tensor]:
    """The attention of each layer, every one (batch, heads, T, T)."""
    if isinstance(attention, Tensor):
        if attention.ndim not in (4, 5):
            refuse("model_or_attention", "a Transformer, or attention of shape (layers, heads, T, T) "
                   "or (layers, batch, heads, T, T)", attention)
        attention = attention.unsqueeze(1) if attention.ndim == 4 else attention
    elif not isinstance(attention, Sequence) or isinstance(attention, str) or not len(attention):
        refuse("model_or_attention", "a Transformer, a tensor, or a list of one tensor a layer",
               attention)
    for layer in attention:
        check_tensor("model_or_attention", layer, "batch heads T T", finite=False)
        if layer.shape != attention[0].shape:
            refuse("model_or_attention", f"of one shape in all layers, {tuple(attention[0].shape)}",
                   layer)
        if layer.shape[-1] != layer.shape[-2]:
            refuse("model_or_attention", "square in its last two axes", layer)
    return list(attention)


def _check_weights(weights, layers: list[Tensor]) -> list[Tensor]:
    """A tensor of head weights for each layer, float64."""
    heads = layers[0].shape[1]
    if weights is None:
        return [torch.full((heads,), 1 / heads, dtype=torch.float64)] * len(layers)
    try:
        rows = [torch.as_tensor(row).detach().cpu().double() for row in weights]
    except (TypeError, ValueError, RuntimeError):
        refuse("weights", f"numbers of shape ({len(layers)}, {heads})", weights)
    if len(rows) != len(layers) or any(row.shape != (heads,) for row in rows):
        given = f"{len(rows)} of shapes " + ", ".join(str(tuple(row.shape)) for row in rows)
        refuse("weights", f"one for each layer, of shape ({heads},), {len(layers)} in all", given)
    return rows


def _spans(mask, layer: Tensor) -> list[tuple[int, int]]:
    """Where the real tokens of each sequence begin and stop."""
    batch, nodes = layer.shape[0], layer.shape[-1]
    if mask is None:
        return [(0, nodes)] * batch
    mask = torch.as_tensor(mask)
    if mask.shape != (batch, nodes) or not ((mask == 0) | (mask == 1)).all():
        refuse("mask", f"0 or 1, of shape (batch, T) = ({batch}, {nodes})", mask)
    spans = []
    for sequence, row in enumerate(mask.bool().tolist()):
        real = [place for place, is_real in enumerate(row) if is_real]
        if not real or real[-1] - real[0] + 1 != len(real):
            refuse("mask", "of real tokens that stand together, at least one a sequence",
                   f"{''.join('1' if is_real else '0' for is_real in row)} for sequence {sequence}")
        spans.append((real[0], real[-1] + 1))
    return spans
