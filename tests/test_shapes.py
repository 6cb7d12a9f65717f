"""The shapes that annotations promise hold: the library's tests, with annotations enforced."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_annotations_hold_in_every_call_of_the_tests():
    command = [sys.executable, "-m", "pytest", "tests/capacity", "tests/synergy", "-q", "-x",
               "--jaxtyping-packages=manyheads,beartype.beartype",
               "-k", "not bad_input",  # these pass what the annotations forbid
               "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=shapes"]
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    run = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
    assert run.returncode == 0, run.stdout[-3000:]
