"""Heads drawn as graphs on the tokens of a sequence."""

__all__ = ["draw_heads"]

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from torch import Tensor

from manyheads._checks import check_number, refuse
from manyheads.figures import INK, PALETTE
from manyheads.synergy.heads import HeadSystem

_WIDEST = 3.0  # points, of an arrow with all of a token's attention


def draw_heads(axis: Axes, attention: Float[Tensor, "heads n n"], *, weights=None, tokens=None,
               least: float = 0.2, colours=PALETTE) -> None:
    """Draw tokens in a row, and above them an arrow for each token that another reads.

    An arrow goes the way information does, from the token that is read to its reader; it
    is as wide as the share of the reader's attention, in the colour of the head, and
    higher heads bend it more. What a token reads of itself is not drawn.

    Parameters
    ----------
    axis : matplotlib Axes
    attention : (heads, n, n) tensor
        Causal, rows summing to 1.
    weights : list or (heads,) tensor, optional
        Of the heads in a mixture. Shares are multiplied by them, and widths by them
        relative to the largest. Default: as many ones.
    tokens : list, optional
        The labels, as many as tokens. Default: their places, from 0.
    least : float
        Arrows below this share of a reader's attention (in the mixture) are left out.
    colours : list
        Of the heads, repeated as need be.

    Raises
    ------
    ValueError
        If an argument is not as described.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> axis = Figure().add_subplot()
    >>> draw_heads(axis, torch.tensor([[[1.0, 0.0], [0.9, 0.1]]]), tokens=["to", "be"])
    >>> len(axis.patches), [text.get_text() for text in axis.texts]
    (1, ['to', 'be'])
    """
    system = HeadSystem.from_attention(attention, weights)
    check_number("least", least, least=0, most=1)
    nodes = system.num_nodes
    labels = list(range(nodes)) if tokens is None else list(tokens)
    if len(labels) != nodes:
        refuse("tokens", f"{nodes} labels, one a token", f"{len(labels)}")
    # HeadSystem checks weights; without them each head is drawn for itself.
    shares = [1.0] * system.heads if weights is None else system.weights.tolist()
    for head, (rows, share) in enumerate(zip(attention.tolist(), shares, strict=True)):
        for reader, row in enumerate(rows):
            for source, part in enumerate(row[:reader]):
                if share * part >= least and part > 0:
                    axis.add_patch(FancyArrowPatch(
                        (source, 0.15), (reader, 0.15), shrinkA=0, shrinkB=0,
                        connectionstyle=f"arc3,rad={-0.3 - 0.1 * (head % 4)}",
                        arrowstyle="-|>,head_length=3,head_width=1.5", mutation_scale=1,
                        linewidth=_WIDEST * part * share / max(shares),
                        color=colours[head % len(colours)]))
    for place, label in enumerate(labels):
        axis.text(place, 0, str(label), ha="center", va="top", fontsize=8, color=INK)
    axis.set(xlim=(-0.7, nodes - 0.3), ylim=(-0.6, 0.25 * nodes))
    axis.axis("off")
