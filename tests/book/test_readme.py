"""The README's example runs as it stands, and says what it prints."""

import re

from tests.book.test_repository import ROOT


def test_the_readme_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    certificate = names["capacity"].certify(names["channel"], names["graph"], names["embeddings"])
    assert certificate.recovers_every_context and "recovers_every_context  # True" in example
