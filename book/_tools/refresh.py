"""Write the outputs of the executed chapters back into the committed notebooks.

The figure of a cell tagged ``readme-figure`` is written out as well, for the README.

First it gives each chapter its launch cell (`launch`). It executes what is out of
date; a second run changes no byte. What is written
depends on the outputs alone: no images (a figure's text is its digest), no
messages on stderr, no timings, no version of the interpreter.
"""

__all__ = ["committed", "main"]

import sys
from pathlib import Path

import nbformat
from chapters import ROOT, chapters
from execution import KEY, ChapterError, executed, update
from launch import set_launch_cell

README_FIGURE = "book/findings.svg"
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python",
            "nbconvert_exporter": "python", "pygments_lexer": "ipython3"}
# What editors and clients leave in the metadata, and no reader needs.
EDITOR_KEYS = (KEY, "widgets", "execution", "ExecuteTime", "collapsed", "scrolled", "trusted")


def main(root: Path) -> str | None:
    """Refresh the chapters of the book at `root`; return what is wrong, None if all is well."""
    for chapter in chapters(root):
        set_launch_cell(chapter)
    try:
        update(root)
    except ChapterError as error:
        return f"\nFAILED: a cell raised; nothing is written\n{error}"
    for chapter in chapters(root):
        notebook = executed(chapter)
        for svg in readme_figures(notebook):
            (root / README_FIGURE).write_text(svg, encoding="utf-8")
        text = committed(notebook)
        if text != chapter.path.read_text(encoding="utf-8"):
            chapter.path.write_text(text, encoding="utf-8")
            print(f"  {chapter.docname:<40} written")
    return None


def readme_figures(notebook: nbformat.NotebookNode) -> list[str]:
    """The figures of `notebook` that the README shows, as SVG."""
    return [output.data["image/svg+xml"] for cell in notebook.cells
            if "readme-figure" in cell.metadata.get("tags", [])
            for output in cell.outputs if "image/svg+xml" in output.get("data", {})]


def committed(notebook: nbformat.NotebookNode) -> str:
    """The text of `notebook` as it is committed."""
    for holder in (notebook, *notebook.cells):
        for key in EDITOR_KEYS:
            holder.metadata.pop(key, None)
    notebook.metadata.update(kernelspec=KERNELSPEC, language_info=LANGUAGE)
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells):
        cell.setdefault("id", f"cell-{number}")
        if cell.cell_type == "code":
            cell.outputs = _joined([output for output in map(_without_image, cell.outputs)
                                    if output.get("name") != "stderr"])
    return nbformat.writes(notebook) + "\n"


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """`outputs` with neighbouring texts in one: where a print is cut is an accident of timing."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _without_image(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """`output` without its pictures and what describes them."""
    for part in ("data", "metadata"):
        for mime in [mime for mime in output.get(part, {}) if mime.startswith("image/")]:
            del output[part][mime]
    if output.get("metadata", {}).get("needs_background"):
        del output.metadata["needs_background"]
    return output


if __name__ == "__main__":
    sys.exit(main(ROOT))
