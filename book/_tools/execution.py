"""Execute the chapters whose results are out of date, and keep the results.

The result of a chapter is the executed notebook, kept under ``_build/executed``
with the chapter's fingerprint (`chapters.fingerprint`); it is used only while
the two agree. A chapter that raises leaves no result.

Run as a script, it brings the results up to date.
"""

__all__ = ["KEY", "ChapterError", "environment", "execute", "executed", "plain", "update"]

import os
import re
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import nbformat
import yaml
from chapters import ROOT, Chapter, chapters, fingerprint
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

KEY = "manyheads"  # where a result keeps its own data in the notebook's metadata
REPORT_EVERY = 15.0  # seconds between two lines on what is still running


class ChapterError(Exception):
    """A cell of a chapter raised; the message names chapter, cell, line and error."""


def environment(root: Path) -> dict[str, str]:
    """The environment variables chapters run with: the library of this tree, one thread.

    The models are small: one torch thread is faster than two, and leaves the
    other cores to other chapters. Start-up files and a figure backend that the
    user has chosen elsewhere do not count.
    """
    return {**os.environ, "PYTHONPATH": str(root / "lib"), "OMP_NUM_THREADS": "1",
            "IPYTHONDIR": str(root / "_build" / "ipython"),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def execute(chapter: Chapter) -> nbformat.NotebookNode:
    """`chapter` executed in its folder, by a kernel of this interpreter.

    Raises
    ------
    ChapterError
        If a cell raises, runs out of time (``execute: timeout`` in
        ``_config.yml``), or ends its kernel.
    """
    notebook = chapter.read()
    config = yaml.safe_load((chapter.root / "_config.yml").read_text())
    started = []  # the indices of the cells begun so far

    # Without folders to search, python3 can only be the interpreter that runs this.
    kernel = AsyncKernelManager(kernel_name="python3",
                                kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = NotebookClient(notebook, km=kernel, timeout=config["execute"]["timeout"],
                            record_timing=False,
                            on_cell_start=lambda cell, cell_index: started.append(cell_index),
                            # else each kernel warns that it talks to us over localhost
                            extra_arguments=["--log-level=ERROR"])
    client.owns_km = True  # so that nbclient ends the kernel
    try:
        return client.execute(cwd=str(chapter.folder), env=environment(chapter.root))
    except Exception as error:
        raise ChapterError(_describe(chapter, notebook, started, error)) from error


def _describe(chapter: Chapter, notebook, started: list[int], error: Exception) -> str:
    """Where and why `chapter` failed, in two lines; cells count from 1, prose included."""
    place = f"{chapter.docname}.ipynb"
    if started:
        place += f", cell {started[-1] + 1}"
    if not isinstance(error, CellExecutionError):
        return f"{place}\n    {type(error).__name__}: {str(error).strip()}"
    line = re.search(r"Cell In\[\d+\], line (\d+)", plain(error.traceback))
    if line:
        source = notebook.cells[started[-1]].source.splitlines()[int(line[1]) - 1]
        place += f", line {line[1]}: {source.strip()}"
    return f"{place}\n    {error.ename}: {error.evalue}"


def plain(text: str) -> str:
    """`text` without the codes that colour it on a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def executed(chapter: Chapter) -> nbformat.NotebookNode | None:
    """`chapter` as it stands, with the outputs of its result; None if that is out of date.

    ``metadata["manyheads"]`` holds the fingerprint, the seconds the execution
    took and the time (POSIX) it ended.
    """
    path = _result_path(chapter)
    if not path.exists():
        return None
    result = nbformat.read(path, as_version=4)
    if result.metadata[KEY]["fingerprint"] != fingerprint(chapter):
        return None
    notebook = chapter.read()
    notebook.metadata[KEY] = result.metadata[KEY]
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    done = [cell for cell in result.cells if cell.cell_type == "code"]
    for cell, ran in zip(cells, done, strict=True):
        cell.update(outputs=ran.outputs, execution_count=ran.execution_count)
    return notebook


def _result_path(chapter: Chapter) -> Path:
    return chapter.root / "_build" / "executed" / f"{chapter.docname}.ipynb"


def _produce(chapter: Chapter) -> float:
    """Execute `chapter`, keep the result, and return the seconds it took."""
    mark = fingerprint(chapter)  # taken before: an edit during the run makes the result stale
    start = time.perf_counter()
    notebook = execute(chapter)
    seconds = time.perf_counter() - start
    notebook.metadata[KEY] = {"fingerprint": mark, "seconds": seconds, "ended": time.time()}
    path = _result_path(chapter)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    nbformat.write(notebook, part)
    part.replace(path)  # whole or not at all, if we are killed here
    return seconds


def update(root: Path, report=partial(print, flush=True)) -> None:
    """Execute the chapters of the book at `root` that are out of date, side by side.

    As many run at a time as there are CPUs, at most 8: each kernel holds torch.
    `report` is called with a line of progress for each chapter as it finishes.

    Raises
    ------
    ChapterError
        If chapters failed, once all have run; the message has a paragraph for each.
    """
    stale, failures = [], []
    for chapter in chapters(root):
        notebook = executed(chapter)
        if notebook is None:
            stale.append(chapter)
        else:
            report(f"  {chapter.docname:<40} {notebook.metadata[KEY]['seconds']:6.1f} s  cached")

    start = time.perf_counter()
    pool = ThreadPoolExecutor(min(os.cpu_count() or 1, 8))
    waiting = {pool.submit(_produce, chapter): chapter for chapter in stale}
    try:
        while waiting:
            done, _ = wait(waiting, timeout=REPORT_EVERY, return_when=FIRST_COMPLETED)
            for future in done:
                name = waiting.pop(future).docname
                try:
                    report(f"  {name:<40} {future.result():6.1f} s  run")
                except ChapterError as error:
                    report(f"  {name:<40}           FAILED")
                    failures.append(str(error))
            if not done:
                names = [chapter.docname for future, chapter in waiting.items() if future.running()]
                report(f"  … {time.perf_counter() - start:.0f} s, running: {', '.join(names)}")
    except KeyboardInterrupt:
        report("stopped; the finished chapters are kept")
        # Our threads still wait for their kernels, which end when this process does.
        os._exit(130)
    if failures:
        raise ChapterError("\n".join(failures))


if __name__ == "__main__":
    try:
        update(ROOT)
    except ChapterError as error:
        sys.exit(f"\nFAILED: a cell raised\n{error}")
