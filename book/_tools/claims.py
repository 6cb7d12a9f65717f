"""The register of claims: what the chapters assert, gathered from what ran.

A claim is stated in prose as ``**Claim C1.2.** …`` (or mentioned in bold in the
paragraph that states it) and checked by a code cell of the same chapter, whose
first line says what is checked, whose claim it is, how, and with which outcome:

    # Claim C1.2 · Adler 2026, Theorem 3 · certified
    # Claim S1.4 · ours · exact
    # Claim S2.5 · Sáez de Ocáriz Borde 2025, Theorem 2.9 · proved · holds with another constant

Without an outcome the claim holds. The cell asserts what its line says, so a
chapter that ran has shown it.

Run as a script, it prints the register as JSON.
"""

import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from chapters import ROOT, Chapter, chapters
from execution import executed

__all__ = ["Claim", "HOW", "NAME", "OUTCOMES", "claims_of", "register"]

NAME = r"[A-Z]\d+(?:\.\d+)?"
HOW = {
    "proved": "a symbolic derivation, checked in the cell",
    "exhaustive": "all cases of a finite set",
    "exact": "integers or fractions, without rounding",
    "certified": "floating point with a proved bound on its error",
    "numerical": "floating point, with a margin far above its error",
    "statistical": "samples, with an interval or for each of several seeds",
}
OUTCOMES = ("holds", "holds with another constant", "fails")
_HEADER = re.compile(rf"# Claim ({NAME})(?: · ([^·\n]+) · ([^·\n]+?)(?: · ([^·\n]+))?)?$", re.M)


@dataclass(frozen=True)
class Claim:
    """One claim; `how` is a key of `HOW`, `outcome` one of `OUTCOMES`."""

    name: str
    statement: str
    source: str
    how: str
    outcome: str
    chapter: str
    cell: str


def claims_of(chapter: str, cells: list) -> list[Claim]:
    """The claims that the code cells of a notebook check, in order.

    Raises
    ------
    ValueError
        If a checking cell's first line is not as described, a claim is checked
        twice, is checked but not stated, or stated but not checked.
    """
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    paragraphs = [text for source in prose for text in re.split(r"\n\s*\n", source)]
    stated = {}
    for text in paragraphs:
        for name in re.findall(rf"\*\*Claim ({NAME})\b", text):
            text = re.sub(r"\A\s*\*\*Claim [^*]+\*\* *", "", text)  # elsewhere its name is a word
            plain = re.sub(r"\*\*(Claim [^*]+)\*\*", r"\1", text)
            stated.setdefault(name, " ".join(plain.split()))
    found = {}
    for cell in cells:
        if cell.cell_type != "code" or not cell.source.startswith("# Claim "):
            continue
        line = cell.source.splitlines()[0]
        header = _HEADER.fullmatch(line)
        name, source, how, outcome = header.groups() if header else (None,) * 4
        outcome = outcome or OUTCOMES[0]
        if how not in HOW or outcome not in OUTCOMES:
            raise ValueError(f"{chapter}: `{line}` must read `# Claim ID · source · how`, how one "
                             f"of {', '.join(HOW)}, then perhaps ` · ` and one of "
                             f"{', '.join(OUTCOMES)}")
        if name in found or name not in stated:
            trouble = "checked twice" if name in found else "checked but not stated"
            raise ValueError(f"{chapter}: claim {name} is {trouble}")
        found[name] = Claim(name, stated[name], source, how, outcome, chapter, cell.id)
    for name in stated.keys() - found.keys():
        raise ValueError(f"{chapter}: claim {name} is stated but not checked")
    return list(found.values())


def register(root: Path = ROOT) -> list[Claim]:
    """The claims of all chapters of the book, from their current results.

    Raises
    ------
    ValueError
        If a chapter has no current result, or two chapters use one name.
    """
    claims: dict[str, Claim] = {}
    for chapter in chapters(root):
        for claim in claims_of(chapter.docname, _ran(chapter).cells):
            if claim.name in claims:
                raise ValueError(f"claim {claim.name} stands in {claims[claim.name].chapter} "
                                 f"and in {claim.chapter}")
            claims[claim.name] = claim
    return list(claims.values())


def _ran(chapter: Chapter):
    notebook = executed(chapter)
    if notebook is None:
        raise ValueError(f"{chapter.docname} has no current result: build the book first")
    return notebook


if __name__ == "__main__":
    json.dump([asdict(claim) for claim in register()], sys.stdout, ensure_ascii=False, indent=1)
