import os
import re
import runpy
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import joblib
import pandas as pd
import pytest

from manyheads import sweep

ROOT = Path(__file__).resolve().parents[1]


def root_of(side, power=2):
    if side < 0:
        raise ArithmeticError(f"no root of {side}")
    return {"root": side ** (1 / power)}


def log_call(side, folder):
    with open(Path(folder) / "calls", "a") as calls:
        calls.write(f"{side}\n")
    return root_of(side)


def calls(folder):
    return sorted(map(int, (Path(folder) / "calls").read_text().split()))


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_one_row_a_cell_in_grid_order(engine):
    grid = sweep.product(side=[16, 81, 1], power=(4, 2))
    frame = sweep.run(root_of, grid, engine=engine, progress=False)
    assert frame.columns.tolist() == ["side", "power", "root"]
    assert frame[["side", "power"]].to_dict("records") == grid
    assert frame["root"].round(12).tolist() == [2, 4, 3, 9, 1, 1]


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_failed_cell_stops_no_other(engine, tmp_path):
    grid = sweep.product(side=[4, -1, 9, -2, 16], folder=[str(tmp_path)])
    with pytest.raises(sweep.CellError) as error:
        sweep.run(log_call, grid, engine=engine, cache=tmp_path / "cache", progress=False)
    message = str(error.value)
    assert message.startswith("2 of 5 cells failed:\nside=-1, folder=")
    assert "ArithmeticError: no root of -1\nside=-2" in message
    assert "raise ArithmeticError" in error.value.__notes__[0]
    assert error.value.finished["root"].tolist() == [2, 3, 4]
    # The others are stored, the failures are not.
    with pytest.raises(sweep.CellError):
        sweep.run(log_call, grid, engine=engine, cache=tmp_path / "cache", progress=False)
    assert calls(tmp_path) == [-2, -2, -1, -1, 4, 9, 16]


def test_a_larger_grid_computes_only_what_is_new(tmp_path, capsys):
    for sides in ([4, 9], [1, 4, 9, 16]):
        grid = sweep.product(side=sides, folder=[str(tmp_path)])
        frame = sweep.run(log_call, grid, cache=tmp_path / "cache")
    assert frame["root"].tolist() == [1, 2, 3, 4]
    assert calls(tmp_path) == [1, 4, 9, 16]
    first, _, second, last = capsys.readouterr().err.splitlines()
    assert first == "0 of 2 cells, 0 of them stored before"
    assert second == "0 of 4 cells, 2 of them stored before"
    assert re.fullmatch(r"4 of 4 cells, \S+ a second, 0 s left", last)


SCRIPT = """
    import sys, time
    from pathlib import Path
    from manyheads import sweep

    def cell(number):
        with open("starts", "a") as starts:
            starts.write(f"{number}\\n")
        if number == 3:
            while Path("hold").exists():
                time.sleep(0.01)
        return {"square": number**2}

    if __name__ == "__main__":
        sweep._REPORT_EVERY = 0
        frame = sweep.run(cell, sweep.product(number=range(6)), engine=sys.argv[1], cache="cache")
        assert frame["square"].tolist() == [0, 1, 4, 9, 16, 25]
        print("done")
"""


@pytest.mark.parametrize(("engine", "reached"), [("serial", 3), ("processes", 5)])
def test_a_killed_run_recomputes_nothing(engine, reached, tmp_path):
    if engine == "processes" and joblib.cpu_count() == 1:
        reached = 3
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
    command = [sys.executable, str(script), engine]
    (tmp_path / "hold").touch()  # so that cell 3 is never finished
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, text=True,
                               stderr=subprocess.PIPE, start_new_session=True)
    for line in process.stderr:
        if line.startswith(f"{reached} of 6 cells"):
            break
    while "3" not in (tmp_path / "starts").read_text().split():
        pass
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()

    (tmp_path / "hold").unlink()
    again = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert again.returncode == 0 and again.stdout == "done\n", again.stderr
    assert f"0 of 6 cells, {reached} of them stored before" in again.stderr
    starts = (tmp_path / "starts").read_text().split()
    assert sorted(starts) == ["0", "1", "2", "3", "3", "4", "5"]


EDITED = """
def twice(x):
    return {factor} * x  # {comment}

def cell(x):
    calls.append(x)
    return {{"y": twice(x)}}

calls = []
"""


def test_an_edit_makes_stored_results_stale(tmp_path):
    script = tmp_path / "script.py"
    for factor, comment, called in [(2, "", [1]), (2, "a comment", []), (30, "", [1]), (2, "", [])]:
        script.write_text(EDITED.format(factor=factor, comment=comment))
        names = runpy.run_path(str(script))
        frame = sweep.run(names["cell"], [{"x": 1}], cache=tmp_path / "cache", progress=False)
        assert frame["y"].tolist() == [factor]
        assert names["calls"] == called


def test_saved_results_come_back_with_their_provenance(tmp_path):
    frame = sweep.run(root_of, sweep.product(side=[4, 9]), progress=False)
    path = tmp_path / "roots.parquet"
    sweep.save(frame, path, command="python roots.py")
    once = path.read_bytes()
    back = sweep.load(path)
    pd.testing.assert_frame_equal(back, frame)
    assert back.attrs["command"] == "python roots.py"
    assert set(back.attrs) == {"command", "python", "manyheads", "numpy", "torch"}
    assert frame.attrs == {}
    sweep.save(back, path, command="python roots.py")
    assert path.read_bytes() == once
    assert [file.name for file in tmp_path.iterdir()] == ["roots.parquet"]


def bare(folder):
    pd.DataFrame({"x": [1]}).to_parquet(folder / "bare.parquet")
    return folder / "bare.parquet"


def closure():
    side = 4
    return lambda: side


GRID = [{"side": 4}]
FRAME = pd.DataFrame({"x": [1]})

TABLE = [
    (lambda _: sweep.run(3, GRID), r"`function` .* callable; got 3"),
    (lambda _: sweep.run(root_of, []), r"`grid` .* at least one dict .* got \[\]"),
    (lambda _: sweep.run(root_of, {"side": 4}), r"`grid` .* list .* got {'side': 4}"),
    (lambda _: sweep.run(root_of, [4]), r"`grid` .* dict of parameters; got \[4\]"),
    (lambda _: sweep.run(root_of, [{"side": 4}, {"side": 4, "power": 2}]),
     r"`grid` .* same parameters; got side=4, power=2"),
    (lambda _: sweep.run(root_of, [{"sid": 4}]), r"`grid` .* the function takes \(.*\); got sid=4"),
    (lambda _: sweep.run(root_of, GRID, engine="threads"), r"`engine` .* 'dask'; got 'threads'"),
    (lambda _: sweep.run(root_of, GRID, progress=1), r"`progress` .* True or False; got 1"),
    (lambda _: sweep.run(root_of, GRID, cache=3), r"`cache` .* a path; got 3"),
    (lambda _: sweep.run(lambda side: {}, GRID, cache="c"), r"`function` .* no lambda"),
    (lambda _: sweep.run(closure(), [{}], cache="c"), r"`function` .* no closure"),
    (lambda _: sweep.product(side=4), r"`side` .* a collection of values; got 4"),
    (lambda _: sweep.product(side="ab"), r"`side` .* a collection of values; got 'ab'"),
    (lambda _: sweep.save([1], "x", command="c"), r"`frame` .* a DataFrame .* got list"),
    (lambda _: sweep.save(FRAME[:0], "x", command="c"), r"`frame` .* at least one row"),
    (lambda _: sweep.save(FRAME, "x", command=""), r"`command` .* got ''"),
    (lambda _: sweep.save(FRAME, 3, command="c"), r"`path` .* a path; got 3"),
    (lambda folder: sweep.load(folder / "none"), r"`path` .* wrote; got .*none, which is no file"),
    (lambda folder: sweep.load(bare(folder)), r"`path` .* wrote; got .* without provenance"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input_is_named(call, message, tmp_path):
    with pytest.raises(ValueError) as error:
        call(tmp_path)
    assert re.search(message.replace(" .* ", ".*"), str(error.value)), str(error.value)


def test_a_function_must_return_new_names():
    for function in (lambda side: side, lambda side: {"side": side}):
        with pytest.raises(sweep.CellError, match="side=4: ValueError: `function` must be one"):
            sweep.run(function, GRID, progress=False)
