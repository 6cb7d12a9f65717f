"""The register of claims: each claim in the text has a cell that checks it, and can fail."""

import ast
import sys

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from tests.book.test_repository import CHAPTERS, ROOT, nbformat

sys.path.insert(0, str(ROOT / "book" / "_tools"))
from claims import Claim, claims_of  # noqa: E402


def cells_of(path):
    return nbformat.read(path, as_version=4).cells


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_claim_of_a_chapter_is_stated_and_asserted(path):
    cells = {cell.id: cell for cell in cells_of(path)}
    claims = claims_of(path.stem, list(cells.values()))
    assert claims, "a chapter without a claim"
    for claim in claims:
        tree = ast.parse(cells[claim.cell].source)
        checks = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        assert checks or "assert_close(" in cells[claim.cell].source, f"{claim.name} asserts nothing"
        assert not any(isinstance(node.test, ast.Constant) for node in checks), claim.name
        assert len(claim.statement) > 20, claim


def test_no_two_chapters_use_one_name():
    names = [claim.name for path in CHAPTERS for claim in claims_of(path.stem, cells_of(path))]
    assert len(names) == len(set(names))


def test_a_claim_has_its_statement_source_and_outcome():
    cells = [
        new_markdown_cell("Before.\n\n**Claim C1.2 (a finding).** It is so,\nin a way.\n\nAfter."),
        new_code_cell("# Claim C1.2 · Adler 2026, Theorem 3 · exact · holds with another constant\n"
                      "assert 1 + 1 == 2", id="here"),
    ]
    assert claims_of("chapter", cells) == [
        Claim("C1.2", "It is so, in a way.", "Adler 2026, Theorem 3", "exact",
              "holds with another constant", "chapter", "here")
    ]


@pytest.mark.parametrize(("prose", "code", "message"), [
    ("**Claim C1.1.** So.", ["assert x"], "C1.1 is stated but not checked"),
    ("So.", ["# Claim C1.1 · ours · exact\nassert x"], "C1.1 is checked but not stated"),
    ("**Claim C1.1.** So.", ["# Claim C1.1 · ours · exact\nassert x"] * 2, "checked twice"),
    ("**Claim C1.1.** So.", ["# Claim C1.1\nassert x"], "must read"),
    ("**Claim C1.1.** So.", ["# Claim C1.1 · ours · felt\nassert x"], "how one of proved"),
    ("**Claim C1.1.** So.", ["# Claim C1.1 · ours · exact · maybe\nassert x"], "one of holds"),
    ("**Claim C1.1.** So.", ["# Claim one · ours · exact\nassert x"], "must read"),
])
def test_a_claim_that_is_not_in_order_is_refused(prose, code, message):
    with pytest.raises(ValueError, match=message):
        claims_of("chapter", [new_markdown_cell(prose), *map(new_code_cell, code)])
