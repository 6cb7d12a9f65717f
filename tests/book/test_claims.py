"""Every claim in the text has a cell that checks it, and every such cell a claim."""

import ast
import re

import pytest

from tests.book.test_repository import CHAPTERS, nbformat

NAME = r"[CSI]\d+(?:\.\d+)?"


def claims(cells):
    """The ids claimed in prose, and the ids checked, with the code that checks them."""
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    claimed = set(re.findall(rf"\*\*Claim ({NAME})\b", prose))
    mentioned = set(re.findall(rf"\bClaim ({NAME})\b", prose))
    checked = {
        found[1]: cell.source
        for cell in cells
        if cell.cell_type == "code" and (found := re.match(rf"# Claim ({NAME})\b", cell.source))
    }
    return claimed, mentioned, checked


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_claims_and_checks_match(path):
    claimed, mentioned, checked = claims(nbformat.read(path, as_version=4).cells)
    assert claimed, "a chapter without a claim"
    assert claimed == mentioned == set(checked)
    for name, source in checked.items():
        asserts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
        # testing.assert_close is an assertion too
        assert asserts or "assert_close" in source, f"the cell of claim {name} asserts nothing"
        assert all(not isinstance(node.test, ast.Constant) for node in asserts), name


def test_no_two_chapters_use_one_id():
    names = [name for path in CHAPTERS
             for name in claims(nbformat.read(path, as_version=4).cells)[0]]
    assert len(names) == len(set(names))
