"""Where a sweep keeps its finished cells: files as joblib.Memory lays them out, under a mark.

The mark alone says whether a stored result is good. joblib's own comparison of sources is
left out: it empties the folder when a comment changed, under the feet of another sweep.
"""

__all__ = ["Store", "read", "versions", "write"]

import ast
import hashlib
import inspect
import os
import platform
import sys
import textwrap
import uuid
from importlib import metadata
from pathlib import Path

import joblib
from joblib.func_inspect import filter_args

from manyheads._checks import refuse

# They run cells and keep results; no result depends on them.
_MACHINERY = {f"{__package__}.{name}" for name in
              ("sweep", "_store", "_engines", "cli", "__main__")}


class Store:
    """The place of each cell of a function in a cache folder."""

    def __init__(self, folder: Path, function):
        self.function = function
        place = folder.absolute() / mark(function)
        try:
            memory = joblib.Memory(place, verbose=0)
            cached = memory.cache(function)
        except OSError as error:
            refuse("cache", "a folder that can be written", f"{folder}: {error.strerror}")
        self.folder = Path(memory.store_backend.location, cached.func_id)

    def path(self, cell: dict) -> Path:
        """The file of a cell's result, there or not."""
        name = joblib.hash(filter_args(self.function, [], (), cell))
        return self.folder / name / "output.pkl"


def read(path: Path) -> dict | None:
    """The stored result; None if there is none, or one that cannot be read."""
    try:
        result = joblib.load(path)
    except Exception:  # not there; or cut short, overwritten, of another library: no pickle
        return None
    return result if isinstance(result, dict) else None


def write(result: dict, path: Path) -> None:
    """Store a result, whole or not at all, whoever else writes it.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")  # unique over machines
    try:
        joblib.dump(result, part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def mark(function) -> str:
    """A hash of what the function's results depend on, as far as it can be seen."""
    plain = inspect.isfunction(function) and function.__name__ != "<lambda>"
    if not plain or function.__closure__:
        refuse("function", "a plain `def`, no lambda and no closure, to be cached", function)
    parts = [*_sources(function, {})]
    for name, module in sorted(sys.modules.items()):
        ours = name.partition(".")[0] == __package__ and name not in _MACHINERY
        if ours and module.__file__:
            parts.append(name + _code(Path(module.__file__).read_text()))
    parts.append(repr(versions()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _sources(function, seen: dict) -> list[str]:
    """The code of a function and of the functions of its module that it names, at any remove."""
    if function not in seen:
        try:
            source = textwrap.dedent(inspect.getsource(function))
        except OSError:
            refuse("function", "one whose source can be read, to be cached", function)
        seen[function] = _code(source)
        for node in ast.walk(ast.parse(source)):
            other = function.__globals__.get(node.id) if isinstance(node, ast.Name) else None
            if inspect.isfunction(other) and other.__module__ == function.__module__:
                _sources(other, seen)
    return list(seen.values())


def _code(source: str) -> str:
    """The source without comments, docstrings and line numbers."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            if isinstance(body[0].value, ast.Constant):
                del body[0]
    return ast.dump(tree)


def versions() -> dict[str, str]:
    """The versions of what results rest on."""
    return {"python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "torch")}}


def version(name: str) -> str:
    """That of an installed distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # run from its folder
        return "not installed"
