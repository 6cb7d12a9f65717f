"""Print the built pages: one PDF a page, and the whole book, to ``_build/pdf``.

Chromium prints what it shows, so mathematics and figures are those of the pages.
"""

__all__ = ["main", "print_page"]

import shutil
import sys
from pathlib import Path

from chapters import ROOT
from playwright.sync_api import sync_playwright
from pypdf import PdfWriter
from sphinx_external_toc.parsing import parse_toc_yaml

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Cells of outputs scroll on a screen; on paper there is nothing to scroll.
ON_PAPER = """
  .bd-header, .bd-header-article, .bd-sidebar, .bd-footer, .prev-next-footer, .copybtn,
  .headerlink, .skip-link, #pst-skip-link, #print-main-content,
  details.hide, .toggle-button { display: none !important }
  .bd-content pre { white-space: pre-wrap; overflow-wrap: anywhere }
  .cell_input, .cell_output, figure, table.dataframe, mjx-container { break-inside: avoid }
"""


def print_page(page, html: Path, docname: str, target: Path) -> Path:
    """Print one page of the book in `html` with a browser's page; return the file."""
    page.goto((html / f"{docname}.html").as_uri())
    page.add_style_tag(content=ON_PAPER)
    # Folded solutions are part of the book; pictures load before they are seen.
    page.evaluate("""async () => {
      document.querySelectorAll(".toggle-hidden").forEach(
        e => e.classList.remove("toggle-hidden"));
      document.querySelectorAll("img").forEach(e => { e.loading = "eager"; });
      await window.MathJax?.startup?.promise;
      await document.fonts.ready;
      await Promise.all([...document.images].map(e => e.decode().catch(() => {})));
    }""")
    file = target / f"{docname.removeprefix('book/').replace('/', '-')}.pdf"
    page.pdf(path=file, format="A4", scale=0.75, print_background=True, tagged=True, outline=True,
             margin={"top": "16mm", "bottom": "18mm", "left": "16mm", "right": "16mm"},
             display_header_footer=True, header_template="<span></span>",
             footer_template='<div style="width:100%;font-size:8px;text-align:center">'
                             '<span class="title"></span> · <span class="pageNumber"></span></div>')
    return file


def main(root: Path) -> str | None:
    """Print the book at `root`; return what is wrong, None if all is well."""
    html, target = root / "_build" / "html", root / "_build" / "pdf"
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return f"needs a browser: none of {', '.join(BROWSERS)} is on PATH"
    if not (html / "index.html").exists():
        return "needs the pages: `make book` first"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    docnames, whole = list(parse_toc_yaml(root / "_toc.yml")), PdfWriter()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_context(color_scheme="light", offline=True).new_page()
        for number, docname in enumerate(docnames, 1):
            print(f"  {number:2} of {len(docnames)}  {docname}", flush=True)
            whole.append(print_page(page, html, docname, target))
        chromium.close()
    whole.write(target / "why-many-heads.pdf")
    print(f"{len(whole.pages)} pages; open _build/pdf/why-many-heads.pdf")
    return None


if __name__ == "__main__":
    sys.exit(main(ROOT))
