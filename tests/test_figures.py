"""The digest of a figure sees what is drawn, and nothing else; the style is one."""

import json
import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import nbformat
import networkx as nx
import numpy as np
import pytest
import seaborn as sns
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from nbclient import NotebookClient

from manyheads import figures
from manyheads.figures import INK, PALETTE, describe, use_style
from nbregress import differences

rng = np.random.default_rng(0)
CURVE = np.cumsum(rng.normal(size=200))
GRID = rng.random((20, 30))


@pytest.fixture(autouse=True)
def _fresh_style():
    with matplotlib.rc_context():
        use_style()
        yield
    plt.close("all")


def digest(draw, data):
    figure, axes = plt.subplots()
    draw(axes, np.array(data, dtype=float))
    text = describe(figure)
    plt.close(figure)
    return text


def _graph(axes, weights, directed=True):
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 3)]) if directed else nx.path_graph(4)
    nx.draw_networkx(graph, {i: (w, i) for i, w in enumerate(weights)}, ax=axes)


def _log(axes, values):
    axes.semilogy(np.exp(values / 4))


# How to draw, and what: every kind of artist, with few values and with many.
DRAWN = {
    "line": (lambda ax, v: ax.plot(v), CURVE),
    "short line": (lambda ax, v: ax.plot(v), CURVE[:9]),
    "line across": (lambda ax, v: ax.plot(v, np.arange(len(v))), CURVE),
    "logarithmic line": (_log, CURVE),
    "bars": (lambda ax, v: ax.bar(range(len(v)), v), CURVE[:5]),
    "bars on top": (lambda ax, v: ax.bar(range(len(v)), np.ones(len(v)), bottom=v), CURVE[:5]),
    "seaborn bars": (lambda ax, v: sns.barplot(x=list("abcde"), y=v, ax=ax), CURVE[:5]),
    "histogram": (lambda ax, v: ax.stairs(v, fill=True), CURVE[:40]),
    "image": (lambda ax, v: ax.imshow(v), GRID),
    "heatmap": (lambda ax, v: sns.heatmap(v, ax=ax), GRID),
    "mesh": (lambda ax, v: ax.pcolormesh(v), GRID[:4, :4]),
    "scatter": (lambda ax, v: ax.scatter(v, v**2), CURVE),
    "sizes": (lambda ax, v: ax.scatter(range(len(v)), range(len(v)), s=v), GRID[0] + 1),
    "values": (lambda ax, v: ax.scatter(range(len(v)), range(len(v)), c=v), CURVE),
    "band": (lambda ax, v: ax.fill_between(range(len(v)), v, v + 3), CURVE),
    "segments": (lambda ax, v: ax.vlines(range(len(v)), 0, v), CURVE),
    "errors": (lambda ax, v: ax.errorbar(range(len(v)), v, yerr=abs(v)), CURVE[:30]),
    "annotation": (lambda ax, v: [ax.annotate("here", (x, 1)) for x in v], CURVE[:3]),
    "text": (lambda ax, v: [ax.text(1, 1, f"{x:.5f}") for x in v], CURVE[:3]),
    "title": (lambda ax, v: ax.set_title(f"the fidelity is {v[0]:.4f}, of {v[1]:.4f}"), CURVE[:2]),
    "directed graph": (_graph, CURVE[:4]),
    "graph": (lambda ax, v: _graph(ax, v, directed=False), CURVE[:4]),
    "widths": (lambda ax, v: nx.draw_networkx_edges(
        nx.DiGraph([(0, 1), (1, 2), (2, 0)]), {0: (0, 0), 1: (1, 0), 2: (0, 1)}, ax=ax, width=v),
        GRID[0, :3] + 1),
    "arrows": (lambda ax, v: ax.quiver(range(len(v)), range(len(v)), v, v), CURVE[:30]),
    "inset": (lambda ax, v: ax.inset_axes([0.5, 0.5, 0.4, 0.4]).plot(v), CURVE),
    "contour": (lambda ax, v: ax.contour(v, levels=[0.3, 0.6]), GRID[:6, :6]),
    "pie": (lambda ax, v: ax.pie(v), GRID[0, :4]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_data_compare_equal_and_other_data_do_not(name):
    draw, data = DRAWN[name]
    stored = digest(draw, data)
    assert stored == digest(draw, data)
    assert differences(stored, digest(draw, data * (1 + 1e-4))) == []
    noise = 1e-5 * np.abs(data).max() * np.sin(np.arange(data.size)).reshape(data.shape)
    if name != "contour" and name != "text":
        assert differences(stored, digest(draw, data + 0.1 * noise)) == []
    assert differences(stored, digest(draw, data * 1.03 if name != "pie" else data**2))
    one = data.copy()
    one.flat[data.size // 3] += 0.3 * np.ptp(data)
    assert differences(stored, digest(draw, one)), "one other value"
    assert differences(stored, digest(draw, data[::-1])), "another order"
    swapped = data.copy()
    least, most = data.argmin(), data.argmax()
    swapped.flat[[least, most]] = data.flat[[most, least]]
    assert differences(stored, digest(draw, swapped)), "two values swapped"


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(17, 3000), st.floats(-5, 5))
def test_any_long_series_tells_a_shift_of_one_percent_from_noise(seed, size, level):
    random = np.random.default_rng(seed)
    values = level + random.normal(size=size)
    scale = np.abs(values).max()
    stored = figures._series("y", values)
    moved = values * (1 + 1e-4 * random.uniform(-1, 1, size))
    assert differences(stored, figures._series("y", moved)) == []
    part = values.copy()
    part[size // 2:] += 1e-2 * scale
    assert differences(stored, figures._series("y", part))
    assert differences(stored, figures._series("y", random.permutation(values)))


def test_what_is_not_finite_is_told_by_number_and_place():
    values = CURVE.copy()
    values[[3, 77]] = np.nan, np.inf
    text = figures._series("y", values)
    assert "2 not finite" in text
    other = CURVE.copy()
    other[[5, 77]] = np.nan, np.inf
    assert differences(text, figures._series("y", other))
    assert figures._series("y", [1, np.nan, np.inf]) == "y 1.0000 nan inf"
    assert figures._series("y", [np.nan] * 20).startswith("y from nan to nan, 20 not finite")
    assert figures._series("y", [-1, 2], log=True) == "y nan 2.0000"
    assert figures._series("y", []) == "y "


def test_values_below_sight_print_as_nothing():
    assert figures._series("y", np.sin([0, np.pi / 2, np.pi])) == "y 0.0000 1.0000 0.0000"
    assert figures._series("y", [1e-9, 1], log=True) == "y 1.0000e-09 1.0000"
    assert figures._series("y", [0.8, 0.8 + 1e-12]) == "y all 0.80000"
    assert figures._series("y", [12345.6, -1e9]) == "y 0.0000 -1.0000e+09"
    assert figures._series("y", [12345.6]) == "y 1.2346e+04"


def test_words_of_a_figure_are_in_its_digest():
    figure, (left, right) = plt.subplots(1, 2)
    figure.suptitle("Two heads")
    left.plot([1, 2], label="walk")
    left.set(title="The claim", xlabel="step", ylabel="mass", yscale="log")
    left.legend()
    right.bar(["copy", "cycle"], [1, 2], color=PALETTE[:2])
    right.set_yticks([0, 2], labels=["none", "all"])
    assert describe(figure).splitlines() == [
        "figure 'Two heads'",
        "axes 'The claim'",
        "  x axis 'step'",
        "  y axis 'mass' log",
        "  line 'walk' 2: x 0.0000 1.0000; y 1.0000 2.0000; colour #0173b2",
        "  legend 'walk'",
        "axes",
        "  x axis ticks 'copy' 'cycle'",
        "  y axis ticks 'none' 'all'",
        "  bars 2: left -0.40000 0.60000; bottom all 0.0000; width all 0.80000; "
        "height 1.0000 2.0000; colour #0173b2 #d55e00",
    ]


@pytest.mark.parametrize("name", DRAWN)
def test_drawing_a_figure_changes_nothing_in_its_digest(name):
    draw, data = DRAWN[name]
    figure, axes = plt.subplots()
    draw(axes, data)
    before = describe(figure)
    figure.canvas.draw()
    assert describe(figure) == before


def test_an_artist_that_cannot_be_read_is_named():
    figure, axes = plt.subplots()
    axes.table([["1"]])
    assert "\n  Table" in describe(figure)
    assert describe(plt.figure()) == "an empty figure"


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"`figure` must be a matplotlib Figure; got 3 \(int\)"):
        describe(3)
    with pytest.raises(ValueError, match=r"`format` must be one of 'svg', 'png'; got 'pdf'"):
        use_style(format="pdf")


def _contrast(one, other):
    def luminance(colour):
        parts = np.array(to_rgb(colour))
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#121212"])
def test_ink_and_palette_read_on_light_and_dark_pages(page):
    assert _contrast(INK, page) > 4
    assert all(_contrast(colour, page) > 3 for colour in PALETTE)


def test_the_style_is_transparent_and_seaborn_follows_it():
    figure, axes = plt.subplots()
    assert figure.get_facecolor()[3] == axes.get_facecolor()[3] == 0
    assert sns.color_palette().as_hex() == list(PALETTE)
    assert not axes.spines["top"].get_visible() and not axes.spines["right"].get_visible()


@pytest.fixture(scope="module")
def displayed():
    """The outputs of one real kernel: styled before and after pyplot, SVG and PNG."""
    plot = "plt.plot([1, 4, 2], label='walk')\nplt.show()"
    cells = ["from manyheads.figures import use_style\nuse_style()\n"
             f"import matplotlib.pyplot as plt\n{plot}", plot, f"use_style(format='png')\n{plot}",
             f"use_style()\n{plot}", "fig, ax = plt.subplots()\nplt.close(fig)\nfig"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return [cell.outputs[0].data for cell in notebook.cells]


def test_a_displayed_figure_carries_its_image_and_its_digest(displayed):
    for data, image in zip(displayed, ["svg+xml", "svg+xml", "png", "svg+xml", "svg+xml"]):
        assert set(data) == {"text/plain", f"image/{image}"}
    assert displayed[0]["text/plain"] == (
        "axes\n  line 'walk' 3: x 0.0000 1.0000 2.0000; y 1.0000 4.0000 2.0000; colour #0173b2")
    assert len({data["text/plain"] for data in displayed[:4]}) == 1
    assert displayed[4]["text/plain"] == "axes"


def test_the_same_figure_has_the_same_bytes_without_a_date(displayed):
    assert displayed[0]["image/svg+xml"] == displayed[1]["image/svg+xml"]
    assert "dc:date" not in displayed[0]["image/svg+xml"]


def test_a_plain_session_needs_no_ipython():
    code = ("import sys, json; from manyheads.figures import use_style; use_style(); "
            "print(json.dumps([m for m in ('IPython', 'seaborn') if m in sys.modules]))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(run.stdout) == [], run.stderr
