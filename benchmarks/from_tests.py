"""Parts of the tests that benchmarks use: the simulator of training runs, hosts with different clocks, and Chromium."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def simulation() -> Any:
    """Return the package, with `Settings` and `simulate`."""
    return _import_from_tests("trainsim")


def hosts() -> Any:
    """Return the module that starts two hosts on clocks that differ."""
    return _import_from_tests("support.two_clocks.hosts")


def chromium() -> str | None:
    """Return the command of Chromium; None where none is installed."""
    return _import_from_tests("support.chromium").chromium()


def launch_chromium(playwright: Any) -> Any:
    """Start it, without a screen."""
    return _import_from_tests("support.chromium").launch_chromium(playwright)


def _import_from_tests(name: str) -> Any:
    if (tests := str(Path(__file__).parents[1] / "tests")) not in sys.path:
        sys.path.insert(0, tests)
    return import_module(name)
