"""The one look of all figures, and a digest of the data a figure draws.

A page shows a figure's image; a regression test can compare neither pixels nor
the paths of an SVG. So inside IPython each figure also carries, as its plain
text, a `describe` of the data in it, which HTML never shows beside an image.
"""

import sys

import matplotlib
import numpy as np
from matplotlib.category import StrCategoryLocator
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator

from manyheads._checks import check_choice, refuse

__all__ = ["INK", "PALETTE", "describe", "use_style"]

INK = "#757575"  # grey that reads on white (4.6:1) and on a dark page (4.1:1)
# The colours of seaborn's colour-blind palette that keep 3:1 on white.
PALETTE = ("#0173b2", "#d55e00", "#029e73", "#cc78bc")

_STYLE = {
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.prop_cycle": matplotlib.cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "figure.facecolor": "none",
    "figure.figsize": (6.4, 3.6),
    "font.size": 11,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "patch.edgecolor": "none",
    "savefig.transparent": True,
    "svg.hashsalt": "manyheads",  # the same ids in the SVG, run after run
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 10,
    "ytick.color": INK,
    "ytick.labelsize": 10,
}

_CHUNKS = 16
# What is below this part of the largest value is drawn as nothing, and prints as
# 0: rounding noise has no digits to compare. An odd figure, met by no round number.
_VISIBLE = 3.3e-4


def use_style(*, format: str = "svg") -> None:
    """Set the look of all later figures; in IPython, also their format and digest.

    Parameters
    ----------
    format : {"svg", "png"}
        Image format of displayed figures: "png" for thousands of points.

    Raises
    ------
    ValueError
        If `format` is another.
    """
    check_choice("format", format, ("svg", "png"))
    matplotlib.rcParams.update(_STYLE)
    # A plain Python session has no IPython loaded, and need not have it installed.
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if not shell:
        return
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib_inline.config import InlineBackend

    # For pyplot not yet imported (it reads the configuration), then for now.
    inline = InlineBackend.instance(parent=shell)
    inline.print_figure_kwargs = {"bbox_inches": "tight", "metadata": {"Date": None}}
    inline.figure_formats = {format}
    select_figure_formats(shell, {format}, **inline.print_figure_kwargs)
    plain = shell.display_formatter.formatters["text/plain"]
    plain.for_type(Figure, lambda figure, printer, cycle: printer.text(describe(figure)))


def describe(figure: Figure) -> str:
    """The data that a figure draws, one line an artist, as text that compares.

    Up to 16 values are written out. Of more, the line has the least and the
    largest, and 16 numbers, one a run of neighbours: exp of their mean relative
    to the largest magnitude (on a logarithmic axis: their geometric mean),
    mixed with fixed weights that tell their order. The exponential turns a
    relative tolerance into an absolute one on what is drawn: rounding noise
    passes at 1e-3, a shift, a swap or another point does not.

    Raises
    ------
    ValueError
        If `figure` is no matplotlib Figure.
    """
    if not isinstance(figure, Figure):
        refuse("figure", "a matplotlib Figure", figure)
    lines = []
    for part in (figure, *figure.subfigs):
        words = [*part.texts, *(text for legend in part.legends for text in legend.get_texts())]
        if words:
            lines.append("figure " + " ".join(repr(text.get_text()) for text in words))
        for artist in (*part.lines, *part.patches, *part.images):
            lines.append(f"figure {type(artist).__name__}")
    for axes in figure.axes:
        lines += _axes(axes)
    return "\n".join(lines) or "an empty figure"


def _axes(axes) -> list[str]:
    """The lines of one axes and of those inside it."""
    log = tuple(axis.get_scale() == "log" for axis in (axes.xaxis, axes.yaxis))
    titles = filter(None, map(axes.get_title, ("left", "center", "right")))
    lines = [" ".join(["axes", *map(repr, titles)])]
    for name, axis in zip("xy", (axes.xaxis, axes.yaxis)):
        words = [repr(axis.get_label_text())] if axis.get_label_text() else []
        words += [] if axis.get_scale() == "linear" else [axis.get_scale()]
        if isinstance(axis.get_major_locator(), (FixedLocator, StrCategoryLocator)):
            # The labels of named positions carry data; automatic ones may move.
            labels = [label.get_text() for label in axis.get_ticklabels()]
            words += ["ticks", *map(repr, labels)] if any(labels) else []
        if words:
            lines.append(f"  {name} axis " + " ".join(words))
    for line in axes.lines:
        data = np.asarray(line.get_xydata(), dtype=float)
        series = [*_points(data, log), _colours([line.get_color()])]
        lines.append(_line("line", line, len(data), series))
    lines += _patches(axes, log)
    for item in axes.collections:
        lines.append(_collection(item, log))
    for image in axes.images:
        shape = "x".join(map(str, image.get_array().shape))
        series = [_series("values", image.get_array()), _series("extent", image.get_extent())]
        lines.append(_line("image", image, shape, series))
    if axes.texts:
        words = " ".join(repr(text.get_text()) for text in axes.texts)
        places = [text.get_unitless_position() for text in axes.texts]
        series = _points(np.array(places, dtype=float), (False, False))
        tips = [(text.convert_xunits(text.xy[0]), text.convert_yunits(text.xy[1]))
                for text in axes.texts if isinstance(text, Annotation)]
        if tips:
            series.append("about " + "; ".join(_points(np.array(tips, dtype=float), log)))
        lines.append(f"  texts {words} at " + "; ".join(series))
    if axes.get_legend():
        words = [repr(text.get_text()) for text in axes.get_legend().get_texts()]
        lines.append("  legend " + " ".join(words))
    known = (*axes.spines.values(), axes.xaxis, axes.yaxis, axes.patch, axes.title,
             axes._left_title, axes._right_title, axes.get_legend(), *axes.child_axes, *axes.lines,
             *axes.patches, *axes.collections, *axes.images, *axes.texts)
    known = set(map(id, known))
    # Of an artist we cannot read (a table, a colour wheel), at least that it is there.
    lines += [f"  {type(a).__name__}" for a in axes.get_children() if id(a) not in known]
    for inset in axes.child_axes:
        lines += ["  " + line for line in _axes(inset)]
    return lines


def _patches(axes, log) -> list[str]:
    """The lines of the bars, the arrows and the other shapes in an axes."""
    lines = []
    bars = [item for item in axes.containers if isinstance(item, BarContainer)]
    for bar in bars:
        boxes = np.array([[*p.get_xy(), p.get_width(), p.get_height()] for p in bar.patches])
        names = ("left", "bottom", "width", "height")
        series = [_series(*pair) for pair in zip(names, boxes.reshape(-1, 4).T)]
        series.append(_colours([patch.get_facecolor() for patch in bar.patches]))
        lines.append(_line("bars", bar, len(boxes), series))
    drawn = {id(patch) for bar in bars for patch in bar.patches}
    rest = [patch for patch in axes.patches if id(patch) not in drawn]
    arrows = [patch for patch in rest if isinstance(patch, FancyArrowPatch)]
    # An arrow's path depends on the size of the page; where it was asked to go does not.
    ends = [arrow._posA_posB for arrow in arrows if arrow._posA_posB is not None]
    if arrows:
        tails, heads = np.array(ends, dtype=float).reshape(-1, 2, 2).swapaxes(0, 1)
        series = [*_points(tails, log), "to " + "; ".join(_points(heads, log)),
                  _series("width", [arrow.get_linewidth() for arrow in arrows]),
                  _colours([arrow.get_edgecolor() for arrow in arrows])]
        lines.append(f"  arrows {len(arrows)}: from " + "; ".join(series))
    for patch in rest:
        if not isinstance(patch, FancyArrowPatch):
            vertices = patch.get_patch_transform().transform(patch.get_path().vertices)
            series = [*_points(vertices, log), _colours([patch.get_facecolor()])]
            lines.append(_line(type(patch).__name__, patch, len(vertices), series))
    return lines


def _collection(item, log) -> str:
    """The line of a collection: a scatter, a mesh, or many lines or polygons."""
    values = item.get_array()
    series = [] if values is None else [_series("values", values)]
    offsets = np.ma.filled(np.ma.asarray(item.get_offsets(), dtype=float), np.nan)
    if isinstance(item, QuadMesh):
        corners = item.get_coordinates()
        series += [_series("x", corners[0, :, 0], log[0]), _series("y", corners[:, 0, 1], log[1])]
        return _line("mesh", item, "x".join(str(n - 1) for n in corners.shape[:2]), series)
    if isinstance(item, PathCollection):
        series = _points(offsets, log) + [_series("sizes", item.get_sizes())] + series
        if values is None:
            series.append(_colours(item.get_facecolors()))
        return _line("scatter", item, len(offsets), series)
    # The arrows of a quiver get their paths only when drawn; their data are U and V.
    quiver = hasattr(item, "U")
    paths = [] if quiver else item.get_paths()
    if paths:
        series = _points(np.concatenate([path.vertices for path in paths]), log) + series
    if offsets.any():
        series += ["offsets " + "; ".join(_points(offsets, log))]
    if quiver:
        series += [_series("U", item.U), _series("V", item.V)]
    series.append(_series("width", item.get_linewidths()))
    if values is None:
        series += [_colours(item.get_facecolors()), _colours(item.get_edgecolors())]
    return _line(type(item).__name__, item, len(paths), series)


def _line(kind: str, artist, count, series: list[str]) -> str:
    """One line of the digest; matplotlib's own labels begin with `_`."""
    label = str(artist.get_label() or "_")
    name = "" if label.startswith("_") else f" {label!r}"
    return f"  {kind}{name} {count}: " + "; ".join(series)


def _colours(colours) -> str:
    """Colours as a word each, one word if they are all the same."""
    hexes = [to_hex(colour, keep_alpha=True) for colour in colours]
    names = [name[:7] if name.endswith("ff") else name for name in hexes]  # opaque
    return "colour " + (" ".join(names if len(set(names)) > 1 else names[:1]) or "none")


def _points(points: np.ndarray, log) -> list[str]:
    """The x and the y of an array of shape (n, 2); `log` says which are logarithmic."""
    return [_series("x", points[:, 0], log[0]), _series("y", points[:, 1], log[1])]


def _series(name: str, values, log: bool = False) -> str:
    """The values of any shape, in reading order, as `describe` writes them."""
    values = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan).ravel()
    if log:
        values = np.where(values > 0, values, np.nan)  # what a logarithmic axis can show
    finite = np.isfinite(values)
    size = np.abs(values[finite]).max(initial=0.0)
    if not log:
        values = np.where(finite & (np.abs(values) < _VISIBLE * size), 0.0, values)
    if finite.all() and len(values) > 1 and np.ptp(values) <= 1e-6 * size:
        return f"{name} all {_number(values[0])}"
    if len(values) <= _CHUNKS:
        return f"{name} " + " ".join(map(_number, values))
    levels = np.log(values) if log else values / (size or 1.0)
    levels = np.where(finite, levels, 2.0)  # a gap counts where it is, as a value off the page
    chunks = [np.exp(_mixed(chunk)) for chunk in np.array_split(levels, _CHUNKS)]
    lost = "" if finite.all() else f", {np.sum(~finite)} not finite"
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (np.nan,) * 2
    return (f"{name} from {_number(low)} to {_number(high)}{lost} ["
            + " ".join(map(_number, chunks)) + "]")


def _mixed(values: np.ndarray) -> float:
    """A mean that also tells order and single values: sum of (1/n + w_i/sqrt(n)) v_i.

    The weights w average to zero, so that a common shift counts once; scaled by
    sqrt(n), not n, they keep one changed value among many in sight.
    """
    place = np.arange(len(values))
    # A quadratic phase with the golden ratio: scattered, and the same everywhere.
    weights = np.cos(2 * np.pi * (place * (place + 1) / 2 * 0.6180339887498949 % 1))
    return np.mean(values) + np.dot(weights - weights.mean(), values) / np.sqrt(len(values))


def _number(value: float) -> str:
    """Five significant digits, none trimmed, and never without a decimal point."""
    text = f"{value + 0.0:#.5g}"
    return f"{value:.4e}" if text.endswith(".") else text
