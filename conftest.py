"""Every test run compares notebooks by `nbregress`, and runs the library of this tree."""

import os
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parent

# As a plugin, not as a conftest: pytest offers notebooks outside tests/ only to plugins.
sys.path.insert(0, str(ROOT / "tests"))
pytest_plugins = ["nbregress"]

# For the kernels, which start in the folder of their chapter: an installed
# manyheads may be another checkout. One thread, as in the build of the book.
paths = [str(ROOT / "lib"), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is slow, not wrong.
settings.register_profile("book", deadline=None)
settings.register_profile("shapes", deadline=None, max_examples=10)
settings.load_profile("book")
