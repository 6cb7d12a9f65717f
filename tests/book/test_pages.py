"""The built pages, opened from their files in a browser without a network."""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlparse

import pytest
import yaml

from manyheads import capacity, synergy

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


MATHEMATICS = r"""() => {
  const text = document.querySelector("article")?.cloneNode(true);
  text?.querySelectorAll("pre, code, mjx-container").forEach(e => e.remove());
  return {sources: document.querySelectorAll(".math").length,
          typeset: document.querySelectorAll(".math mjx-container").length,
          errors: document.querySelectorAll("mjx-merror").length,
          loose: text?.textContent.match(/.{0,30}(\$|\\\(|\\\[|\\begin).{0,30}/)?.[0]};
}"""
IMAGES = """async () => {
  const images = [...document.querySelectorAll("article img")];
  images.forEach(e => { e.loading = "eager"; });
  await Promise.all(images.map(e => e.decode().catch(() => {})));
  return images.map(e => [e.src, e.alt, e.naturalWidth]);
}"""
NARROW, WIDE = 390, 1280


@pytest.fixture(scope="module")
def seen(pages, browser):
    """What every page shows: opened once in each mode, looked at by many tests."""
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for address in pages:
        for mode in ("light", "dark"):
            with Visit(browser, width=WIDE, mode=mode) as visit:
                page = visit.open(address)
                # Not "networkidle": under load that event may never come. What the page asks
                # for by itself it has asked for once it is loaded, typeset and its fonts are in.
                page.evaluate("() => document.fonts.ready")
                page.wait_for_timeout(300)
                here = SimpleNamespace(
                    name=name(address), mode=mode, outside=[*visit.outside],
                    complaints=[*visit.complaints],
                    theme=page.evaluate("document.documentElement.dataset.theme"),
                    contrasts=page.evaluate(CONTRASTS, "article *, nav a, .bd-sidebar *"))
                if mode == "light":
                    # Contrast is measured above, in both modes and in a tenth of the time.
                    here.axe = Axe().run(page, options={
                        "resultTypes": ["violations"],
                        "rules": {"color-contrast": {"enabled": False}}}).response
                    here.mathematics = page.evaluate(MATHEMATICS)
                    here.images = page.evaluate(IMAGES)
                    here.widths = {}
                    for width in (WIDE, NARROW):
                        page.set_viewport_size({"width": width, "height": 900})
                        here.widths[width] = page.evaluate("document.documentElement.scrollWidth")
                found.append(here)
    return found


@pytest.fixture
def light(seen):
    return [page for page in seen if page.mode == "light"]


def test_the_book_builds(pages):
    toc = {"book/intro.html", "book/notation.html", "book/bibliography.html"}
    assert toc <= set(map(name, pages))


def test_pages_ask_for_nothing_and_report_nothing(seen):
    for page in seen:
        assert not page.outside and not page.complaints, page.name


def test_index_leads_to_the_first_page(pages, browser):
    with Visit(browser) as visit:
        page = visit.open((HTML / "index.html").as_uri())
        page.wait_for_url("**/book/intro.html")


def test_mathematics_is_typeset(light):
    for page in light:
        found = page.mathematics
        assert found["typeset"] >= found["sources"] and not found["errors"], page.name
        assert found["loose"] is None, f"{page.name}: {found['loose']}"
    assert any(page.mathematics["sources"] for page in light), "no page has mathematics"


def test_figures_load_and_have_a_text(light):
    for page in light:
        for source, alt, width in page.images:
            assert width > 0, f"{page.name}: {source}"
            assert len(alt.split()) >= 3 and not alt.endswith((".svg", ".png")), f"{page.name}: {alt!r}"
    assert any(page.images for page in light), "no page has a figure"


def test_search_finds(pages, browser):
    with Visit(browser) as visit:
        page = visit.open((HTML / "search.html").as_uri() + "?q=attention")
        page.wait_for_selector("#search-results li a")
        found = page.locator("#search-results li a").first.get_attribute("href")
        assert (HTML / found.partition("#")[0].partition("?")[0]).exists()
        assert not visit.outside and not visit.complaints


def test_notebooks_can_be_downloaded(pages):
    chapters = [address for address in pages
                if (ROOT / name(address)).with_suffix(".ipynb").exists()]
    assert chapters
    for address in chapters:
        page = HTML / name(address)
        (link,) = set(re.findall(r'<a href="([^"]+)"[^>]*btn-download-source', page.read_text()))
        notebook = json.loads((page.parent / link).read_text())
        assert notebook["nbformat"] == 4 and link.endswith(".ipynb")


def test_text_stands_out(seen):
    for page in seen:
        assert page.theme == page.mode
        faint = [(text, round(ratio, 2)) for text, ratio in page.contrasts if ratio < 4.5]
        assert page.contrasts and not faint, f"{page.name}, {page.mode}: {faint}"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_pages_fit_the_screen(light, width):
    wide = {page.name: page.widths[width] for page in light if page.widths[width] > width}
    assert not wide


def test_no_page_is_heavy(pages):
    for address in pages:
        path = HTML / name(address)
        # What is loaded when the page is opened: the gallery's pictures wait for the reader.
        images = [re.search(r'src="([^"]+\.(?:svg|png))"', tag)[1]
                  for tag in re.findall(r'<img [^>]*src="[^"]+\.(?:svg|png)"[^>]*>', path.read_text())
                  if 'loading="lazy"' not in tag]
        files = {(path.parent / image).resolve() for image in images if "://" not in image}
        weight = path.stat().st_size + sum(file.stat().st_size for file in files)
        assert weight < 2.5e6, f"{name(address)} weighs {weight / 1e6:.1f} MB"


def test_axe_finds_nothing_serious(light):
    found = [(page.name, one["id"], one["nodes"][0]["html"][:150])
             for page in light for one in page.axe["violations"]
             if one["impact"] in ("serious", "critical")]
    assert not found


def test_every_chapter_can_be_launched(pages, browser):
    repository = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]
    owner = urlparse(repository["url"]).path.strip("/")
    for address in pages:
        notebook = (ROOT / name(address)).with_suffix(".ipynb").relative_to(ROOT).as_posix()
        if not (ROOT / notebook).exists():
            continue
        links = re.findall(r'href="(https://[^"]*(?:binder|colab)[^"]*)"', (HTML / name(address)).read_text())
        assert f"https://mybinder.org/v2/gh/{owner}/main?urlpath=lab/tree/{notebook}" in links
        assert f"https://colab.research.google.com/github/{owner}/blob/main/{notebook}" in links


def test_gallery_and_exercises_lead_to_what_they_show(pages, browser):
    for page_name, kind, least in (("gallery", "figures", 20), ("exercises", "exercises", 20)):
        text = (HTML / f"book/explore/{page_name}.html").read_text()
        text = text.partition(f'class="list-of-{kind}"')[2]
        links = re.findall(r'<li><a href="([^"#]+)#([^"]+)"', text)
        assert len(links) >= least
        for target, anchor in links:
            there = (HTML / "book/explore" / target).resolve().read_text()
            assert f'id="{anchor}"' in there, f"{page_name}: {target}#{anchor}"


def test_the_ledger_leads_to_every_claim(pages):
    claims = json.loads((HTML / "book/together/claims.json").read_text())
    text = (HTML / "book/together/claims.html").read_text()
    assert len(claims) > 100
    for claim in claims:
        anchor = "claim-" + claim["name"].replace(".", "-")
        assert f'#{anchor}">{claim["name"]}</a>' in text
        assert f'id="{anchor}"' in (HTML / f'{claim["chapter"]}.html').read_text()
        assert {"statement", "source", "how", "outcome", "cell"} <= set(claim)


def with_explorer(pages, kind):
    (address,) = [address for address in pages
                  if f'data-explorer="{kind}"' in (HTML / name(address)).read_text()]
    return address


def test_the_heads_explorer_computes_as_the_library(pages, browser):
    draw = random.Random(0)
    with Visit(browser) as visit:
        page = visit.open(with_explorer(pages, "heads"))
        for _ in range(200):
            n = draw.choice([4, 5])
            edges = [(s, t) for s in range(n) for t in range(s + 1, n)]
            heads = [[edge for edge in edges if draw.random() < 0.5] for _ in range(2)]
            weight = draw.choice([0, 0.25, 0.5, 0.37, 1])
            system = synergy.HeadSystem.from_edges(n, heads, [1 - weight, weight])
            found = page.evaluate(
                """state => document.querySelector('[data-explorer="heads"]').compute(state)
                   .map(part => ({...part, times: part.times.map(String), mixing: String(part.mixing)}))""",
                {"nodes": n, "heads": heads, "weight": weight})
            for part, one in zip((system.head(0), system.head(1), system), found, strict=True):
                walk, diffusion = part.walk_matrix(), part.diffusion_matrix()
                times = [float(t.replace("Infinity", "inf")) for t in one["times"]]
                assert times == pytest.approx(synergy.expected_hitting_times(walk).tolist(), rel=1e-9)
                mixing = float(one["mixing"].replace("Infinity", "inf"))
                assert mixing == synergy.mixing_time(walk).item(), (n, heads, weight)
                signals = synergy.node_fidelities(diffusion, 200)[:-1].tolist()
                assert one["fidelity"] == pytest.approx(signals, abs=1e-9)


def test_the_heads_explorer_works_by_keyboard(pages, browser):
    with Visit(browser) as visit:
        page = visit.open(with_explorer(pages, "heads"))
        explorer = page.locator('[data-explorer="heads"]')
        slowest = explorer.locator("tbody tr").first.locator("td")
        assert slowest.all_text_contents() == ["4", "4", "3"]
        explorer.locator('input[type="range"]').focus()
        page.keyboard.press("Home")
        assert slowest.all_text_contents() == ["4", "4", "4"]
        explorer.locator('input[data-edge="0,0,3"]').focus()
        page.keyboard.press("Space")
        assert slowest.first.text_content() != "4"
        assert explorer.locator("[aria-live]").text_content().startswith("Together the heads are")


def test_the_capacity_explorer_computes_as_the_library(pages, browser):
    draw = random.Random(1)
    with Visit(browser) as visit:
        page = visit.open(with_explorer(pages, "capacity"))
        for _ in range(100):
            m, d = draw.randrange(8, 20_000), draw.randrange(4, 4096)
            state = {"m": m, "e": m * draw.randrange(1, 8), "d": d, "D_K": draw.randrange(1, 4096)}
            found = page.evaluate(
                """state => document.querySelector('[data-explorer="capacity"]').compute(state)""", state)
            size = m, state["e"], d
            expected = {"counting": capacity.counting_lower_bound(*size, 16),
                        "bits": capacity.bits_per_parameter(*size, state["D_K"]),
                        "builtHeads": max(1, capacity.optimal_heads(state["e"], d))}
            for key, value in expected.items():
                assert found[key] == pytest.approx(float(value), rel=1e-6), (key, state)


def test_the_capacity_explorer_works_by_keyboard(pages, browser):
    with Visit(browser) as visit:
        page = visit.open(with_explorer(pages, "capacity"))
        explorer = page.locator('[data-explorer="capacity"]')
        budget = explorer.locator('input[name="D_K"]')
        budget.focus()
        page.keyboard.press("Home")
        assert "Impossible" in explorer.locator("[aria-live]").text_content()
        page.keyboard.press("End")
        assert "Room to spare" in explorer.locator("[aria-live]").text_content()


def test_the_pages_can_be_printed(pages, browser, tmp_path):
    sys.path.insert(0, str(ROOT / "book" / "_tools"))
    from pdf import print_page
    from pypdf import PdfReader

    docname = "book/together/one-layer"
    with Visit(browser) as visit:
        file = print_page(visit.page, HTML, docname, tmp_path)
    text = "".join(page.extract_text() for page in PdfReader(file).pages)
    assert "One layer, two lenses" in text and "What it means" in text


def test_terms_lead_to_the_glossary_and_say_what_they_mean(pages):
    glossary = (HTML / "book/notation.html").read_text()
    chapters = set()
    for address in pages:
        for tag, term in re.findall(r'(<a [^>]*>)<span class="xref std std-term">([^<]*)<',
                                    (HTML / name(address)).read_text()):
            anchor = re.search(r'href="[^"#]*#([^"]+)"', tag)[1]
            meaning = re.search(r' title="([^"]+)"', tag)
            assert f'<dt id="{anchor}">' in glossary, f"{name(address)}: {term}"
            assert meaning and len(meaning[1]) > 40 and "\\" not in meaning[1], term
            assert meaning[1].endswith("."), term
            chapters.add(name(address))
    assert len(chapters) > 15


def test_external_links_have_the_form_of_an_address(pages):
    """Nothing here reaches the network: whether they answer is the weekly workflow's to see."""
    for address in pages:
        for link in re.findall(r'<a [^>]*href="(https?:[^"]*)"', (HTML / name(address)).read_text()):
            parts = urlparse(link)
            assert parts.scheme == "https" and re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc), link
            assert not re.search(r"\s|//", parts.path), link
