"""Sweeps under attack: killed workers, two at a time on one cache, a full disk, damaged files."""

import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pandas as pd
import pytest

from manyheads import sweep
from manyheads._engines import ENGINES

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "lib"), "OMP_NUM_THREADS": "1"}

# A cell notes each start; cell 3 kills its own process the first time it runs.
SUICIDE = """
    import os, signal, sys, time
    from pathlib import Path
    from manyheads import sweep

    def cell(number, deadly):
        with open("starts", "a") as starts:
            starts.write(f"{number}\\n")
        if number == deadly and not Path("died").exists():
            Path("died").touch()
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": number**2}

    if __name__ == "__main__":
        grid = sweep.product(number=range(8), deadly=[int(sys.argv[2])])
        frame = sweep.run(cell, grid, engine=sys.argv[1], cache="cache", progress=False)
        frame.drop(columns="deadly").to_csv("table.csv", index=False)
"""
TABLE = "number,square\n" + "".join(f"{n},{n**2}\n" for n in range(8))


def write(folder, source):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(source))
    return [sys.executable, str(script)]


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_a_worker_killed_in_a_cell_costs_that_cell_alone(engine, tmp_path):
    command = write(tmp_path, SUICIDE)
    done = subprocess.run([*command, engine, "3"], cwd=tmp_path, env=ENVIRONMENT, text=True,
                          capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table.csv").read_text() == TABLE, "not the table of an undisturbed run"
    starts = (tmp_path / "starts").read_text().split()
    # The killed cell ran again; at most those that died with it did too.
    assert starts.count("3") >= 2 and len(starts) <= 8 + 2 + os.cpu_count()
    again = subprocess.run([*command, engine, "-1"], cwd=tmp_path, env=ENVIRONMENT, timeout=240)
    assert again.returncode == 0


HELD = """
    import sys, time
    from pathlib import Path
    from manyheads import sweep

    def cell(number):
        with open("starts", "a") as starts:
            starts.write(f"{number}\\n")
        while number >= 4 and Path("hold").exists():
            time.sleep(0.01)
        return {"square": number**2}

    if __name__ == "__main__":
        sweep._REPORT_EVERY = 0
        frame = sweep.run(cell, sweep.product(number=range(8)), engine="dask", cache="cache")
        frame.to_csv("table.csv", index=False)
"""


def test_a_killed_dask_sweep_goes_on_where_it_was(tmp_path):
    command = write(tmp_path, HELD)
    (tmp_path / "hold").touch()
    first = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, text=True,
                             stderr=subprocess.PIPE, start_new_session=True)
    for line in first.stderr:
        if line.startswith("4 of 8 cells"):
            break
    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    first.stderr.close()
    (tmp_path / "hold").unlink()
    again = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, text=True, capture_output=True,
                           timeout=240)
    assert again.returncode == 0 and "4 of them stored before" in again.stderr, again.stderr
    assert (tmp_path / "table.csv").read_text() == TABLE
    starts = (tmp_path / "starts").read_text().split()
    assert all(starts.count(str(number)) == 1 for number in range(4)), "a stored cell ran again"


def test_two_sweeps_on_one_cache_agree(tmp_path):
    command = write(tmp_path, """
        import sys, time
        from manyheads import sweep

        def cell(number):
            time.sleep(0.01)
            return {"square": number**2, "text": "x" * 10_000}

        if __name__ == "__main__":
            grid = sweep.product(number=range(40))
            frame = sweep.run(cell, grid, engine="processes", cache="cache", progress=False)
            frame[["number", "square"]].to_csv(sys.argv[1], index=False)
    """)
    both = [subprocess.Popen([*command, name], cwd=tmp_path, env=ENVIRONMENT)
            for name in ("one.csv", "two.csv")]
    assert [process.wait(timeout=240) for process in both] == [0, 0]
    one, two = ((tmp_path / name).read_text() for name in ("one.csv", "two.csv"))
    assert one == two and pd.read_csv(tmp_path / "one.csv")["square"].iloc[-1] == 39**2
    assert not list((tmp_path / "cache").rglob("output.pkl.*")), "parts left behind"


def large(number, folder, size):
    with open(Path(folder) / "calls", "a") as calls:
        calls.write(f"{number}\n")
    return {"bytes": os.urandom(size)}


def test_a_full_disk_is_named_and_costs_nothing_stored(tmp_path):
    """A limit on the size of files is a disk that is full for the large results alone."""
    def grid(*sizes):
        return [{"number": n, "folder": str(tmp_path), "size": size} for n, size in enumerate(sizes)]

    cells = grid(10, 20, 200_000, 30)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError) as error:
            sweep.run(large, cells, cache=tmp_path / "cache", progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert re.search("a result of the sweep cannot be stored; 2 are. Make room", str(error.value))
    frame = sweep.run(large, cells, cache=tmp_path / "cache", progress=False)
    assert frame["bytes"].map(len).tolist() == [10, 20, 200_000, 30]
    assert (tmp_path / "calls").read_text().split() == ["0", "1", "2", "2", "3"]


@pytest.mark.parametrize("damage", [b"", b"\x80\x04garbage", "half"])
def test_a_damaged_result_is_computed_again(damage, tmp_path):
    cells = [{"number": n, "folder": str(tmp_path), "size": 50} for n in range(2)]
    whole = sweep.run(large, cells, cache=tmp_path / "cache", progress=False)
    files = sorted((tmp_path / "cache").rglob("output.pkl"))
    content = files[0].read_bytes()
    files[0].write_bytes(content[: len(content) // 2] if damage == "half" else damage)
    again = sweep.run(large, cells, cache=tmp_path / "cache", progress=False)
    assert len((tmp_path / "calls").read_text().split()) == 3
    assert again["number"].tolist() == whole["number"].tolist()


def test_dask_reports_failed_cells_and_goes_on(tmp_path):
    def root_of(side):
        if side < 0:
            raise ArithmeticError(f"no root of {side}")
        return {"root": side**0.5}

    with pytest.raises(sweep.CellError) as error:
        sweep.run(root_of, sweep.product(side=[4, -1, 9]), engine="dask", progress=False)
    assert "1 of 3 cells failed:\nside=-1: ArithmeticError: no root of -1" in str(error.value)
    assert error.value.finished["root"].tolist() == [2, 3]


def test_a_scheduler_by_its_address():
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1",
                      dashboard_address="127.0.0.1:0") as cluster:
        frame = sweep.run(lambda side: {"area": side**2}, sweep.product(side=range(5)),
                          engine="dask", address=cluster.scheduler_address, progress=False)
    assert frame["area"].tolist() == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("deadly", [False, True])
def test_a_result_lost_with_its_worker_is_computed_again(deadly, tmp_path):
    """Cell 1 is finished when its worker is killed, before anybody has its result."""
    def cell(number):
        import os
        import signal
        import time

        with open(tmp_path / f"pids-{number}", "a") as pids:
            pids.write(f"{os.getpid()}\n")
        runs = len((tmp_path / f"pids-{number}").read_text().split())
        while number == 1 and not (tmp_path / "first").exists():
            time.sleep(0.01)
        if number == 1 and deadly and runs > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": number**2}

    jobs = [(number, {"number": number}, None) for number in range(2)]
    outcomes = ENGINES["dask"](cell, jobs, None)
    assert next(outcomes) == (0, {"square": 0}, None)
    while not (tmp_path / "pids-1").exists() or not (tmp_path / "pids-1").read_text():
        time.sleep(0.01)
    (tmp_path / "first").touch()
    time.sleep(1)  # it is finished
    os.kill(int((tmp_path / "pids-1").read_text()), signal.SIGKILL)
    time.sleep(1)  # the scheduler knows
    index, result, failure = next(outcomes)
    assert index == 1 and len((tmp_path / "pids-1").read_text().split()) > 1
    if deadly:
        assert result is None and failure[0].startswith("KilledWorker: ")
    else:
        assert (result, failure) == ({"square": 1}, None)
    assert list(outcomes) == []


def test_a_scheduler_that_goes_away_is_named(tmp_path):
    from distributed import LocalCluster

    def cell(number):
        import time

        while number == 1:
            time.sleep(0.01)
        return {"square": number**2}

    jobs = [(number, {"number": number}, None) for number in range(2)]
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1",
                      dashboard_address="127.0.0.1:0") as cluster:
        outcomes = ENGINES["dask"](cell, jobs, cluster.scheduler_address)
        assert next(outcomes) == (0, {"square": 0}, None)
        cluster.close()
        with pytest.raises(ConnectionError, match="the Dask scheduler went away"):
            next(outcomes)


@pytest.mark.parametrize(("given", "message"), [
    ({"engine": "dask", "address": "nowhere"}, "`address` must be that of a Dask scheduler"),
    ({"engine": "dask", "address": 3}, "`address` must be a string"),
    ({"engine": "serial", "address": "tcp://127.0.0.1:1"}, "given for engine='dask' alone"),
])
def test_bad_input_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        sweep.run(lambda side: {}, [{"side": 1}], progress=False, **given)


def test_no_import_of_dask_before_it_is_used():
    code = "import sys, manyheads.sweep, manyheads.cli; assert 'distributed' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True)
