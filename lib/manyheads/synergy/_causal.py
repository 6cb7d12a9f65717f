"""What every matrix of the synergy part obeys: causal, non-negative, normalised.

Row i is the receiving node and column j the sending one, in causal order, so a
causal matrix is lower triangular. The checks read a tensor once, in bands of
rows that stay in cache, because an attention tensor is larger than any cache.
"""

import math

import torch
from torch import Tensor

from manyheads._checks import check_tensor, describe, refuse

BAND = 64

# How far from 1 a row or column may sum. The double-precision limit leaves room
# for a float32 softmax that was cast to float64.
SUM_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}


def row_bands(num_nodes: int, width: int = BAND) -> list[slice]:
    """The rows 0..num_nodes-1 in bands; two bands' worth of rows is left whole."""
    width = num_nodes if num_nodes <= 2 * width else width
    return [slice(at, min(at + width, num_nodes)) for at in range(0, num_nodes, width)]


def check_layout(argument: str, value, shape: str = "... n n") -> None:
    """Refuse `value` unless it is a float tensor of the named shape, square at the end."""
    check_tensor(argument, value, shape, finite=False)
    if value.shape[-2] != value.shape[-1]:
        refuse(argument, "square in its last two axes", value)


def check_band(argument: str, value: Tensor, band: slice, column_sums: Tensor) -> None:
    """Refuse `value` unless its rows in `band` are non-negative and causal.

    `column_sums` are those of these rows. Without one NaN or negative entry a zero
    sum means zeros everywhere, so the sums right of the band decide about it.
    """
    rows = value.detach()[..., band, :]
    if not (rows.amin().item() >= 0 and rows[..., band].triu(1).sum().item() == 0
            and column_sums.detach()[..., band.stop:].sum().item() == 0):
        _say_what_is_wrong(argument, value)


def check_causal(argument: str, value, shape: str = "... n n") -> tuple[Tensor, Tensor]:
    """The row sums and the column sums of `value`, each of shape (..., n).

    Refused unless `value` is a finite, non-negative, lower triangular float
    tensor of the named shape.
    """
    check_layout(argument, value, shape)
    row_sums, column_sums = [], value.new_zeros(value.shape[:-1])
    for band in row_bands(value.shape[-1]):
        rows = value[..., band, :]
        # A product with ones: torch's own sum over rows takes longer.
        down = (value.new_ones(1, rows.shape[-2]) @ rows).squeeze(-2)
        check_band(argument, value, band, down)
        column_sums = column_sums + down
        row_sums.append(rows.sum(-1))
    if not math.isfinite(column_sums.detach().sum().item()):
        _say_what_is_wrong(argument, value)
    return torch.cat(row_sums, -1), column_sums


def check_stochastic(argument: str, value, sums, axis: str, remedy: str) -> None:
    """Refuse `value` unless its `sums` along the `axis` ("row" or "column") are 1."""
    tolerance = SUM_TOLERANCE[value.dtype]
    least, most = sums.detach().aminmax()
    if not (least.item() >= 1 - tolerance and most.item() <= 1 + tolerance):
        if not math.isfinite(most.item()):
            _say_what_is_wrong(argument, value)
        off = (sums - 1).abs()
        where = torch.unravel_index(off.argmax(), off.shape)
        refuse(argument, f"stochastic, every {axis} summing to 1 within {tolerance:g} ({remedy})",
               f"{describe(value)} whose {axis} {_index(where)} sums to {sums[where].item():.6g}")


def _index(where) -> str:
    """An index as a reader would type it."""
    return ", ".join(str(int(axis)) for axis in where)


def _say_what_is_wrong(argument: str, value) -> None:
    """Raise the error for a tensor that `check_causal` found unclean."""
    for allowed, bad in (
        ("finite everywhere", ~torch.isfinite(value)),
        ("non-negative", value < 0),
        ("causal: lower triangular, row i receiving from columns j <= i only",
         value.triu(1) != 0),
    ):
        if bad.any():
            where = tuple(bad.nonzero()[0])
            refuse(argument, allowed, f"{describe(value)} with {value[where].item():.6g} at "
                                      f"[{_index(where)}]")
    refuse(argument, "small enough for its columns to be summed", value)
