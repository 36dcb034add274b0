"""The built book in a browser: offline, complete, readable in light and dark, on a phone, and by keyboard.

Chromium is driven over the pages served from localhost; every other host is blocked and its mention a failure.
"""

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
import pytest

from icml26 import book

pytestmark = pytest.mark.browser

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--no-first-run", "--disable-gpu"]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text of ordinary size

# What a page looks like once its equations are typeset, in one question.
LOOK = """async () => {
  if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
  const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  const paint = (colours) => {
    pen.clearRect(0, 0, 1, 1);
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => rgb.map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (element) => {
    const under = [];
    for (let e = element; e; e = e.parentElement) under.unshift(getComputedStyle(e).backgroundColor);
    const back = luminance(paint(["white", ...under]));
    const front = luminance(paint(["white", ...under, getComputedStyle(element).color]));
    return (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
  };
  const kinds = "h1, h2, p, li, td, th, dt, figcaption, caption, .caption-text, small, output, .verdict, a, code";
  const faint = [...document.querySelectorAll(`main :is(${kinds})`)]
    .filter((e) => e.checkVisibility() && e.textContent.trim())
    .map((e) => [contrast(e).toFixed(2), `${e.tagName} ${e.className}: ${e.textContent.trim().slice(0, 40)}`])
    .filter(([ratio]) => ratio < %s);
  return {
    equations: document.querySelectorAll("main :is(span, div).math").length,
    typeset: document.querySelectorAll("main mjx-container").length,
    broken: [...document.querySelectorAll("mjx-merror")].map((e) => e.textContent),
    unnamed: [...document.images].filter((e) => !e.alt.trim() && e.getAttribute("role") != "presentation")
      .map((e) => e.getAttribute("src")),
    width: document.documentElement.scrollWidth,
    theme: document.documentElement.dataset.theme,
    faint,
  };
}""".replace("%s", str(LEAST_CONTRAST))


@dataclass
class Visit:
    """What a browser met on one page, on a desk in light mode and then on a phone in dark mode."""

    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    desk: dict[str, Any] = field(default_factory=dict)
    phone: dict[str, Any] = field(default_factory=dict)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the tests report."""


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Debian's Chromium, or a notice that there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        notice = "no Chromium on this machine: the browser tests are skipped (Debian: apt-get install chromium)"
        reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            reporter.write_line(f"\n{notice}")
        pytest.skip(notice)
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site(browser: Any) -> Path:
    """The pages of this book: those that ICML26_BOOK names, else built now; not at all without a browser."""
    built = os.environ.get("ICML26_BOOK")
    return Path(built).resolve() if built else book.build()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the pages are served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def watched(context: Any, address: str, visit: Visit) -> Any:
    """A page whose requests and errors go into the visit; no other host is reached."""

    def decide(route: Any) -> None:
        if route.request.url.startswith((address, "data:", "blob:")):
            route.continue_()
        else:
            visit.foreign.append(route.request.url)
            route.abort()

    context.route("**/*", decide)
    page = context.new_page()
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("console", lambda line: visit.errors.append(line.text) if line.type == "error" else None)
    page.on("requestfailed", lambda asked: visit.failed.append(asked.url))
    page.on("response", lambda answer: visit.failed.append(answer.url) if answer.status >= 400 else None)
    return page


@pytest.fixture(scope="module")
def visits(browser: Any, site: Path, address: str) -> dict[str, Visit]:
    """Every page of the book, visited once."""
    visits = {}
    context = browser.new_context(viewport=DESK, color_scheme="light")
    for file in sorted(site.rglob("*.html")):
        name = file.relative_to(site).as_posix()
        if name.startswith("_static/") or name == "index.html":  # the latter sends on to the cover
            continue
        visits[name] = visit = Visit()
        page = watched(context, address, visit)
        page.goto(address + name)
        page.add_style_tag(content="* { transition: none !important; }")
        visit.desk = page.evaluate(LOOK)
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("() => document.documentElement.dataset.theme == 'dark'")
        visit.phone = page.evaluate(LOOK)
        page.close()
        context.unroute_all()
    context.close()
    return visits


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A fresh desktop page."""
    context = browser.new_context(viewport=DESK, color_scheme="light")
    yield watched(context, address, Visit())
    context.close()


def found(visits: dict[str, Visit], what: Any) -> dict[str, Any]:
    return {name: value for name, visit in visits.items() if (value := what(visit))}


def test_no_page_asks_another_host_or_misses_a_file(visits: dict[str, Visit]) -> None:
    assert len(visits) >= 8
    assert not found(visits, lambda visit: visit.foreign)
    assert not found(visits, lambda visit: visit.failed)


def test_no_page_logs_an_error(visits: dict[str, Visit]) -> None:
    assert not found(visits, lambda visit: visit.errors)


def test_every_equation_is_typeset(visits: dict[str, Visit]) -> None:
    assert sum(visit.desk["equations"] for visit in visits.values()) > 0
    assert not found(visits, lambda visit: visit.desk["broken"])
    assert not found(visits, lambda visit: visit.desk["typeset"] != visit.desk["equations"])


def test_every_image_has_alternative_text(visits: dict[str, Visit]) -> None:
    assert not found(visits, lambda visit: visit.desk["unnamed"])


def test_no_page_is_wider_than_a_phone(visits: dict[str, Visit]) -> None:
    assert not found(visits, lambda visit: visit.phone["width"] > PHONE["width"] and visit.phone["width"])


def test_text_and_verdicts_are_readable_in_light_and_in_dark(visits: dict[str, Visit]) -> None:
    assert {(visit.desk["theme"], visit.phone["theme"]) for visit in visits.values()} == {("light", "dark")}
    assert not found(visits, lambda visit: visit.desk["faint"])
    assert not found(visits, lambda visit: visit.phone["faint"])


def test_the_five_verdicts_are_told_apart_without_colour(page: Any, address: str) -> None:
    page.goto(address + "book/how_to_read.html")
    marks = page.eval_on_selector_all(".verdict", "all => all.map((e) => getComputedStyle(e, '::before').content)")
    assert len(marks) == 5
    assert len(set(marks)) == 5


def test_the_root_address_leads_to_the_cover(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_url(address + "book/index.html")


def test_search_finds_lfsr(page: Any, address: str) -> None:
    page.goto(address + "search.html?q=LFSR")
    page.wait_for_selector("#search-results li a")
    assert page.locator("#search-results li a").count() >= 1


def test_tab_reaches_a_visible_skip_link_which_leads_to_the_text(page: Any, address: str) -> None:
    page.goto(address + "book/how_to_read.html", wait_until="networkidle")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to main content"
    page.wait_for_function(
        "() => { const r = document.activeElement.getBoundingClientRect();"
        " return r.top >= 0 && r.left >= 0 && r.width > 10 && r.height > 10; }"
    )
    page.keyboard.press("Enter")
    assert page.url.endswith("#main-content")


def tab_until(page: Any, selector: str, presses: int = 80) -> None:
    for _ in range(presses):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{presses} presses of Tab do not reach {selector}")


def test_tab_reaches_the_navigation(page: Any, address: str) -> None:
    page.goto(address + "book/how_to_read.html", wait_until="networkidle")
    tab_until(page, "nav.bd-docs-nav a")


def test_the_theme_can_be_changed_by_hand(page: Any, address: str) -> None:
    page.goto(address + "book/index.html", wait_until="networkidle")
    seen = set()
    for _ in range(3):
        page.click(".theme-switch-button >> visible=true")
        seen.add(page.evaluate("() => document.documentElement.dataset.theme"))
    assert seen == {"light", "dark"}


def test_the_ledger_is_filtered_by_keyboard_and_the_address_keeps_the_choice(page: Any, address: str) -> None:
    page.goto(address + "book/claims.html", wait_until="networkidle")
    rows = page.locator("table.claims-ledger tbody tr")
    if rows.count() == 0:
        pytest.skip("no claims have been published yet")
    total = rows.count()
    count = page.locator("form.claims-filter [aria-live=polite]")
    assert count.inner_text() == f"{total} of {total} claims"

    tab_until(page, "select[name=verdict]")
    page.keyboard.press("ArrowDown")
    verdict = page.eval_on_selector("select[name=verdict]", "select => select.value")
    shown = page.locator("table.claims-ledger tbody tr:visible")
    assert verdict
    assert shown.count() == page.locator(f'table.claims-ledger tr[data-verdict="{verdict}"]').count() > 0
    assert count.inner_text() == f"{shown.count()} of {total} claims"
    assert f"verdict={verdict.replace(' ', '+')}" in page.url

    kept = shown.count()
    page.reload(wait_until="networkidle")
    assert shown.count() == kept
    tab_until(page, "form.claims-filter button[type=reset]")
    page.keyboard.press("Enter")
    page.wait_for_function("() => !location.search")
    assert shown.count() == total


def test_wide_tables_scroll_in_a_box_that_the_keyboard_reaches(page: Any, address: str, site: Path) -> None:
    page.set_viewport_size(PHONE)
    for name in ("book/claims.html", "book/index.html", "book/how_to_read.html"):
        page.goto(address + name, wait_until="networkidle")
        for table in page.locator("main table").all():
            box = table.evaluate(
                "(e) => { const b = e.closest('.table-box, .ledger-box, .pst-scrollable-table-container');"
                " return b && [b.scrollWidth > b.clientWidth, b.tabIndex]; }"
            )
            assert box, name
            assert not box[0] or box[1] == 0, name


def test_every_chapter_offers_its_executed_notebook_and_its_source(page: Any, address: str, site: Path) -> None:
    chapters = sorted((site / "book" / "chapters").glob("*.html"))
    assert chapters
    for chapter in chapters:
        page.goto(f"{address}book/chapters/{chapter.name}")
        links = page.eval_on_selector_all(".chapter-links a[download]", "all => all.map((e) => e.href)")
        assert [link.rpartition(".")[2] for link in links] == ["ipynb", "py"]
        answers = [page.request.get(link) for link in links]
        assert all(answer.ok for answer in answers)
        notebook = nbformat.reads(answers[0].text(), as_version=4)
        nbformat.validate(notebook)
        assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip())
        assert "# %%" in answers[1].text()
