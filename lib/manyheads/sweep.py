"""A function on a grid of parameters: one row a cell, stored as it goes, resumed where it stopped.

A sweep knows nothing of what it runs. With a cache each finished cell is on disk at
once, under a mark of the code that made it, so a run that was killed goes on where it
was, and a run after an edit starts anew.
"""

__all__ = ["CellError", "load", "product", "run", "save"]

import ast
import hashlib
import inspect
import itertools
import os
import platform
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

import pandas as pd
from joblib import Memory, Parallel, cpu_count, delayed

from manyheads._checks import check_bool, check_choice, describe, refuse

_ENGINES = ("serial", "processes")
_REPORT_EVERY = 5.0  # seconds between two lines of progress


class CellError(RuntimeError):
    """Cells failed, raised when all others were done; the message has their parameters.

    Attributes
    ----------
    finished : DataFrame
        The rows of the cells that did not fail, in grid order.
    """

    def __init__(self, message: str, finished: pd.DataFrame):
        super().__init__(message)
        self.finished = finished


def product(**axes: Iterable) -> list[dict]:
    """The grid of all combinations of the values on the axes, the last axis fastest.

    Examples
    --------
    >>> product(heads=[1, 2], seed=range(2))  # doctest: +NORMALIZE_WHITESPACE
    [{'heads': 1, 'seed': 0}, {'heads': 1, 'seed': 1},
     {'heads': 2, 'seed': 0}, {'heads': 2, 'seed': 1}]
    """
    for name, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            refuse(name, "a collection of values", describe(values))
    return [dict(zip(axes, cell)) for cell in itertools.product(*axes.values())]


def run(
    function: Callable[..., dict],
    grid: list[dict],
    *,
    engine: str = "serial",
    cache: str | Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Call the function with the arguments of every cell.

    Parameters
    ----------
    function : callable
        Takes a cell's parameters by name and returns a dict of results under other names.
    grid : list of dict
        The cells, all with the same parameters; see `product`.
    engine : {"serial", "processes"}
        In this process, or in as many as there are CPUs.
    cache : path, optional
        A folder that keeps the results of finished cells. They are used again while
        the function, the functions of its module that it calls, the loaded modules
        of this package (docstrings aside) and the versions of what they rest on are the
        same; what else a function reads is not seen. The cache is read by pickle: use
        none that others have made.
    progress : bool
        Lines to stderr, at most one in five seconds: cells done, rate, time left.

    Returns
    -------
    DataFrame
        One row a cell, in grid order: its parameters, then its results.

    Raises
    ------
    CellError
        If cells failed: once all others are done, and stored.
    ValueError
        If the grid is empty or has a cell that the function does not take, or if the
        function is to be cached and is no plain `def`.

    Examples
    --------
    >>> def square(side):
    ...     return {"area": side**2}
    >>> run(square, product(side=[2, 3]), progress=False)
       side  area
    0     2     4
    1     3     9
    """
    cells = _check_grid(function, grid)
    check_choice("engine", engine, _ENGINES)
    report = _Progress(len(cells)) if check_bool("progress", progress) else lambda *counts: None
    stored = 0
    if cache is not None:
        memory = Memory(_check_path("cache", cache) / _mark(function), verbose=0)
        function = memory.cache(function)
        stored = sum(function.check_call_in_cache(**cell) for cell in cells)
    jobs = (delayed(_attempt)(function, index, cell) for index, cell in enumerate(cells))
    workers = 1 if engine == "serial" else min(cpu_count(), len(cells))
    parallel = Parallel(workers, return_as="generator_unordered")
    rows, failures = {}, {}
    report(0, stored)
    for index, result, failure in parallel(jobs):
        (rows if failure is None else failures)[index] = failure or {**cells[index], **result}
        report(len(rows) + len(failures), stored)
    frame = pd.DataFrame([rows[index] for index in sorted(rows)])
    if failures:
        lines = [f"{_words(cells[index])}: {failures[index][0]}" for index in sorted(failures)]
        lines.insert(0, f"{len(failures)} of {len(cells)} cells failed:")
        error = CellError("\n".join(lines), frame)
        error.add_note(failures[min(failures)][1])  # where the first one failed
        raise error
    return frame


def save(frame: pd.DataFrame, path: str | Path, *, command: str) -> None:
    """Write results to a Parquet file, with their provenance in its metadata.

    The provenance is the command and the versions of Python, this package, NumPy and
    torch; seeds are columns. The same results make the same bytes.

    Parameters
    ----------
    frame : DataFrame
    path : path
        Replaced whole or not at all.
    command : str
        What a reader types to make the file again.
    """
    if not isinstance(frame, pd.DataFrame) or frame.empty:
        refuse("frame", "a DataFrame with at least one row", type(frame).__name__)
    if not isinstance(command, str) or not command:
        refuse("command", "the command that made the results", describe(command))
    path = _check_path("path", path)
    frame = frame.copy()
    frame.attrs = {"command": command, "manyheads": _version("manyheads"), **_versions()}
    part = path.with_suffix(f".{os.getpid()}.part")
    frame.to_parquet(part, index=False, compression="zstd")
    part.replace(path)


def load(path: str | Path) -> pd.DataFrame:
    """The results of a file that `save` wrote; the provenance is in `.attrs`.

    Raises
    ------
    ValueError
        If there is no such file, or it has no provenance.
    """
    path = _check_path("path", path)
    if not path.is_file():
        refuse("path", "a file that `sweep.save` wrote", f"{path}, which is no file")
    frame = pd.read_parquet(path)
    if "command" not in frame.attrs:
        refuse("path", "a file that `sweep.save` wrote", f"{path}, without provenance")
    return frame


def _attempt(function, index: int, cell: dict):
    """(index, result, None), or (index, None, (error in a line, traceback))."""
    try:
        result = function(**cell)
        if not isinstance(result, dict) or set(result) & set(cell):
            refuse("function", "one that returns a dict of names that are no parameters", result)
        return index, result, None
    except Exception as error:
        # As text: not every exception survives the way back from another process.
        return index, None, (f"{type(error).__name__}: {error}", traceback.format_exc())


class _Progress:
    """Lines of progress; the rate counts the cells that were not stored before."""

    def __init__(self, total: int):
        self.total, self.start, self.last = total, time.monotonic(), -_REPORT_EVERY

    def __call__(self, done: int, stored: int) -> None:
        now = time.monotonic()
        if now - self.last < _REPORT_EVERY and done < self.total:
            return
        self.last = now
        line = f"{done} of {self.total} cells"
        if done == 0:
            line += f", {stored} of them stored before"
        # Stored cells come back within no time, wherever they are in the grid.
        computed = done - min(done, stored)
        if computed and now > self.start:
            rate = computed / (now - self.start)
            line += f", {rate:.3g} a second, {(self.total - done) / rate:.0f} s left"
        print(line, file=sys.stderr, flush=True)


def _mark(function) -> str:
    """A hash of what the function's results depend on, as far as it can be seen."""
    plain = inspect.isfunction(function) and function.__name__ != "<lambda>"
    if not plain or function.__closure__:
        refuse("function", "a plain `def`, no lambda and no closure, to be cached", function)
    parts = [*_sources(function, {})]
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == __package__ and name != __name__ and module.__file__:
            parts.append(name + _code(Path(module.__file__).read_text()))
    parts.append(repr(_versions()))
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


def _versions() -> dict[str, str]:
    """The versions of what results rest on."""
    return {"python": platform.python_version(),
            **{name: _version(name) for name in ("numpy", "torch")}}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # run from its folder
        return "not installed"


def _check_grid(function, grid) -> list[dict]:
    if not callable(function):
        refuse("function", "callable", function)
    if not isinstance(grid, list) or not grid or not all(isinstance(cell, dict) for cell in grid):
        refuse("grid", "a list of at least one dict of parameters", describe(grid))
    signature = inspect.signature(function)
    for cell in grid:
        if set(cell) != set(grid[0]):
            refuse("grid", "made of cells with the same parameters", _words(cell))
        try:
            signature.bind(**cell)
        except TypeError as error:
            refuse("grid", f"made of what the function takes ({error})", _words(cell))
    return grid


def _check_path(argument: str, path) -> Path:
    if not isinstance(path, str | Path):
        refuse(argument, "a path", describe(path))
    return Path(path)


def _words(cell: dict) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in cell.items())
