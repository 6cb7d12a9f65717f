"""The scripts of the page on sweeps run; the one for SLURM on a local cluster in its place."""

import os
import re
import subprocess
import sys
from pathlib import Path

from manyheads import sweep

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "explore" / "sweeps.md").read_text()

STAND_IN = """
from distributed import LocalCluster

class SLURMCluster(LocalCluster):
    def __init__(self, *, cores, processes, memory, walltime, job_script_prologue):
        assert processes <= cores and walltime and memory and job_script_prologue
        super().__init__(n_workers=1, threads_per_worker=1, host="127.0.0.1",
                         dashboard_address="127.0.0.1:0")

    def adapt(self, minimum_jobs, maximum_jobs):
        assert minimum_jobs <= maximum_jobs
"""


def test_the_scripts_of_the_page_run(tmp_path):
    first, _, slurm = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "margins.py").write_text(first)
    (tmp_path / "slurm_margins.py").write_text(slurm.replace("range(100)", "range(3)"))
    (tmp_path / "dask_jobqueue.py").write_text(STAND_IN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib"), "OMP_NUM_THREADS": "1"}

    def run(*command):
        subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, check=True,
                       timeout=240)
        return sweep.load(tmp_path / "margins.parquet")

    by_processes = run("margins.py")
    assert len(by_processes) == 12 and by_processes["margin"].notna().all()
    command = re.search(r"```sh\nmanyheads (.*?)```", PAGE, re.S)[1].replace("\\\n", "").split()
    by_command = run("-m", "manyheads", *command)
    assert by_command["margin"].tolist() == by_processes["margin"].tolist()
    by_slurm = run("slurm_margins.py")
    assert by_slurm.equals(by_processes)
