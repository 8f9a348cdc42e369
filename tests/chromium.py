"""Chromium without a screen, for tests of pages, their benchmarks and the docs' pictures."""

import shutil
from typing import Any

_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
"""The first is the same browser without the window, and opens pages for half the processor time."""
_QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
_ALONE = ("--no-sandbox", "--disable-gpu", "--disable-quic")


def chromium() -> str | None:
    """Its command; None where none is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def launch_chromium(playwright: Any) -> Any:
    """Starts it."""
    return playwright.chromium.launch(executable_path=chromium(), args=[*_QUIET, *_ALONE])
