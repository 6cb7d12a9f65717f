"""Heads drawn as graphs: an arrow for each token read, none for oneself."""

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from manyheads.figures import PALETTE
from manyheads.synergy.drawing import draw_heads

TWO = torch.tensor([[[1.0, 0, 0], [0.9, 0.1, 0], [0.0, 0.3, 0.7]],
                    [[1.0, 0, 0], [0.0, 1.0, 0], [0.6, 0.1, 0.3]]])


def drawn(*arguments, **options):
    axis = Figure().add_subplot()
    draw_heads(axis, *arguments, **options)
    return axis


def test_arrows_go_from_the_token_read_to_its_reader():
    axis = drawn(TWO, least=0.2)
    ends = [tuple(int(end[0]) for end in arrow._posA_posB) for arrow in axis.patches]
    assert ends == [(0, 1), (1, 2), (0, 2)]
    widths = [arrow.get_linewidth() for arrow in axis.patches]
    assert widths == pytest.approx([2.7, 0.9, 1.8], rel=1e-6)
    assert [to_hex(arrow.get_edgecolor()) for arrow in axis.patches] == [
        PALETTE[0], PALETTE[0], PALETTE[1]]
    assert [text.get_text() for text in axis.texts] == ["0", "1", "2"]


def test_weights_of_a_mixture_scale_the_widths():
    axis = drawn(TWO, weights=[0.25, 0.75], least=0.2, tokens="abc", colours=["red", "blue"])
    widths = [arrow.get_linewidth() for arrow in axis.patches]
    assert widths == pytest.approx([3 * 0.9 / 3, 3 * 0.6], rel=1e-6)
    assert [text.get_text() for text in axis.texts] == ["a", "b", "c"]


def test_nothing_is_no_arrow():
    assert len(drawn(TWO, least=0.0).patches) == 4
    assert not drawn(torch.eye(3)[None]).patches


@pytest.mark.parametrize("arguments, options, message", [
    ((TWO.mT,), {}, "`attention` must be"),
    ((TWO[0],), {}, "`attention` must be of shape"),
    ((TWO,), dict(weights=[1.0, 1.0]), "`weights` must be stochastic"),
    ((TWO,), dict(tokens=["a"]), "`tokens` must be 3 labels, one a token; got 1"),
    ((TWO,), dict(least=2), "`least` must be a finite number"),
])
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        drawn(*arguments, **options)
