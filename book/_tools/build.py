"""Build the book: execute what is out of date, then write the pages to ``_build/html``.

Exits non-zero, naming chapter and cell, if a cell raises or Sphinx warns, at
every run until that is mended: results of failures are not kept, and pages are
always written from nothing.
"""

__all__ = ["locate", "main", "write_pages"]

import fcntl
import re
import shutil
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path

from chapters import ROOT
from execution import ChapterError, environment, plain, update

LEFT_BEHIND = ("html", ".doctrees", "jupyter_execute")  # by earlier builds
FIRST_PAGE = "_build/html/index.html"


def main(root: Path) -> str | None:
    """Build the book at `root`; return what is wrong, None if all is well."""
    start = time.perf_counter()
    build = root / "_build"
    build.mkdir(exist_ok=True)
    with open(build / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second build waits; closing the file unlocks
        print("executing the chapters", flush=True)
        try:
            update(root)
        except ChapterError as error:
            return f"\nFAILED: a cell raised\n{error}"
        print("writing the pages", flush=True)
        problems = write_pages(root)
        if problems:
            return "\n".join(["\nFAILED: the pages are not clean", *problems])
    print(f"built in {time.perf_counter() - start:.0f} s; open {FIRST_PAGE}")
    return None


def write_pages(root: Path) -> list[str]:
    """Write the pages anew; return the warnings and errors, none if all is well."""
    for name in LEFT_BEHIND:
        shutil.rmtree(root / "_build" / name, ignore_errors=True)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".",
               "-W", "--keep-going", "-n", "-q"]
    sphinx = subprocess.run(command, cwd=root, env=environment(root), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = [locate(line, root) for line in plain(sphinx.stdout).splitlines()]
    problems = [line for line in lines if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line)]
    if sphinx.returncode == 0 and not problems and (root / FIRST_PAGE).exists():
        return []
    # A crash: what Sphinx says of it, without the trace of Jupyter Book's own calls.
    return problems or list(takewhile(lambda line: not line.startswith("Traceback"), lines))


def locate(line: str, root: Path) -> str:
    """A line of Sphinx's with paths from `root`, and the cell where it gives a notebook's line.

    MyST-NB gives line n (from 1) of cell c (from 1, prose included) as
    10000 c + n + 1, and a whole code cell as 10000 c + 1.
    """
    def cell(match: re.Match) -> str:
        index, inside = divmod(int(match[1]) - 1, 10_000)
        return ".ipynb" + f", cell {index}" * (index > 0) + f", line {inside}" * (inside > 0) + ":"

    return re.sub(r"\.ipynb:(\d+):", cell, line.replace(f"{root}/", ""))


if __name__ == "__main__":
    sys.exit(main(ROOT))
