"""Chromium without a screen, for tests of pages, their benchmarks and the docs' pictures."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MISSING = "Chromium is not installed"
"""Why tests are skipped without it: they are counted in one line (`conftest.py`)."""

_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
"""The first is the same browser without the window, and opens pages for half the processor time."""
_QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
_ALONE = ("--no-sandbox", "--disable-gpu", "--disable-quic")


def chromium() -> str | None:
    """Return its command; None where none is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def launch_chromium(playwright: Any) -> Any:
    """Start it."""
    return playwright.chromium.launch(executable_path=chromium(), args=[*_QUIET, *_ALONE])


@contextmanager
def running_chromium() -> Iterator[Any]:
    """Run a Chromium for the `with` block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        yield browser
        browser.close()
