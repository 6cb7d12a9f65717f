"""The built pages, opened from their files in a browser without a network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]
CHROMIUM = shutil.which("chromium")

# Of every element with text of its own: the contrast between its ink and the
# nearest background (WCAG 2.1), as [text, ratio]. Half-transparent colours are
# laid over what is behind them.
CONTRASTS = """(selector) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const known = new Map();
  const rgba = text => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const behind = node => {
    if (!node) return [255, 255, 255];
    const colour = rgba(getComputedStyle(node).backgroundColor);
    return colour[3] === 1 ? colour.slice(0, 3) : over(colour, behind(node.parentElement));
  };
  const luminance = rgb => {
    const [r, g, b] = rgb.map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const own = node => [...node.childNodes].filter(n => n.nodeType === 3)
    .map(n => n.textContent.trim()).join(" ").trim();
  return [...document.querySelectorAll(selector)]
    .filter(node => own(node) && node.checkVisibility({visibilityProperty: true}))
    .map(node => {
      const ground = behind(node);
      const ink = over(rgba(getComputedStyle(node).color), ground);
      const [dark, light] = [luminance(ink), luminance(ground)].sort((x, y) => x - y);
      return [own(node).slice(0, 60), (light + 0.05) / (dark + 0.05)];
    });
}"""


@pytest.fixture(scope="module")
def pages():
    """The addresses of all pages, once the book is built from what is here."""
    build = subprocess.run([sys.executable, ROOT / "book/_tools/build.py"], cwd=ROOT, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert build.returncode == 0, build.stdout
    return [path.as_uri() for path in sorted(HTML.rglob("*.html"))
            if "_static" not in path.parts and path.name != "index.html"]


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no `chromium` on PATH: the pages are not opened")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Visit:
    """A page of the book in a new browser context; notes what it asks for and complains of."""

    def __init__(self, browser, *, width=1280, mode="light"):
        # Reduced motion: colours are the final ones at once.
        self.context = browser.new_context(color_scheme=mode, offline=True,
                                           reduced_motion="reduce",
                                           viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)  # a busy machine is slow, not wrong
        self.outside, self.complaints = [], []
        self.page.on("request", self._note_request)
        self.page.on("requestfailed", lambda request: self.complaints.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._note_console)

    def _note_request(self, request):
        if not request.url.startswith((HTML.as_uri(), "data:", "blob:")):
            self.outside.append(request.url)

    def _note_console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({self.page.url})")

    def open(self, address):
        self.page.goto(address)
        self.page.wait_for_function(
            "() => !document.querySelector('.math') || window.MathJax?.startup?.promise")
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        return self.page

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def name(address):
    return Path(unquote(urlparse(address).path)).relative_to(HTML).as_posix()


def test_the_book_builds(pages):
    toc = {"book/intro.html", "book/notation.html", "book/bibliography.html"}
    assert toc <= set(map(name, pages))


def test_pages_ask_for_nothing_and_report_nothing(pages, browser):
    for address in pages:
        with Visit(browser) as visit:
            page = visit.open(address)
            # Not "networkidle": under load that event may never come. What the page asks
            # for by itself it has asked for once it is loaded, typeset and its fonts are in.
            page.evaluate("() => document.fonts.ready")
            page.wait_for_timeout(300)
            assert not visit.outside and not visit.complaints, name(address)


def test_index_leads_to_the_first_page(pages, browser):
    with Visit(browser) as visit:
        page = visit.open((HTML / "index.html").as_uri())
        page.wait_for_url("**/book/intro.html")


def test_mathematics_is_typeset(pages, browser):
    seen = 0
    with Visit(browser) as visit:
        for address in pages:
            page = visit.open(address)
            sources = page.locator(".math").count()
            seen += sources
            assert page.locator(".math mjx-container").count() >= sources, name(address)
            assert page.locator("mjx-merror").count() == 0, name(address)
            loose = page.evaluate(r"""() => {
                const text = document.querySelector("article")?.cloneNode(true);
                text?.querySelectorAll("pre, code, mjx-container").forEach(e => e.remove());
                return text?.textContent.match(/.{0,30}(\$|\\\(|\\\[|\\begin).{0,30}/)?.[0];
            }""")
            assert loose is None, f"{name(address)}: {loose}"
    assert seen, "no page has mathematics"


def test_figures_load_and_have_a_text(pages, browser):
    seen = 0
    with Visit(browser) as visit:
        for address in pages:
            images = visit.open(address).evaluate("""() => [...document.querySelectorAll(
                "article img")].map(e => [e.src, e.alt, e.naturalWidth])""")
            seen += len(images)
            for source, alt, width in images:
                assert width > 0, source
                assert len(alt.split()) >= 3 and not alt.endswith((".svg", ".png")), f"{name(address)}: {alt!r}"
    assert seen, "no page has a figure"


def test_search_finds(pages, browser):
    with Visit(browser) as visit:
        page = visit.open((HTML / "search.html").as_uri() + "?q=attention")
        page.wait_for_selector("#search-results li a")
        found = page.locator("#search-results li a").first.get_attribute("href")
        assert (HTML / found.partition("#")[0].partition("?")[0]).exists()
        assert not visit.outside and not visit.complaints


def test_notebooks_can_be_downloaded(pages, browser):
    chapters = [address for address in pages
                if (ROOT / name(address)).with_suffix(".ipynb").exists()]
    assert chapters
    with Visit(browser) as visit:
        for address in chapters:
            links = visit.open(address).locator("a.btn-download-source-button")
            target = links.first.evaluate("e => e.href")
            notebook = json.loads(Path(unquote(urlparse(target).path)).read_text())
            assert notebook["nbformat"] == 4 and target.endswith(".ipynb")


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_stands_out(pages, browser, mode):
    with Visit(browser, mode=mode) as visit:
        for address in pages:
            page = visit.open(address)
            assert page.evaluate("document.documentElement.dataset.theme") == mode
            texts = page.evaluate(CONTRASTS, "article *, nav a, .bd-sidebar *")
            faint = [(text, round(ratio, 2)) for text, ratio in texts if ratio < 4.5]
            assert texts and not faint, f"{name(address)}: {faint}"


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_screen(pages, browser, width):
    with Visit(browser, width=width) as visit:
        for address in pages:
            page = visit.open(address)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name(address)} is {wide} wide"
