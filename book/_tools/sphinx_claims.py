"""Sphinx extension: the claims ledger, written from what ran.

Where the page ``book/together/claims`` holds a line ``% ledger of NAME``, the
named part of the register (`claims.register`) takes its place; every cell that
checks a claim gets an anchor for the ledger's links; and the whole register is
written as JSON beside the page.
"""

__all__ = ["setup"]

import json
import posixpath
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import nbformat
import yaml
from claims import HOW, OUTCOMES, register

PAGE = "book/together/claims"
PAPERS = "book/together/papers.yml"


def setup(app):
    app.connect("source-read", insert_ledger)
    app.connect("source-read", insert_anchors, priority=600)  # after the outputs are in
    app.connect("build-finished", write_json)
    return {"parallel_read_safe": False, "env_version": 1}


def insert_ledger(app, docname, source) -> None:
    """Fill the page in."""
    if docname != PAGE:
        return
    claims = register(Path(app.srcdir))
    papers = yaml.safe_load((Path(app.srcdir) / PAPERS).read_text())
    titles = {name: title_of(notebook) for name, notebook in app.results.items()}
    parts = {"counts": counts(claims), "papers": of_papers(papers, claims),
             "chapters": of_chapters(claims, titles)}
    source[0] = re.sub(r"^% ledger of (\w+)$", lambda line: parts[line[1]], source[0], flags=re.M)
    app.env.note_reread()  # claims change with their chapters, not with this page


def insert_anchors(app, docname, source) -> None:
    """A target before every cell that checks a claim."""
    if docname not in app.results:
        return
    notebook = nbformat.reads(source[0], as_version=4)
    cells = []
    for cell in notebook.cells:
        name = re.match(r"# Claim (\S+)", cell.source) if cell.cell_type == "code" else None
        if name:
            anchor = f'<span class="claim-anchor" id="{anchor_of(name[1])}"></span>'
            cells.append(nbformat.v4.new_markdown_cell(anchor, id=f"anchor-{cell.id}"[:64]))
        cells.append(cell)
    notebook.cells = cells
    source[0] = nbformat.writes(notebook)


def write_json(app, exception) -> None:
    """The register as ``claims.json`` in the folder of the page."""
    if exception is None and PAGE in app.env.found_docs:
        claims = [asdict(claim) for claim in register(Path(app.srcdir))]
        path = Path(app.outdir) / posixpath.dirname(PAGE) / "claims.json"
        path.write_text(json.dumps(claims, ensure_ascii=False, indent=1) + "\n")


def title_of(notebook) -> str:
    """The first heading of a chapter."""
    return notebook.cells[0].source.splitlines()[0].removeprefix("# ")


def anchor_of(name: str) -> str:
    return "claim-" + name.replace(".", "-")


def link_to(claim) -> str:
    """A link to the cell that checks the claim."""
    page = posixpath.relpath(claim.chapter, posixpath.dirname(PAGE))
    return f'<a href="{page}.html#{anchor_of(claim.name)}">{claim.name}</a>'


def counts(claims) -> str:
    """How many claims there are of each kind: a table of outcomes by ways of checking."""
    number = Counter((claim.how, claim.outcome) for claim in claims)
    rows = [["checked by", *OUTCOMES, "together"]]
    for how, meaning in HOW.items():
        line = [number[how, outcome] for outcome in OUTCOMES]
        rows.append([f"*{how}*: {meaning}", *line, sum(line)])
    total = [sum(row[column] for row in rows[1:]) for column in range(1, len(OUTCOMES) + 2)]
    return table([*rows, ["all", *total]], widths="5 1 2 1 1")


def of_papers(papers, claims) -> str:
    """Every claim of the papers' abstracts with what the book found.

    Raises
    ------
    ValueError
        If an entry has an unknown outcome, or rests on a claim that does not exist.
    """
    known = {claim.name: claim for claim in claims}
    parts = []
    for paper in papers:
        rows = [["the paper says", "found here", "outcome", "claims"]]
        for entry in paper["claims"]:
            missing = [name for name in entry["ids"] if name not in known]
            if missing or not entry["ids"] or entry["outcome"] not in (*OUTCOMES, "holds in part"):
                raise ValueError(f"{PAPERS}: {entry['says']!r} needs an outcome and the ids of "
                                 f"claims; unknown: {missing}")
            links = ", ".join(link_to(known[name]) for name in entry["ids"])
            rows.append([entry["says"], entry["found"], f"**{entry['outcome']}**", links])
        parts.append(f"### {paper['title']}\n\n{table(rows, widths='4 5 2 2')}")
    return "\n\n".join(parts)


def of_chapters(claims, titles) -> str:
    """All claims, chapter by chapter."""
    parts = []
    for chapter in dict.fromkeys(claim.chapter for claim in claims):
        rows = [["claim", "statement", "whose", "checked", "outcome"]]
        for claim in (claim for claim in claims if claim.chapter == chapter):
            statement = absolute(claim.statement, posixpath.dirname(chapter))
            rows.append([link_to(claim), statement, claim.source, claim.how, claim.outcome])
        parts.append(f"### {titles[chapter]}\n\nTested by `make test`, which runs "
                     f"{{doc}}`/{chapter}` anew.\n\n{table(rows, widths='1 6 2 1 2')}")
    return "\n\n".join(parts)


def absolute(text: str, folder: str) -> str:
    """`text` with its links to pages written from the root, so that they hold on any page."""
    def rooted(match: re.Match) -> str:
        before, target = match[1] or "", match[2]
        target = target if target.startswith("/") else posixpath.normpath(f"/{folder}/{target}")
        return f"{{doc}}`{before}<{target}>`" if before else f"{{doc}}`{target}`"

    return re.sub(r"\{doc\}`(?:([^`<]+)<)?([^`<>]+)>?`", rooted, text)


def table(rows: list[list], *, widths: str) -> str:
    """A MyST list-table; the first row is its head."""
    lines = ["::::{list-table}", ":header-rows: 1", f":widths: {widths}", ":class: ledger", ""]
    for row in rows:
        for column, entry in enumerate(row):
            lines.append(("* - " if column == 0 else "  - ") + " ".join(str(entry).split()))
    return "\n".join([*lines, "::::"])
