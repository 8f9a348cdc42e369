"""A browser tab, and runs, for the pages of `kinetoscope view`."""

import json

import pytest

from support.view_pages import WAIT_MS

BASE_NS = 1_790_857_026_000_000_000


@pytest.fixture
def context(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(WAIT_MS)
    context.route(lambda address: not address.startswith(("http://127.0.0.1:", "file:")), lambda route: route.abort())
    yield context
    context.close()


@pytest.fixture
def tab(context):
    """A tab whose test fails if one of our pages writes an error to its console."""
    tab, faults = context.new_page(), []
    tab.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    yield tab
    assert not faults


@pytest.fixture
def runs(tmp_path):
    spans = [
        {"ph": "X", "name": name, "cat": "marker", "pid": 1, "tid": 1, "ts": 1000 * number, "dur": 500}
        for number, name in enumerate(["load digits", "count all sheep", "save digits"])
    ]
    (tmp_path / "runs" / "digits" / "traces").mkdir(parents=True)
    trace = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": spans})
    (tmp_path / "runs" / "digits" / "traces" / "merged_trace.json").write_text(trace)
    (tmp_path / "runs" / "words" / "traces").mkdir(parents=True)
    (tmp_path / "runs" / "words" / "traces" / "rank0.json").write_text(trace)
    return tmp_path / "runs"
