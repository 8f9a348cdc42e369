"""The built site: its links and search, what axe finds, and text that is clipped.

`make docs` builds the site and runs this file with `KINETOSCOPE_SITE`; without a site there is nothing to test.
"""

import functools
import http.server
import os
import posixpath
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kinetoscope.analysis.findings.explanations import explanations
from support.chromium import MISSING, chromium, running_chromium
from support.minimal_pages import axe_violations

SITE = Path(os.environ.get("KINETOSCOPE_SITE", "")).resolve()
pytestmark = pytest.mark.skipif(
    not os.environ.get("KINETOSCOPE_SITE"), reason="make docs builds the site, and tests it"
)
KINDS = list(explanations())

TYPICAL = (
    "index",
    "quickstart",
    "first-report",
    "faq",
    "tutorials/data-loading",
    "how-to/ci-gate",
    "how-to/lightning",
    "how-it-works",
    "generated/commands/run",
    "generated/findings/index",
    "generated/findings/straggler",
    "generated/thresholds",
    "generated/reference/recording",
    "compat/torch_profiler",
)
"""Pages of each sort, for checks that take long."""

SEARCHES = {
    **{kind: f"generated/findings/{kind}.html" for kind in KINDS},
    "GC pauses": "generated/findings/garbage_collection.html",
    "memory leak": "generated/findings/memory_growth.html",
    "launch-bound": "generated/findings/host_bound.html",
    "--fail-over": "generated/commands/diff.html",
    "--slow-steps": "generated/commands/run.html",
    "--on-time": "generated/commands/whatif.html",
    "--redact": "generated/commands/report.html",
    "--count-by": "generated/commands/run.html",
    "persistent_workers": "generated/findings/input_bound.html",
    "KINETOSCOPE_HANG_S": "environment.html",
    "No recorded window was saved": "messages.html",
    "has no clock anchor": "messages.html",
    "trace folder is not empty": "messages.html",
    "Memory block of unknown size": "messages.html",
    "missing output file": "messages.html",
}
"""Kinds, titles, options, variables and error texts, and a page that must be among the results."""


class Page(HTMLParser):
    """The ids of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif value and ((name == "href" and tag in ("a", "link")) or (name == "src" and tag in ("img", "script"))):
                self.targets.append(value)


@pytest.fixture(scope="module")
def pages():
    """Every page of the site by its path."""
    return {path.relative_to(SITE).as_posix(): Page(path.read_text(encoding="utf-8")) for path in SITE.rglob("*.html")}


def test_every_internal_link_leads_to_a_file_and_an_anchor(pages):
    assert len(pages) > 100
    broken = [
        f"{name} links to {target}"
        for name, page in pages.items()
        for target in page.targets
        if not urlsplit(target).scheme and not urlsplit(target).netloc and not leads_somewhere(name, target, pages)
    ]
    assert broken == []


def leads_somewhere(name, target, pages):
    parts = urlsplit(target)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
    if path in pages:
        return not parts.fragment or unquote(parts.fragment) in pages[path].ids
    return (SITE / path).is_file()


def test_each_page_is_in_the_menu_of_the_site(pages):
    """Without a menu, only a search leads to a page."""
    menu = {
        posixpath.normpath(unquote(urlsplit(target).path))
        for target in pages["index.html"].targets
        if target.partition("#")[0].endswith(".html")
    }
    special = {"index.html", "genindex.html", "py-modindex.html", "search.html"}
    assert pages.keys() - menu - special == set()


def test_the_menu_has_a_caption_for_each_kind_of_page():
    found = re.findall(r'<span class="caption-text">([^<]*)</span>', (SITE / "index.html").read_text(encoding="utf-8"))
    assert found == ["Quickstart", "Tutorials", "How-to", "Explanation", "Reference", "Compare"]


ANSWERS = {
    "how-to/lightning.html": "Profile a Lightning job",
    "generated/findings/straggler.html": "One or more ranks are late",
    "faq.html#what-leaves-my-machine": "Nothing, unless",
    "how-to/ci-gate.html": "Fail CI when training gets slower",
}
"""Pages that the table of the landing page must link to, and text of the answer."""


@pytest.mark.parametrize(("target", "text"), ANSWERS.items())
def test_the_landing_page_links_to_the_answers_of_frequent_questions(target, text, pages):
    article = (SITE / "index.html").read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    assert f'href="{target}"' in article
    assert " ".join(text.split()) in " ".join((SITE / target.partition("#")[0]).read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def address():
    """The address of the site: a search reads pages, which a browser refuses without a server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser():
    if chromium() is None:
        pytest.skip(MISSING)
    with running_chromium() as started:
        yield started


@pytest.fixture(scope="module")
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


@pytest.mark.timeout(300)
def test_search_finds_kinds_options_and_error_texts(page, address):
    missing = []
    for words, expected in SEARCHES.items():
        page.goto(f"{address}/search.html")
        page.goto(f"{address}/search.html?q={words.replace(' ', '+')}")
        page.wait_for_selector("#search-results p.search-summary")
        page.wait_for_function("document.querySelector('#search-results .search-summary').innerText.includes('ound')")
        links = page.eval_on_selector_all("#search-results li a", "links => links.map((link) => link.href)")
        if not any(urlsplit(link).path == f"/{expected}" for link in links[:10]):
            missing.append((words, [urlsplit(link).path for link in links[:10]]))
    assert missing == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_typical_pages(scheme, page, address):
    page.emulate_media(color_scheme=scheme)
    faults = {}
    for name in TYPICAL:
        page.goto(f"{address}/{name}.html")
        if found := axe_violations(page):
            faults[name] = [(fault["id"], [node["html"][:200] for node in fault["nodes"]][:3]) for fault in found]
    assert faults == {}


CLIPPED = """() => [...document.querySelectorAll('article *')].filter((element) => {
    const style = getComputedStyle(element);
    if (element.closest('.sd-tab-set > input, .visually-hidden') || !element.clientWidth) return false;
    const hides = style.overflowX === 'hidden' || style.overflowX === 'clip';
    return hides && element.scrollWidth > element.clientWidth + 1 && element.innerText.trim();
}).map((element) => element.outerHTML.slice(0, 120))"""
"""Elements with text beyond their edge that nothing scrolls to."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_clips_text_or_scrolls_sideways(width, page, pages, address):
    page.set_viewport_size({"width": width, "height": 900})
    faults = {}
    for name in sorted(pages):
        page.goto(f"{address}/{name}")
        found = page.evaluate(CLIPPED)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append("the page scrolls sideways")
        if found:
            faults[name] = found
    assert faults == {}


def test_help_of_commands_fits_its_block(page, pages, address):
    page.set_viewport_size({"width": 1280, "height": 900})
    wide = []
    for name in sorted(name for name in pages if name.startswith("generated/commands/")):
        page.goto(f"{address}/{name}")
        widths = "blocks => blocks.filter((block) => block.scrollWidth > block.clientWidth + 1).length"
        if page.eval_on_selector_all("article pre", widths):
            wide.append(name)
    assert wide == []
