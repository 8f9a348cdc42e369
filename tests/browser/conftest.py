"""A real Chromium without a screen and without a network, for tests that look at pages."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetoscope.cli import main
from support.chromium import MISSING, chromium, running_chromium
from support.minimal_pages import reload_until
from trainsim import simulate

IS_REQUIRED = os.environ.get("KINETOSCOPE_REQUIRE_BROWSER", "0") not in ("", "0")
VIEWPORT = {"width": 1280, "height": 800}


@pytest.fixture(scope="package")
def browser():
    """Chromium; one for all files of this folder that run one after the other: starting and ending it takes 0.7 s of
    processor time. While it runs, asyncio takes its thread for one with a running loop, so it ends with the folder."""
    if chromium() is None and not IS_REQUIRED:
        pytest.skip(MISSING)
    with running_chromium() as started:
        yield started


@pytest.fixture(scope="module")
def reused_page(browser) -> Iterator:
    """One page for all tests of a file: a new one takes half a second of processor time."""
    context = browser.new_context(viewport=VIEWPORT, offline=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(reused_page) -> Iterator:
    """A page of 1280 x 800, whose test fails if it wrote an error to the console or requested anything but its file."""
    page, faults = reused_page, []
    listeners = {
        "console": lambda message: faults.append(message.text) if message.type in ("error", "warning") else None,
        "pageerror": lambda error: faults.append(str(error)),
        "request": lambda request: None if request.url.startswith(("file:", "about:")) else faults.append(request.url),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    yield page
    _reset(page)
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    assert not faults


def _reset(page) -> None:
    """Make a page like a new one."""
    if page.evaluate("() => { try { return localStorage.length } catch { return 0 } }"):
        page.evaluate("localStorage.clear()")
        reload_until(page, "localStorage.length == 0")
    page.goto("about:blank")
    page.mouse.move(0, 0)
    page.set_viewport_size(VIEWPORT)
    page.emulate_media(color_scheme="null")
    page.context.clear_permissions()


@pytest.fixture
def open_file(page):
    """Open a page's file, at a place in it, and wait until it is drawn."""

    def open_it(path: Path, place: str = "") -> None:
        page.goto(path.resolve().as_uri() + place)
        page.wait_for_selector("main, [role=alert]")

    return open_it


@pytest.fixture(scope="module")
def analyze_sources(tmp_path_factory):
    """Write the report of a simulated run."""

    def write(settings):
        folder = tmp_path_factory.mktemp("run")
        simulate(settings).write(folder)
        assert main(["report", "--no-cache", str(folder)]) == 0
        return folder / "report.html"

    return write
