"""A regression test for notebooks: nbval's cells, compared as a reader compares them.

nbval re-executes a notebook and compares every output to the letter, so it is
red on another CPU, and green where it did not compare at all. This plugin keeps
nbval's collection and kernels and replaces the comparison:

* Text compares exactly, apart from the white space next to numbers (columns
  widen with their numbers), the length of blanks, and empty lines.
* Integers, and so rationals, compare exactly: digits without a point or an
  exponent. Digits inside a name or a version (`x1`, `C5.2`, `1.2.3`) are text.
  A comma ends a number: `1,234.5` is an exact 1 and the decimal 234.5, which is
  stricter than reading a thousands separator, never laxer.
* Decimals agree if true values within the relative tolerance `RTOL` can print
  so. A cell tag `rtol-1e-6` sets another tolerance, `exact` asks for equal digits.
* Warnings and whatever else goes to stderr, progress bars, addresses, paths of
  temporary files and durations never fail. Durations count as such only with
  their unit beside them (`3.2 s`), and not in LaTeX, where `s` is a symbol.
* Images are not compared; the digest of the drawn data that `manyheads.figures`
  puts beside each figure is, and a figure without one fails.
* A cell that was not executed in order, from the top, fails.

Rounding. A decimal printed with k places stands for every value within half a
unit of its last place. Two decimals with the *same* k > 0 were rounded alike,
and agree if these intervals touch, or miss each other by no more than the
tolerance: 0.12 agrees with 0.13 (both may be 0.125), not with 0.14. That is all
the digits can tell; print four significant ones and a move of 1e-2 always fails.
Three limits keep short decimals honest. Where k differs, the numbers were
printed in full (`repr`, NumPy, pandas) and only the tolerance counts: 1.0 does
not agree with 1.01. Where k = 0 (NumPy's `1.`, `1e-05`) likewise, and two such
numbers agree only if equal. And where a unit of the last place is more than a
tenth of the number, there is no allowance for rounding: 0.5 is not 0.6.
"""

import difflib
import json
import re
from decimal import Decimal

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

__all__ = ["RTOL", "agree", "differences", "tolerance"]

RTOL = Decimal("1e-3")

_CLOCK = r"\d+:\d\d:\d\d(?:\.\d+)?"
_UNIT = r"(?:ns|[uµμ]s|ms|s|secs?|seconds?|minutes?|hours?)"
_VOLATILE = [(re.compile(pattern, re.MULTILINE), name) for pattern, name in [
    # a progress bar of tqdm on stdout: with a known total, and without
    (r"^.*\b\d{1,3}%\|[^|\n]*\| *\d+/\d+ \[[^\]\n]*\]", ""),
    (r"^.*\b\d{1,9}[a-z]{1,9} \[\d+:\d\d[^\]\n]*/[a-z]+\]", ""),
    (r"\b0x[0-9a-fA-F]{8,16}\b", "<address>"),
    (r"(?<![\w.])(?:/private)?/(?:tmp|var/tmp|var/folders)/[^\s'\"<>(),;:\]]+", "<temporary path>"),
    (r"\b[A-Z]:\\+[^\s'\"<>]*\\+Temp\\+[^\s'\"<>(),;:\]]+", "<temporary path>"),
    (r"\bT_[0-9a-f]{5}(?=\b|_)", "<id of a pandas Styler>"),
]]
_DURATION = [(re.compile(pattern), name) for pattern, name in [
    (rf"(?<![\w.:]){_CLOCK}(?![\w:])", "<duration>"),
    (rf"(?<![\w.])(?:\d+h )?(?:\d+min )?\d+(?:\.\d+)?(?:e[-+]?\d+)?[ \xa0]?{_UNIT}(?![\w/])",
     "<duration>"),
    (r"(?<![\w.])\d+(?:\.\d+)?[ \xa0]?(?:[A-Za-z]\w*/s|s/[a-z]+)\b", "<rate>"),
    (r"(?<![\w.])[\d,]+ loops? each", "<loops>"),  # %timeit chooses how many
]]
_EXPONENT = r"(?:[eE][-+]?\d{1,4}|\s*\\cdot\s*10\^\{[-+]?\d{1,4}\})"
_NUMBER = re.compile(rf"""(
    (?: (?<![\w.)\]}}]) [-+−] )?            # a sign, unless it joins two terms
    (?<![\w.])
    (?: (?:\d+\.\d*|\.\d+) {_EXPONENT}? (?![\d_]|\.\d)   # a unit may follow: 1.5x, 2.0j
      | \d+ [eE][-+]?\d{{1,4}} (?!\w|\.\d)
      | \d+ (?!\w|\.\d)
      | (?:nan|NaN|inf|Inf) (?!\w) )
    )""", re.VERBOSE)


def tolerance(tags) -> Decimal | None:
    """The relative tolerance that the tags of a cell ask for; None if `exact`.

    Raises
    ------
    ValueError
        If a tag `rtol-…` holds no number above 0 and below 1, or tags contradict.
    """
    asked = [tag for tag in tags if tag == "exact" or tag.startswith("rtol")]
    if not asked:
        return RTOL
    if asked == ["exact"]:
        return None
    found = re.fullmatch(r"rtol-(\d+(?:\.\d+)?(?:e-?\d+)?)", asked[0])
    if len(asked) > 1 or not found or not 0 < Decimal(found[1]) < 1:
        raise ValueError(f"the cell tags {asked} must be one of `exact` and `rtol-1e-6`, "
                         "with a number above 0 and below 1")
    return Decimal(found[1])


def _parse(token: str) -> tuple[Decimal, int | None]:
    """The value of a number and its printed decimals; None for an exact integer."""
    plain = re.sub(r"\s*\\cdot\s*10\^\{(.*)\}", r"e\1", token.replace("−", "-")).lower()
    if re.fullmatch(r"[-+]?\d+", plain):
        return Decimal(plain), None
    return Decimal(plain), len(plain.partition("e")[0].partition(".")[2])


def _allowed(stored: str, now: str, rtol: Decimal | None) -> Decimal | None:
    """How far apart two numbers may be; None if they must be equal."""
    (a, places), (b, others) = _parse(stored), _parse(now)
    if rtol is None or None in (places, others) or places == others == 0:
        return None
    if not (a.is_finite() and b.is_finite()):
        return None
    size = max(abs(a), abs(b))
    unit = Decimal(1).scaleb(min(a.as_tuple().exponent, b.as_tuple().exponent))
    rounded = places == others and 10 * unit <= size
    return rtol * size + (unit if rounded else 0)


def agree(stored: str, now: str, rtol: Decimal | None = RTOL) -> bool:
    """Whether two printed numbers agree (see the module's docstring)."""
    if stored == now or rtol is None:
        return stored == now
    (a, places), (b, others) = _parse(stored), _parse(now)
    allowed = _allowed(stored, now, rtol)
    if allowed is not None:
        return abs(a - b) <= allowed
    # An exact integer that turned into a decimal is no longer exact.
    return (a == b or a.is_nan() and b.is_nan()) and (places is None) == (others is None)


def _clean(text: str, latex: bool) -> str:
    """`text` without what differs from run to run."""
    for pattern, name in _VOLATILE + ([] if latex else _DURATION):
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def _texts(text: str) -> list[str]:
    """The texts between the numbers, their white space made even."""
    return [re.sub(r"[ \t\xa0]+", " ", part).strip() for part in _NUMBER.split(text)[::2]]


def differences(stored: str, now: str, rtol: Decimal | None = RTOL,
                latex: bool = False) -> list[str]:
    """What tells two outputs apart, in readable lines; empty if they agree."""
    stored, now = _clean(stored, latex), _clean(now, latex)
    if _texts(stored) != _texts(now):
        diff = difflib.unified_diff(stored.splitlines(), now.splitlines(), n=0, lineterm="")
        lines = [line for line in list(diff)[2:] if not line.startswith("@@")]
        return ["the text differs (- stored, + now):", *("  " + line for line in lines[:20])]
    found = []
    for old, new in zip(_NUMBER.finditer(stored), _NUMBER.finditer(now), strict=True):
        if not agree(old[0], new[0], rtol):
            allowed = _allowed(old[0], new[0], rtol)
            rule = "must be equal" if allowed is None else f"may be {allowed:.1e} apart"
            line = stored[stored.rfind("\n", 0, old.start()) + 1:old.end()]
            found.append(f"stored {old[0]}, now {new[0]}, {rule}: in {line[-60:]!r}")
    rest = [f"and {len(found) - 10} more numbers"] if len(found) > 10 else []
    return found[:10] + rest


def _comparable(outputs) -> dict[str, str]:
    """The texts of a cell's outputs, by where they stand."""
    texts, displays = {}, 0
    for output in outputs:
        if output.output_type == "stream" and output.name == "stdout":
            texts["stdout"] = texts.get("stdout", "") + output.text
        elif output.output_type == "error":
            texts["error"] = f"{output.ename}: {output.evalue}"
        elif "data" in output:
            data = {mime: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
                    for mime, value in output.data.items()
                    if not mime.startswith("image/") and "widget-view" not in mime}
            displays += bool(data)
            texts |= {f"output {displays}, {mime}": value for mime, value in data.items()}
    return {place: text for place, text in texts.items() if _clean(text, latex=False)}


class NotebookCell(IPyNbCell):
    """A cell whose outputs compare by `differences`, and which must have been executed."""

    position = None  # the execution count of a notebook run once, from the top

    def runtest(self):
        super().runtest()
        count = self.cell.execution_count
        if self.cell.source.strip() and count != self.position:
            was = "never executed" if count is None else f"executed as [{count}]"
            self.raise_cell_error(f"The stored cell was {was}; executed in order it is "
                                  f"[{self.position}]. Run `make refresh`.")

    def compare_outputs(self, test, ref, skip_compare=None):
        rtol = tolerance(self.cell.metadata.get("tags", []))
        stored, now = _comparable(ref), _comparable(test)
        report = self.comparison_traceback = []
        report += [f"{place}: stored, but not produced now" for place in stored if place not in now]
        report += [f"{place}: produced now, but not stored" for place in now if place not in stored]
        for place in [place for place in stored if place in now]:
            found = differences(self.sanitize(stored[place]), self.sanitize(now[place]), rtol,
                                latex="latex" in place)
            report += [f"{place}:", *("  " + line for line in found)] if found else []
        report += [f"{place}: a figure without a digest of its data; call "
                   "manyheads.figures.use_style() first"
                   for place, text in now.items() if text.startswith("<Figure size")]
        return not report


class NotebookFile(IPyNbFile):
    """nbval's notebook, with our cells."""

    def collect(self):
        position = 0
        for item in super().collect():
            cell = NotebookCell.from_parent(self, name=item.name, cell_num=item.cell_num,
                                            cell=item.cell, options=item.options)
            position += bool(item.cell.source.strip())
            cell.position = position
            yield cell


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """Put our notebook in the place of the one nbval collected."""
    return [NotebookFile.from_parent(parent, path=file_path) if type(node) is IPyNbFile else node
            for node in (yield)]
