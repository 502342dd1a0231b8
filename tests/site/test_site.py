"""The built site: its links and search, and in a browser, where there is one, that every page works wide and narrow.

The browser is a Chromium that is installed, driven by the package playwright.
"""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.needs import find, not_installed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CAPTIONS = ("Start", "Guides", "Reference")
MOST_ENTRIES = 20       # in the side bar, before anything is unfolded
TREE = re.compile(r"^```\{toctree\}\n(?::caption: ([^\n]+)\n)?:hidden:\n\n(.*?)^```", re.DOTALL | re.MULTILINE)
FOUND_ON = {        # what to search for, and a page that is found
    "arctan2": "generated/operators-pointwise", "checkpoint": "tape", "kalman": "generated/kalman",
    "moons": "train-a-model", "precedence": "architecture", "hessian": "gradients-of-gradients", "odeint": "solvers",
    "map_chunks": "reference", "deprecated": "versions", "donate": "compile", "PerformanceWarning": "reference",
    "glossary": "glossary",
}
EXAMINED = ("coming-from-pytorch", "compile", "gallery", "glossary", "index", "internals", "search", "sharp-bits")
"""The pages that axe examines: of each kind one, since it takes seconds for a page, and minutes for the reference."""
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1400, "height": 900}


def entries_of(page: Path) -> list[str]:
    """Return the pages that a page lists in its trees."""
    trees = TREE.findall(page.read_text(encoding="utf-8"))
    return [re.sub(r".*<(.+)>", r"\1", line) for _, lines in trees for line in lines.split("\n") if line]


def test_every_page_is_in_the_side_bar_once():
    start = DOCS / "index.md"
    assert tuple(caption for caption, _ in TREE.findall(start.read_text(encoding="utf-8"))) == CAPTIONS
    assert len(entries_of(start)) <= MOST_ENTRIES
    entries = [entry for page in DOCS.glob("*.md") for entry in entries_of(page)]
    assert sorted(entries) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index")


def test_no_page_is_too_long():
    generated = re.compile(r"<!-- (?!end).*?<!-- end -->", re.DOTALL)
    words = {page.stem: len(generated.sub("", page.read_text(encoding="utf-8")).split()) for page in DOCS.glob("*.md")}
    assert {page: count for page, count in words.items() if count > 3000} == {}


def test_headings_and_tables_begin_a_line():
    heading, table = r".* #{2,3} [A-Z].*", r"^[^|\n].*\n\|(?=-)"
    pages = {page.stem: re.findall(f"{heading}|{table}", page.read_text(encoding="utf-8"), re.MULTILINE)
             for page in DOCS.glob("*.md")}
    assert {page: lines for page, lines in pages.items() if lines} == {}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with the built pages: those that `PYDISPATCH_SITE` names, else built here."""
    if built := os.environ.get("PYDISPATCH_SITE"):
        return Path(built).resolve()
    for package in ("furo", "matplotlib", "myst_parser", "scipy", "sklearn", "tqdm"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", folder / "doctrees",
                           "-b", "html", DOCS, folder / "html"], env=environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Page(HTMLParser):
    """The links and anchors of a page, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source", "object") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))
            if "_static" not in path.parts}


def target(address: str, link: str) -> tuple[str, str]:
    """Return the file that a link of a page leads to, and the anchor in it."""
    parts = urlsplit(link)
    joined = os.path.normpath(PurePosixPath(address).parent / unquote(parts.path)) if parts.path else address
    return joined, unquote(parts.fragment)


@pytest.mark.slow
def test_links_and_anchors_inside_of_the_site_resolve(site: Path, pages: dict[str, Page]) -> None:
    broken, count = [], 0
    for address, page in pages.items():
        for link in page.links + page.loaded:
            if urlsplit(link).scheme:
                continue
            count += 1
            file, anchor = target(address, link)
            anchors = pages[file].anchors if file in pages else {anchor}
            if not (site / file).exists() or anchor not in {"", *anchors}:
                broken.append((address, link))
    assert not broken
    assert count > 5000
    print(f"{len(pages)} pages, {count} links inside of the site")


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    assert not {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc}
    assert not [path for path in site.rglob("*.css") if re.search(r"url\(['\"]?https?:|@import", path.read_text())]


@pytest.mark.slow
def test_downloads_are_there(site: Path, pages: dict[str, Page]) -> None:
    endings = {name: {PurePosixPath(link).suffix for link in page.links if "_downloads" in link}
               for name, page in pages.items()}
    programs = [path for folder in ("digits", "mathematics", "subclasses", "transforms")
                for path in (ROOT / "examples" / folder).glob("*.py")]
    for program in programs:
        name = "digits" if program.stem == "train" else program.stem
        assert endings[f"generated/{name}.html"] == {".py", ".ipynb"}
    for page in DOCS.glob("*.md"):
        if ">>> " in page.read_text(encoding="utf-8") and page.stem != "index":
            assert endings[f"{page.stem}.html"] >= {".py", ".ipynb"}
    assert endings["gallery.html"] == {".py", ".ipynb", ".zip"}


# --- in a browser ---


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, and yield the address."""
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Suppress the log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as place:
        yield place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as driver:
        program = find("chromium") or driver.chromium.executable_path
        if not Path(program).exists():
            pytest.skip(not_installed("chromium"))
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])     # CI may be root
        yield opened
        opened.close()


@pytest.mark.slow
def test_every_page_opens_without_errors_and_fits_a_phone(browser: Any, address: str, pages: dict[str, Page]) -> None:
    context = browser.new_context(viewport=PHONE)
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("console", lambda message: wrong.append(f"{tab.url}: {message.text}") if message.type == "error" else None)
    tab.on("pageerror", lambda error: wrong.append(f"{tab.url}: {error}"))
    tab.on("response", lambda answer: wrong.append(f"{tab.url}: {answer.url}: {answer.status}")
           if answer.status >= 400 else None)
    tab.on("request", lambda request: wrong.append(f"{tab.url}: asks for {request.url}")
           if not request.url.startswith((address, "data:")) else None)
    for name in pages:
        answer = tab.goto(f"{address}/{name}")
        assert answer.status == 200
        width = tab.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wrong.append(f"{name} is {width} pixels wide")
    context.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["desktop", "phone"])
def test_axe_finds_nothing_that_is_not_accessible(
        browser: Any, address: str, scheme: str, size: dict[str, int]) -> None:
    script = Path(pytest.importorskip("axe_playwright_python").__file__).with_name("axe.min.js").read_text()
    context = browser.new_context(color_scheme=scheme, viewport=size)
    tab = context.new_page()
    found: list[str] = []
    for name in EXAMINED:
        assert tab.goto(f"{address}/{name}.html").status == 200
        tab.evaluate(script)
        for violation in tab.evaluate("axe.run()")["violations"]:
            found += [f"{name}: {violation['help']}: {node['html']}" for node in violation["nodes"]]
    context.close()
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_search_finds_words(browser: Any, address: str) -> None:
    tab = browser.new_page()
    for word, name in FOUND_ON.items():
        tab.goto(f"{address}/search.html?q={word}")
        tab.wait_for_selector("#search-results li", timeout=20_000)
        tab.wait_for_function("document.querySelector('#search-results p.search-summary')?.innerText.includes('found')")
        links = [link.get_attribute("href") for link in tab.query_selector_all("#search-results li a")]
        found = {link.partition(".html")[0] for link in links}
        assert name in found, f"{word} is on {sorted(found)}"
    tab.close()


@pytest.mark.slow
def test_pages_are_light_or_dark_as_asked(browser: Any, address: str) -> None:
    def brightness(tab: Any) -> int:
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    for scheme, is_dark in (("light", False), ("dark", True)):
        context = browser.new_context(color_scheme=scheme, viewport=DESKTOP)
        tab = context.new_page()
        tab.goto(f"{address}/index.html")
        assert (brightness(tab) < 200) == is_dark
        tab.locator(".theme-toggle:visible").first.click()
        assert (brightness(tab) < 200) != is_dark
        context.close()


@pytest.mark.slow
def test_the_menu_opens_on_a_phone(browser: Any, address: str) -> None:
    context = browser.new_context(viewport=PHONE)
    tab = context.new_page()
    tab.goto(f"{address}/index.html")
    menu = tab.get_by_role("link", name="Train a model").first
    assert not menu.is_visible() or menu.bounding_box()["x"] < 0
    tab.locator(".mobile-header label[for='__navigation']").click()
    tab.wait_for_function("document.querySelector('.sidebar-drawer').getBoundingClientRect().x >= 0")
    menu.click()
    assert tab.title().startswith("Train a model")
    context.close()


@pytest.mark.slow
def test_the_picture_of_the_start_page_is_drawn(browser: Any, address: str) -> None:
    tab = browser.new_page()
    tab.goto(f"{address}/index.html")
    box = tab.locator("svg.picture").bounding_box()
    assert (box["width"] > 500, box["height"] > 250) == (True, True)
    overlong = tab.evaluate("""[...document.querySelectorAll('svg.picture text')]
        .filter(text => text.getBBox().x + text.getBBox().width > text.ownerSVGElement.viewBox.baseVal.width)
        .map(text => text.textContent)""")
    assert overlong == []
    tab.close()
