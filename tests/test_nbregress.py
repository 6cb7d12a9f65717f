"""The regression test regresses: what must pass passes, what must fail fails."""

import os
import re
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from manyheads.figures import describe, use_style
from nbregress import RTOL, agree, differences, tolerance

ROOT = Path(__file__).resolve().parents[1]

AGREE = [
    ("0.1250", "0.1249"), ("0.1250", "0.12501"), ("1.000", "0.9999"), ("9.9999", "10.0001"),
    ("0.12", "0.13"), ("3.14", "3.15"), ("-2.50", "-2.51"),          # one rounding boundary
    ("1.", "1.00001"), ("0.5", "0.50004"), ("-0.0", "0.0"),          # trimmed zeros
    ("1e-05", "9.9999e-06"), ("9.996e-06", "1.000e-05"), ("1.234e+10", "1.235e+10"),
    (r"1.2345 \cdot 10^{-5}", r"1.2346 \cdot 10^{-5}"), ("−1.50", "-1.50"),
    ("nan", "NaN"), ("inf", "inf"), ("12", "12"), ("+3", "3"),
    ("1234567890123456789", "1234567890123456789"),
]
DISAGREE = [
    ("0.1250", "0.1263"), ("0.125", "0.12625"), ("1.0", "1.01"), ("100.0", "101.0"),
    ("0.12", "0.14"), ("0.5", "0.6"), ("1.", "2."), ("10.", "11."), ("1e-05", "2e-05"),
    ("1.0000", "1.0100"), ("0.25", "-0.25"), ("0.0", "0.1"), ("1.5e-05", "1.5e-06"),
    (r"1.2345 \cdot 10^{-5}", r"1.2345 \cdot 10^{-6}"),
    ("12", "13"), ("1000000", "1000001"), ("3", "3.0"), ("1000", "1000.5"),
    ("1234567890123456789012345678901", "1234567890123456789012345678902"),
    ("nan", "0.5"), ("inf", "-inf"), ("nan", "inf"),
]


@pytest.mark.parametrize(("stored", "now"), AGREE)
def test_numbers_that_agree(stored, now):
    assert agree(stored, now) and agree(now, stored)
    assert not differences(f"a {stored} b", f"a {now} b", latex=True)


@pytest.mark.parametrize(("stored", "now"), DISAGREE)
def test_numbers_that_disagree(stored, now):
    assert not agree(stored, now) and not agree(now, stored)
    assert differences(f"a {stored} b", f"a {now} b", latex=True)


numbers = st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6)


@given(numbers, st.sampled_from(["{:.4f}", "{:.3e}", "{!r}", "{:.6g}"]))
def test_a_number_agrees_with_itself(value, style):
    text = f"value: {style.format(value)}, all"
    assert differences(text, text, rtol=None) == differences(text, text) == []


@given(numbers, st.floats(-0.9e-3, 0.9e-3), st.integers(1, 8))
def test_a_move_within_the_tolerance_passes_in_any_rounding_of_two_digits_or_more(
        value, move, digits):
    stored, now = (f"{v:.{digits}e}" for v in (value, value * (1 + move)))
    assert agree(stored, now) and agree(now, stored)


@given(numbers, st.sampled_from([-1, 1]), st.integers(3, 8))
def test_a_move_of_one_percent_fails_from_four_digits_on(value, sign, digits):
    stored, now = (f"{v:.{digits}e}" for v in (value, value * (1 + sign * 1e-2)))
    assert not agree(stored, now) and not agree(now, stored)


@given(st.lists(st.text(st.sampled_from("01289.,-+e/ anT_x{}\n[]"), max_size=12)))
def test_any_text_compares_with_itself_and_with_another(texts):
    for text in texts:
        assert differences(text, text) == []
        assert isinstance(differences(texts[0], text), list)


SAME = [  # stored, now, latex
    ("[ 9.9999 0.5]", "[10.0001 0.5]", False),                 # columns widen
    ("[nan 9.9999]", "[    nan 10.0001]", False),
    ("   a  b\n0  9.9999", "    a  b\n0  10.0001", False),
    ("<Head at 0x7f12ab34cd56>", "<Head at 0x7f99ab34cd00>", False),
    ("saved /tmp/tmpab12/x.npz", "saved /private/var/folders/z/T/tmp9/y.npz", False),
    ("took 3.2 s", "took 12 ms", False), ("Wall time: 1min 3s", "Wall time: 48.1 s", False),
    ("12.3 ms ± 120 µs per loop (mean ± std. dev. of 7 runs, 100 loops each)",
     "9.81 ms ± 1.2 µs per loop (mean ± std. dev. of 7 runs, 1,000 loops each)", False),
    ("in 0:00:03.2, 3.2 cells/s", "in 0:01:13, 0.2 cells/s", False),
    ("a\n 45%|████▌     | 45/100 [00:03<00:04, 12.3it/s]\nb", "a\nb", False),
    ("train: 45it [00:03, 12.3it/s]", "train: 45it [00:04, 8.1it/s]", False),
    ('<table id="T_1a2b3"> <td id="T_1a2b3_row0">0.1250', '<table id="T_9a9b9"> '
     '<td id="T_9a9b9_row0">0.1249', False),
    (r"$\displaystyle 0.1250 s + \frac{3}{8}$", r"$\displaystyle 0.1249 s + \frac{3}{8}$", True),
    ("(0.5+1.2500j)", "(0.5+1.2501j)", False),
    ("torch 2.13.0, C5.2, head_2, Float64", "torch 2.13.0, C5.2, head_2, Float64", False),
]
DIFFERENT = [
    ("mean 0.5", "median 0.5", False), ("C5.2 holds", "C5.3 holds", False),
    ("torch 2.13.0", "torch 2.13.1", False), ("head_2", "head_3", False), ("x1", "x2", False),
    ("3/8", "3/7", False), (r"\frac{3}{8}", r"\frac{3}{7}", True), ("x**2", "x**3", False),
    ("4 heads", "5 heads", False), ("1,234.5", "2,234.5", False), ("1-2", "1 -2", False),
    ("there are 3.", "there are 4.", False), ("[0.5, 0.25]", "[0.25, 0.5]", False),
    ("[0.5, 0.25]", "[0.5, 0.25, 0.1]", False), ("0.5 or nan", "0.5 or 0.5", False),
    ("hex 0xff", "hex 0xfe", False), ("a\nb", "ab", False), ("a b", "ab", False),
    (r"0.5 s", r"0.6 s", True), ("(0.5+1.25j)", "(0.5-1.25j)", False),
    ("3 s in 4 steps", "3 s in 5 steps", False), ("/home/a/x1", "/home/a/x2", False),
]


@pytest.mark.parametrize(("stored", "now", "latex"), SAME)
def test_outputs_that_agree(stored, now, latex):
    assert differences(stored, now, latex=latex) == differences(now, stored, latex=latex) == []


@pytest.mark.parametrize(("stored", "now", "latex"), DIFFERENT)
def test_outputs_that_differ(stored, now, latex):
    assert differences(stored, now, latex=latex) and differences(now, stored, latex=latex)


@pytest.mark.parametrize("text", ["a1" * 50_000, "1" * 50_000, "1.5 " * 20_000, "<b>0%|" * 20_000])
def test_long_lines_take_no_longer_than_they_are(text):
    start = time.process_time()
    assert differences(text, text + " 2") and time.process_time() - start < 5


def _typeset(value):
    return sympy.latex(value * sympy.Symbol("x") + sympy.Rational(3, 8))


@pytest.mark.parametrize("show", [
    lambda v: repr(np.array([v, 0.5, 17.0])),
    lambda v: repr(pd.DataFrame({"weight": [v, 0.5], "name": ["a", "b"]})),
    lambda v: pd.DataFrame({"weight": [v, 0.5], "name": ["a", "b"]}).to_html(),
    _typeset, lambda v: _typeset(v * 1e-9), lambda v: f"fidelity {v:.4f} of 1",
])
@pytest.mark.parametrize("value", [0.41666666666666669, 0.125, 9.9996])
def test_each_kind_of_output_sees_a_move_of_1e_2_and_not_of_1e_4(show, value):
    assert not differences(show(value), show(value * (1 + 1e-4)))
    assert differences(show(value), show(value * (1 + 1e-2)))
    assert differences(show(value), show(-value))


def test_the_tags_of_a_cell_set_its_tolerance():
    assert tolerance([]) == tolerance(["hide-input"]) == RTOL
    assert tolerance(["rtol-1e-6"]) == Decimal("1e-6") and tolerance(["exact"]) is None
    assert differences("0.500000", "0.500010", Decimal("1e-6"))
    assert not differences("0.500000", "0.500010", Decimal("1e-4"))
    assert differences("0.50", "0.500", None)
    assert not differences("0.50 in 3 s", "0.50 in 4 s", None)


@pytest.mark.parametrize("tags", [["rtol-"], ["rtol-x"], ["rtol-2"], ["rtol-0"], ["rtol=1e-3"],
                                  ["rtol--1e-3"], ["exact", "rtol-1e-3"], ["rtol"]])
def test_a_tag_that_says_no_tolerance_is_refused(tags):
    with pytest.raises(ValueError, match="must be one of `exact` and `rtol-1e-6`"):
        tolerance(tags)


def test_the_report_names_the_number_and_what_was_allowed():
    [line] = differences("a 1\nfidelity 0.1250 of 1", "a 1\nfidelity 0.1263 of 1")
    assert line == "stored 0.1250, now 0.1263, may be 2.3e-4 apart: in 'fidelity 0.1250'"
    assert differences("3/8", "3/7") == ["stored 8, now 7, must be equal: in '3/8'"]
    assert differences("a b\n1", "a c\n1") == ["the text differs (- stored, + now):",
                                               "  -a b", "  +a c"]
    assert differences("1 " * 20, "2 " * 20)[-1] == "and 10 more numbers"


# Real notebooks, each cell one case: its source, what is stored, whether it must pass.

def _text(text):
    return [new_output("stream", name="stdout", text=text)]


def _shown(**data):
    data = {mime.replace("_", "/"): value for mime, value in data.items()}
    return [new_output("execute_result", data, execution_count=1)]


def _figure(values):
    with matplotlib.rc_context():
        use_style()
        figure, axes = plt.subplots()
        axes.plot(values, label="walk")
    digest = describe(figure)
    plt.close(figure)
    return [new_output("display_data", {"text/plain": digest})]


def _html(value):
    return f"<b>{value}</b>"


_HTML = "from IPython.display import HTML, Latex\n"
CASES = {
    "the same": ("print(0.125)", _text("0.125\n"), True),
    "moved 1e-4": ("print(0.125)", _text("0.1250125\n"), True),
    "moved 1e-2": ("print(0.125)", _text("0.12625\n"), False),
    "moved 1e-2, in LaTeX": ("import sympy\nsympy.Float(0.5) * sympy.Symbol('x')", _shown(
        text_plain="0.5*x", text_latex=r"$\displaystyle 0.505 x$"), False),
    "moved 1e-4, in LaTeX": ("sympy.Float(0.5) * sympy.Symbol('x')", _shown(
        text_plain="0.5*x", text_latex=r"$\displaystyle 0.50005 x$"), True),
    "another rational": ("sympy.Rational(3, 8)", _shown(
        text_plain="3/8", text_latex=r"$\displaystyle \frac{3}{7}$"), False),
    "moved 1e-4, in HTML": (_HTML + "HTML('<b>0.125</b>')", _shown(
        text_plain="<IPython.core.display.HTML object>", text_html=_html(0.1250125)), True),
    "moved 1e-2, in HTML": ("HTML('<b>0.125</b>')", _shown(
        text_plain="<IPython.core.display.HTML object>", text_html=_html(0.12625)), False),
    "a warning": ("import warnings\nwarnings.warn('slow')\nprint(1)", _text("1\n"), True),
    "a warning no more": ("print(1)", _text("1\n") + [
        new_output("stream", name="stderr", text="Warning: slow")], True),
    "a progress bar": (
        r"print(' 50%|###   | 1/2 [00:01<00:01, 1.0it/s]\r100%|######| 2/2 [00:02<00:00, 1.1it/s]')"
        "\nprint('done')", _text("done\n"), True),
    "an address": ("object()", _shown(text_plain="<object at 0x7f0123456789>"), True),
    "cleared": ("print(2)", [], False),
    "silent": ("x = 3", _text("3\n"), False),
    "an output more": ("print(1)\n4", _text("1\n"), False),
    "nothing to show": ("x = 4", [], True),
    "the figure": ("from manyheads import figures\nimport matplotlib.pyplot as plt\n"
                   "figures.use_style()\nplt.plot([1, 4, 2], label='walk')\nplt.show()",
                   _figure([1, 4, 2]), True),
    "the figure moved 1e-4": ("plt.plot([1, 4, 2], label='walk')\nplt.show()",
                              _figure([1, 4.0004, 2]), True),
    "a figure of other data": ("plt.plot([1, 4, 2], label='walk')\nplt.show()",
                               _figure([1, 4.04, 2]), False),
    "a figure stored with its image": (
        "plt.plot([1, 4, 2], label='walk')\nplt.show()",
        [new_output("display_data", _figure([1, 4, 2])[0].data | {"image/png": "iVBORw0KGgo="})],
        True),
    "tagged exact": ("print(0.125)", _text("0.12501\n"), False),
    "tagged loose": ("print(0.125)", _text("0.126\n"), True),
    "tagged wrong": ("print(0.125)", _text("0.125\n"), False),
    "the expected exception": ("1 / 0", [new_output(
        "error", ename="ZeroDivisionError", evalue="division by zero", traceback=["here"])], True),
    "another exception": ("1 / 0", [new_output(
        "error", ename="ValueError", evalue="division by zero", traceback=["here"])], False),
    "never executed": ("x = 5", [], False),
    "executed out of order": ("x = 6", [], False),
    "empty": ("", [], True),
    "after an empty one": ("x = 7", [], True),
}
TAGS = {"tagged exact": ["exact"], "tagged loose": ["rtol-1e-2"], "tagged wrong": ["rtol-x"],
        "the expected exception": ["raises-exception"], "another exception": ["raises-exception"]}
COUNTS = {"never executed": None, "executed out of order": 99, "empty": None}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What a real run says of every case: passed or not, and its report."""
    folder = tmp_path_factory.mktemp("book")
    cells, position = [new_markdown_cell("# Cases")], 0
    for name, (source, outputs, _) in CASES.items():
        position += bool(source)
        cells.append(new_code_cell(source, outputs=outputs, metadata={"tags": TAGS.get(name, [])},
                                   execution_count=COUNTS.get(name, position)))
    nbformat.write(new_notebook(cells=cells), folder / "cases.ipynb")
    bare = new_code_cell(
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()", execution_count=1,
        outputs=[new_output("display_data", {"text/plain": "<Figure size 640x480 with 1 Axes>"})])
    nbformat.write(new_notebook(cells=[bare]), folder / "bare.ipynb")
    paths = [str(ROOT / "tests"), os.environ["PYTHONPATH"]]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "nbregress", "-p", "no:cacheprovider", "-rA", "-q",
         "--nbval", "--nbval-current-env", "--color=no", "--rootdir", str(folder), str(folder)],
        capture_output=True, text=True, cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    passed = {name: word == "PASSED" for word, name in
              re.findall(r"^(PASSED|FAILED|ERROR) (\S+::Cell \d+)", run.stdout, re.MULTILINE)}
    assert len(passed) == len(CASES) + 1, run.stdout + run.stderr
    return passed, run.stdout


@pytest.mark.parametrize("name", CASES)
def test_a_cell_of_a_real_notebook(verdicts, name):
    passed, report = verdicts
    number = list(CASES).index(name)
    assert passed[f"cases.ipynb::Cell {number}"] is CASES[name][2], report


def test_a_figure_without_a_digest_fails(verdicts):
    passed, report = verdicts
    assert not passed["bare.ipynb::Cell 0"]
    assert "a figure without a digest of its data; call manyheads.figures.use_style()" in report


def test_the_reports_of_a_real_run_can_be_read(verdicts):
    report = verdicts[1]
    for line in [
        "stdout:\n  stored 0.12625, now 0.125, may be 1.3e-4 apart: in '0.12625'",
        "output 1, text/latex:\n  stored 7, now 8, must be equal: in",
        "stdout: produced now, but not stored", "stdout: stored, but not produced now",
        "The stored cell was never executed; executed in order it is [",
        "The stored cell was executed as [99]; executed in order it is [",
        "the cell tags ['rtol-x'] must be one of `exact` and `rtol-1e-6`",
    ]:
        assert line in report


def test_this_run_has_the_plugin_and_gives_kernels_this_tree(request):
    assert request.config.pluginmanager.has_plugin("nbregress")
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT / "lib")
