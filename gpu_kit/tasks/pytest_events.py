"""A pytest plugin that writes the start and the outcome of each test at once, and ends a test that hangs."""

import faulthandler
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

_LIMIT_S = float(os.environ.get("GPU_KIT_LIMIT_S", "40"))
_stderr = os.dup(2)  # before pytest captures it


def _write(name: str, **event: Any) -> None:
    with open(os.environ["GPU_KIT_TEST_EVENTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"test": name, **event}) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process if a test takes too long: the tests after it run in another one."""
    _write(item.nodeid, outcome="started")
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a test's outcome after its teardown; an error or a skip where it happens."""
    reason = "" if report.passed else str(getattr(report, "longreprtext", ""))[-2000:]
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
    _outcomes.setdefault(report.nodeid, []).append((report.outcome, reason))
    if report.when == "teardown":
        worst = max(_outcomes[report.nodeid], key=lambda found: ("passed", "skipped", "failed").index(found[0]))
        facts = dict(report.user_properties)
        _write(report.nodeid, outcome=worst[0], **({"reason": worst[1]} if worst[1] else {}), **facts)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write a module that is skipped as a whole, or that cannot be imported."""
    if report.skipped and isinstance(report.longrepr, tuple):
        _write(report.nodeid, outcome="skipped", reason=report.longrepr[2])
    elif report.failed:
        _write(report.nodeid, outcome="failed", reason=str(getattr(report, "longreprtext", ""))[-2000:])


_outcomes: dict[str, list[tuple[str, str]]] = {}
