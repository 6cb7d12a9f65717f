"""A function on a grid of parameters: one row a cell, stored as it goes, resumed where it stopped.

A sweep knows nothing of what it runs. With a cache each finished cell is on disk at
once, under a mark of the code that made it, so a run that was killed goes on where it
was, and a run after an edit starts anew. The same on the command line: `manyheads sweep`.
"""

__all__ = ["CellError", "load", "product", "run", "save"]

import contextlib
import inspect
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from manyheads._checks import check_bool, check_choice, describe, refuse
from manyheads._engines import ENGINES
from manyheads._store import Store, read, version, versions, write

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
    address: str | None = None,
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
    engine : {"serial", "processes", "dask"}
        In this process, in as many as there are CPUs, or by Dask (the extra `sweep`): on a
        cluster of that many processes that lives for this sweep, or at `address`. A cell
        whose process is killed is run again, three times here.
    address : str, optional
        Of a running Dask scheduler, such as "tcp://node:8786". Its workers need this
        package, and what the function imports.
    cache : path, optional
        A folder that keeps the results of finished cells; with workers on other machines,
        one that all of them see. Results are used again while the function, the functions
        of its module that it calls, the loaded modules of this package (docstrings aside)
        and the versions of what they rest on are the same; what else a function reads is
        not seen. Sweeps that run at once may share it. The cache is read by pickle: use
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
    OSError
        At once if a result cannot be stored (the disk is full, say); what is stored stays.
    ConnectionError
        If the Dask scheduler went away.
    ImportError
        If Dask is asked for and not installed.
    ValueError
        If the grid is empty or has a cell that the function does not take, if the
        function is to be cached and is no plain `def`, or if no scheduler answers.

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
    check_choice("engine", engine, tuple(ENGINES))
    if address is not None and (engine != "dask" or not isinstance(address, str)):
        refuse("address", "a string, and given for engine='dask' alone", describe(address))
    report = _Progress(len(cells)) if check_bool("progress", progress) else lambda *counts: None
    store = None if cache is None else Store(_check_path("cache", cache), function)
    paths = [store and store.path(cell) for cell in cells]
    results = {index: result for index, path in enumerate(paths)
               if path and (result := read(path)) is not None}
    failures, stored = {}, len(results)
    report(0, stored, 0)
    jobs = [(index, cells[index], path) for index, path in enumerate(paths)
            if index not in results]
    with contextlib.closing(ENGINES[engine](function, jobs, address)) as outcomes:
        for index, result, failure in outcomes if jobs else ():
            if failure is not None:
                failures[index] = failure
            else:
                _keep(result, paths[index])
                results[index] = result
            report(len(results) + len(failures), stored, len(failures))
    if not jobs:
        report(len(cells), stored, 0)
    frame = pd.DataFrame([{**cells[index], **results[index]} for index in sorted(results)])
    if failures:
        lines = [f"{_words(cells[index])}: {failures[index][0]}" for index in sorted(failures)]
        lines.insert(0, f"{len(failures)} of {len(cells)} cells failed:")
        error = CellError("\n".join(lines), frame)
        error.add_note(failures[min(failures)][1])  # where the first one failed
        raise error
    return frame


def _keep(result: dict, path: Path | None) -> None:
    """See to it that a result is stored, or raise what says why it is not."""
    if path is None or path.exists():
        return
    try:
        write(result, path)
    except OSError as error:
        folder = path.parents[1]
        kept = sum(1 for _ in folder.glob("*/output.pkl"))
        raise OSError(error.errno, f"{error.strerror}: a result of the sweep cannot be stored; "
                      f"{kept} are. Make room and run it again: only the others are computed",
                      str(folder)) from error


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
    frame.attrs = {"command": command, "manyheads": version("manyheads"), **versions()}
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


class _Progress:
    """Lines of progress; the rate counts the cells that were not stored before."""

    def __init__(self, total: int):
        self.total, self.start, self.last = total, time.monotonic(), -_REPORT_EVERY

    def __call__(self, done: int, stored: int, failed: int) -> None:
        now = time.monotonic()
        if now - self.last < _REPORT_EVERY and done < self.total:
            return
        self.last = now
        line = f"{done} of {self.total} cells"
        if done == 0:
            line += f", {stored} of them stored before"
        if failed:
            line += f", {failed} of them failed"
        computed = done - stored
        if computed > 0 and now > self.start:
            rate = computed / (now - self.start)
            line += f", {rate:.3g} a second, {(self.total - done) / rate:.0f} s left"
        print(line, file=sys.stderr, flush=True)


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
