"""Which notebooks are chapters, and what each of them depends on.

Run as a script, it prints the path of every notebook named in ``_toc.yml``.
"""

__all__ = ["ROOT", "Chapter", "chapters", "fingerprint", "module_files"]

import ast
import hashlib
import platform
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).resolve().parents[2]

# The cell tags that change what nbclient does with a cell.
EXECUTION_TAGS = {"raises-exception", "skip-execution"}


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book: its document name and the root of its book."""

    docname: str
    root: Path

    @property
    def path(self) -> Path:
        return self.root / f"{self.docname}.ipynb"

    @property
    def folder(self) -> Path:
        return self.path.parent

    def read(self) -> nbformat.NotebookNode:
        return nbformat.read(self.path, as_version=4)


def chapters(root: Path = ROOT) -> list[Chapter]:
    """The notebooks of `_toc.yml`, in reading order.

    Raises
    ------
    ValueError
        If a markdown page holds a code cell: only notebooks are executed.
    """
    found = []
    for docname in parse_toc_yaml(root / "_toc.yml"):
        chapter = Chapter(docname, root)
        page = root / f"{docname}.md"
        if chapter.path.exists():
            found.append(chapter)
        elif page.exists() and re.search(r"^[`:]{3,}\{code-cell\}", page.read_text(), re.M):
            raise ValueError(f"{docname}.md holds a code cell; a page with code must be an .ipynb")
    return found


def fingerprint(chapter: Chapter) -> str:
    """A hash of everything the outputs of `chapter` depend on.

    That is: its code cells and kernel, every module it imports (directly or
    through other modules) from ``lib`` or from its own folder, every file these
    name by a literal path, the interpreter, and the installed version of every
    package in ``constraints.txt``. Prose is no part of it; imports and paths put
    together while running are not seen.
    """
    notebook = chapter.read()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    plain = TransformerManager().transform_cell  # turns magics into Python
    tree = ast.Module([line for cell in code for line in _parse(plain(cell.source)).body], [])
    modules = module_files(tree, chapter.folder, chapter.root / "lib")
    files = modules | _named_files(tree, chapter.folder)
    for module in modules:
        files |= _named_files(_parse(module.read_text()), module.parent)

    digest = hashlib.sha256()
    parts = [platform.python_version(), _installed(chapter.root / "constraints.txt"),
             notebook.metadata.get("kernelspec", {}).get("name", "")]
    for cell in code:
        parts += [cell.source, *sorted(EXECUTION_TAGS & set(cell.metadata.get("tags", [])))]
    for file in sorted(file for file in files if file.is_relative_to(chapter.root)):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        parts += [str(file.relative_to(chapter.root)), content]
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def module_files(tree: ast.AST, *search: Path) -> set[Path]:
    """The source files under the `search` folders that `tree` imports, at any remove."""
    found: set[Path] = set()
    todo = list(_imports(tree, package=""))
    while todo:
        name = todo.pop()
        for folder in search:
            for file in _files_of(name, folder) - found:
                found.add(file)
                package = ".".join(file.parent.relative_to(folder).parts)
                todo += _imports(_parse(file.read_text()), package)
    return found


def _imports(tree: ast.AST, package: str):
    """Every dotted name that may be a module imported by `tree`, a module of `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join(filter(None, [*parents, node.module]))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _files_of(name: str, folder: Path) -> set[Path]:
    """The files under `folder` that importing `name` runs: its packages and itself."""
    parts = name.split(".")
    stems = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    choices = [path for stem in stems for path in (stem / "__init__.py", stem.with_suffix(".py"))]
    return {path for path in choices if path.is_file()}


def _named_files(tree: ast.AST, folder: Path) -> set[Path]:
    """The files that a string in `tree` names, relative to `folder`."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {text for text in texts if isinstance(text, str) and text.isprintable()}
    paths = {(folder / name).resolve() for name in names if 0 < len(name) < 200}
    return {path for path in paths if path.is_file()}


@cache
def _parse(source: str) -> ast.Module:
    """The syntax tree of `source`; an empty one where it does not parse (running it will tell)."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.Module([], [])


@cache
def _installed(constraints: Path) -> str:
    """The installed version of each package that `constraints` names."""
    names = re.findall(r"^([\w.-]+)==", constraints.read_text(), re.M)
    installed = {re.sub("[-_.]+", "-", dist.name or "").lower(): dist.version
                 for dist in metadata.distributions()}
    return " ".join(f"{name}=={installed.get(name)}" for name in names)


if __name__ == "__main__":
    for chapter in chapters():
        print(chapter.path.relative_to(ROOT))
