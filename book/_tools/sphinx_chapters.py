"""Sphinx extension: pages from executed chapters, and mathematics without a network.

Sphinx itself never executes (``execute_notebooks: "off"``). Each notebook is
read with the outputs of its current result, so a plain ``jupyter-book build .``
shows what the code of today computes, or fails.
"""

__all__ = ["setup"]

import re
import shutil
import sys
from importlib.metadata import files
from pathlib import Path

import nbformat
from chapters import chapters
from execution import KEY, executed, update
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.errors import ExtensionError
from sphinx.util import logging

MATHJAX = "sphinx-mathjax-offline/static/mathjax/"
# The package is 24 MB; a page loads one script, then fonts and TeX extensions on demand.
MATHJAX_PARTS = ("tex-chtml.js", "output/chtml/fonts/woff-v2/", "input/tex/extensions/")


def setup(app):
    # autodoc imports the library of this tree, whatever is installed.
    sys.path.insert(0, str(Path(app.srcdir) / "lib"))
    # The contents beside a page may hold mathematics where the page itself has none.
    app.set_html_assets_policy("always")
    app.connect("builder-inited", execute_stale)
    app.connect("env-get-outdated", find_outdated)
    app.connect("source-read", insert_outputs)
    app.connect("doctree-read", record_execution)
    app.connect("html-page-context", mend_roles)
    app.connect("html-page-context", load_explorers)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": False, "env_version": 1}


def execute_stale(app) -> None:
    """Execute the chapters that are out of date, and stop the build if one fails."""
    update(Path(app.srcdir), report=logging.getLogger(__name__).info)
    app.results = {chapter.docname: executed(chapter) for chapter in chapters(Path(app.srcdir))}
    if changed := [docname for docname, result in app.results.items() if result is None]:
        raise ExtensionError(f"{', '.join(changed)}: changed since the execution; build again")


def find_outdated(app, env, added, changed, removed) -> list[str]:
    """The chapters whose page shows another result than the current one."""
    shown = getattr(env, "chapter_fingerprints", {})
    return [docname for docname, notebook in app.results.items()
            if docname in env.found_docs
            and shown.get(docname) != notebook.metadata[KEY]["fingerprint"]]


def insert_outputs(app, docname, source) -> None:
    """Give Sphinx the executed notebook in place of the committed one."""
    if docname in app.results:
        source[0] = nbformat.writes(app.results[docname])


def record_execution(app, doctree) -> None:
    """Note when and how long the chapter ran, for the table of `nb-exec-table`."""
    env, docname = app.env, app.env.docname
    if docname not in app.results:
        return
    ran = app.results[docname].metadata[KEY]
    env.chapter_fingerprints = {**getattr(env, "chapter_fingerprints", {}),
                                docname: ran["fingerprint"]}
    NbMetadataCollector.set_exec_data(env, docname, {
        "mtime": ran["ended"], "runtime": ran["seconds"], "method": "kernel",
        "succeeded": True, "error": None, "traceback": None})


def mend_roles(app, pagename, templatename, context, doctree) -> None:
    """What docutils puts into a list of citations is a list's item for screen readers too."""
    context["body"] = context.get("body", "").replace('role="doc-biblioentry"', 'role="listitem"')


def load_explorers(app, pagename, templatename, context, doctree) -> None:
    """The scripts of a page's interactive pieces, and their style, on that page alone."""
    pieces = set(re.findall(r'data-explorer="(\w+)"', context.get("body", "")))
    for name in sorted(pieces):
        app.add_js_file(f"{name}.js", loading_method="defer")
    if pieces:
        app.add_css_file("explorer.css")


def copy_mathjax(app, exception) -> None:
    """Copy the parts of MathJax that the pages load into their ``_static``."""
    target = Path(app.outdir) / "_static" / "mathjax"
    for file in files("sphinx-mathjax-offline"):
        name = str(file).partition(MATHJAX)[2]
        if exception is None and name.startswith(MATHJAX_PARTS):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target / name)
