"""The build of a small book: what it executes, what it refuses, what it leaves.

Each test writes a book of two notebooks and a package of two modules, with the
machinery and the configuration of this one, and runs the commands on it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("_config.yml", "constraints.txt", "book/_tools", "book/_style", "book/_explorers",
          "book/references.bib")
TOC = """\
format: jb-book
root: book/one
chapters:
  - file: book/part/two
"""


class Book:
    """A small book in `root`: chapter one imports `tiny.near`, which imports `tiny.far`."""

    def __init__(self, root: Path):
        self.root = root
        for name in COPIED:
            source, target = ROOT / name, root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(source, target)
        self.write("_toc.yml", TOC)
        self.write("lib/tiny/__init__.py", "")
        self.write("lib/tiny/near.py", "from .far import VALUE\n")
        self.write("lib/tiny/far.py", "VALUE = 41\n")
        self.write("lib/tiny/other.py", "VALUE = 0\n")
        self.notebook("one", ["# One\n\nProse.", "from tiny import near\nprint(near.VALUE)"])
        self.notebook("part/two", ["# Two", "value = 1\nvalue"])

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def notebook(self, name: str, cells: list[str]) -> None:
        """Write a notebook whose first cell is prose and the others code."""
        prose, *code = cells
        made = [new_markdown_cell(prose), *map(new_code_cell, code)]
        for number, cell in enumerate(made):
            cell.id = f"cell-{number}"
        spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        self.write(f"book/{name}.ipynb",
                   nbformat.writes(new_notebook(cells=made, metadata={"kernelspec": spec})))

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def run(self, *command, **environment) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=self.root, text=True, capture_output=True,
                              env={**os.environ, **environment}, timeout=120)

    def tool(self, name: str, **environment) -> subprocess.CompletedProcess:
        return self.run(sys.executable, f"book/_tools/{name}.py", **environment)

    def execute(self) -> dict[str, str]:
        """Execute what is out of date; return `run` or `cached` for each chapter."""
        done = self.tool("execution")
        assert done.returncode == 0, done.stderr
        return {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines()}

    def page(self, name: str) -> str:
        return (self.root / "_build" / "html" / "book" / f"{name}.html").read_text()


@pytest.fixture
def book(tmp_path):
    return Book(tmp_path)


BOTH_CACHED = {"book/one": "cached", "book/part/two": "cached"}
ONE_RUN = {"book/one": "run", "book/part/two": "cached"}


def test_only_what_changed_is_executed(book):
    assert book.execute() == {"book/one": "run", "book/part/two": "run"}
    assert book.execute() == BOTH_CACHED
    book.edit("book/one.ipynb", "Prose", "Other prose")
    assert book.execute() == BOTH_CACHED
    book.edit("lib/tiny/other.py", "0", "1")  # nobody imports it
    assert book.execute() == BOTH_CACHED
    book.edit("lib/tiny/near.py", "VALUE", "VALUE  # imported by chapter one")
    assert book.execute() == ONE_RUN
    book.edit("lib/tiny/far.py", "41", "42")  # through another module
    assert book.execute() == ONE_RUN
    book.edit("lib/tiny/__init__.py", "", "NAME = 'tiny'\n")  # a package runs before its modules
    assert book.execute() == ONE_RUN
    book.edit("book/part/two.ipynb", "value = 1", "value = 2")
    assert book.execute() == {"book/one": "cached", "book/part/two": "run"}


def test_a_file_that_is_read_counts(book):
    book.write("book/part/data.csv", "1,2\n")
    book.notebook("part/two", ["# Two", "print(open('data.csv').read())"])
    book.execute()
    book.write("book/part/data.csv", "1,3\n")
    assert book.execute() == {"book/one": "cached", "book/part/two": "run"}


def test_a_raising_cell_fails_every_build(book):
    book.notebook("part/two", ["# Two", "value = 0", "top = 1\ntop / value"])
    for attempt in ("first", "second"):
        build = book.tool("build")
        assert build.returncode != 0, attempt
        assert "book/part/two.ipynb, cell 3, line 2: top / value" in build.stderr
        assert "ZeroDivisionError: division by zero" in build.stderr
        assert not (book.root / "_build/html/book/part/two.html").exists()
    plain = book.run(Path(sys.executable).with_name("jupyter-book"), "build", ".")
    assert plain.returncode != 0
    assert "book/part/two.ipynb, cell 3, line 2" in plain.stdout + plain.stderr


def test_a_kernel_that_dies_or_hangs_fails(book):
    book.notebook("one", ["# One", "import os\nos._exit(1)"])
    book.notebook("part/two", ["# Two", "1", "import time\ntime.sleep(60)"])
    book.edit("_config.yml", "timeout: 300", "timeout: 2")
    done = book.tool("execution")
    assert done.returncode != 0
    assert "book/one.ipynb, cell 2\n" in done.stderr and "DeadKernelError" in done.stderr
    assert "book/part/two.ipynb, cell 3\n" in done.stderr and "CellTimeoutError" in done.stderr


def test_a_warning_fails_every_build(book):
    prose = "# Two\n\nA line.\n\nSee {ref}`nowhere`."
    book.notebook("part/two", [prose, "1"])
    for attempt in ("first", "second"):
        build = book.tool("build")
        assert build.returncode != 0, attempt
        assert "book/part/two.ipynb, cell 1, line 5: WARNING" in build.stderr
        assert "nowhere" in build.stderr


def test_pages_are_those_of_the_toc_and_of_today(book):
    book.notebook("stray", ["# Stray", "open('executed', 'w')"])
    build = book.tool("build")
    assert build.returncode == 0, build.stdout + build.stderr
    assert build.stdout.rstrip().endswith("open _build/html/index.html")
    assert (book.root / "_build/html/index.html").exists()
    assert ">41\n" in book.page("one") and "Two" in book.page("part/two")
    published = {path.name for path in (book.root / "_build/html").rglob("*stray*")}
    assert not published and not list(book.root.rglob("executed.*"))
    assert not (book.root / "book/executed").exists()

    # Sphinx alone would keep the page of a chapter whose file did not change.
    book.edit("lib/tiny/far.py", "41", "42")
    plain = book.run(Path(sys.executable).with_name("jupyter-book"), "build", ".")
    assert plain.returncode == 0, plain.stderr
    assert ">42\n" in book.page("one")

    book.write("_toc.yml", TOC.partition("chapters")[0])
    (book.root / "book/part/two.ipynb").unlink()
    assert book.tool("build").returncode == 0
    assert not list((book.root / "_build/html").rglob("two*"))


def test_a_killed_run_keeps_the_finished_chapters(book):
    wait = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(.1)"
    book.notebook("part/two", ["# Two", wait])
    command = [sys.executable, "book/_tools/execution.py"]
    with subprocess.Popen(command, cwd=book.root, text=True, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline().split()[::3] == ["book/one", "run"]
        running.send_signal(signal.SIGKILL)
    book.write("book/part/go", "")
    assert book.execute() == {"book/one": "cached", "book/part/two": "run"}


def test_chapters_run_in_this_environment_whatever_the_user_has(book):
    spec = {"argv": ["false"], "display_name": "theirs", "language": "python"}
    for folder in ("home/.local/share/jupyter", "path"):
        book.write(f"{folder}/kernels/python3/kernel.json", json.dumps(spec))
    book.write("home/.ipython/profile_default/startup/first.py", "print = None\n")
    book.write("elsewhere/tiny/near.py", "VALUE = 'theirs'\n")
    book.notebook("part/two", ["# Two", "import sys, matplotlib\nprint(sys.executable)",
                               "matplotlib.get_backend()"])
    build = book.tool("execution", HOME=str(book.root / "home"), PYTHONPATH="elsewhere",
                      JUPYTER_PATH=str(book.root / "path"), JUPYTER_PREFER_ENV_PATH="0",
                      MPLBACKEND="agg")
    assert build.returncode == 0, build.stderr
    results = book.root / "_build" / "executed" / "book"
    assert "41" in (results / "one.ipynb").read_text()
    two = (results / "part" / "two.ipynb").read_text()
    assert sys.executable in two and "inline" in two


def test_refresh_writes_the_same_bytes(book):
    figure = ("import sys\nimport matplotlib.pyplot as plt\nprint('to stderr', file=sys.stderr)\n"
              "plt.plot([1, 2])\nplt.show()")
    slow = "import time\nprint('a', flush=True)\ntime.sleep(0.5)\nprint('b')"
    book.notebook("part/two", ["# Two", "1 + 1", figure, slow])
    names = ["book/one.ipynb", "book/part/two.ipynb"]

    def refresh():
        done = book.tool("refresh")
        assert done.returncode == 0, done.stderr
        return [(book.root / name).read_bytes() for name in names]

    first = refresh()
    assert refresh() == first
    shutil.rmtree(book.root / "_build")  # and again when everything is executed anew
    assert refresh() == first
    two = nbformat.reads(first[1].decode(), as_version=4)
    prose, launch, *cells = two.cells
    assert launch.id == "launch" and launch.metadata.tags == ["remove-cell"]
    assert [cell.execution_count for cell in [launch, *cells]] == [1, 2, 3, 4]
    assert [output.text for output in cells[2].outputs] == ["a\nb\n"]
    assert cells[0].outputs[0].data["text/plain"] == "2"
    assert [list(output.data) for output in cells[1].outputs] == [["text/plain"]]
    assert [cell.id for cell in [prose, *cells]] == ["cell-0", "cell-1", "cell-2", "cell-3"]
    assert not any(cell.metadata for cell in [prose, *cells])
    assert "version" not in two.metadata.language_info


def test_code_in_markdown_is_refused(book):
    book.write("_toc.yml", TOC + "  - file: book/three\n")
    book.write("book/three.md", "# Three\n\n```{code-cell}\n1 / 0\n```\n")
    done = book.tool("execution")
    assert done.returncode != 0 and "book/three.md holds a code cell" in done.stderr
