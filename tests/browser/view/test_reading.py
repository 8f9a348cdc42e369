"""The pages of `kinetoscope view` on any screen, in any zone, without a mouse or JavaScript."""

import os
from itertools import product
from pathlib import Path

from kinetoscope import JSONTraceHandler, Profiler
from kinetoscope.cli import main
from support.minimal_pages import axe_violations, reload_until
from support.view_pages import REPORT_MARK, SCHEDULE_SAID, WAIT_MS
from support.view_server import served
from trainsim import Fault, Settings, simulate


def test_the_pages_can_be_read_with_other_eyes_and_without_a_mouse(runs, context):
    tab = context.new_page()
    (runs / "digits" / "report.html").write_text(REPORT_MARK)
    with served(runs) as server:
        for path in ("", "run/digits", "run/none"):
            tab.goto(server.link)
            tab.goto(server.link.partition("?")[0] + path)
            for scheme, rules in (("light", {}), ("dark", {"runOnly": ["cat.color"]})):
                tab.emulate_media(color_scheme=scheme)
                faults = axe_violations(tab, **rules)
                assert not [(fault["id"], fault["help"]) for fault in faults], (path, scheme)
        tab.goto(server.link)
        tab.get_by_role("checkbox", name="Compare digits").focus()
        tab.keyboard.press("Space")
        assert tab.get_by_role("checkbox", name="Compare digits").is_checked()
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        tab.get_by_role("link", name="All runs").wait_for(timeout=WAIT_MS)


def test_without_javascript_runs_can_be_read_and_traces_downloaded(runs, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="digits", exact=True).click()
        assert not tab.get_by_role("button").count()
        with tab.expect_download() as download:
            tab.get_by_role("link", name="traces/merged_trace.json").click()
        assert download.value.suggested_filename == "merged_trace.json"
        assert Path(download.value.path()).read_bytes() == (runs / "digits/traces/merged_trace.json").read_bytes()
    context.close()


def test_a_real_report_is_shown_as_from_its_file(runs, tab):
    simulate(Settings(faults=(Fault(kind="slow_loader", cost_ns=3_000_000),))).write(runs / "simulated")
    assert main(["report", "--no-cache", str(runs / "simulated")]) == 0
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="report on simulated").click()
        tab.get_by_role("main").get_by_text("data").first.wait_for(timeout=WAIT_MS)


def test_times_are_in_the_readers_zone(runs, browser):
    for file in (runs / "digits" / "traces").iterdir():
        os.utime(file, (1_790_857_026, 1_790_857_026))
    for zone, shown, in_full in (
        ("Asia/Tokyo", "1 Oct 2026, 21:17", "GMT+9"),
        ("America/New_York", "1 Oct 2026, 08:17", "GMT-4"),
    ):
        context = browser.new_context(timezone_id=zone)
        tab = context.new_page()
        with served(runs) as server:
            tab.goto(server.link)
            moment = tab.locator("time").filter(has_text=shown)
            moment.wait_for(timeout=WAIT_MS)
            assert in_full in moment.get_attribute("title")
            assert "last written" in moment.get_attribute("title")
        context.close()


def test_the_reader_switches_the_colours_and_they_stay(runs, tab):
    with served(runs) as server:
        tab.emulate_media(color_scheme="light")
        tab.goto(server.link)
        tab.get_by_role("button", name="Switch to dark colours").click()
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        tab.get_by_role("link", name="digits", exact=True).click()
        tab.wait_for_url("**/run/digits**")
        reload_until(tab, "localStorage.length == 1")
        tab.get_by_role("button", name="Switch to light colours").wait_for(timeout=WAIT_MS)


def test_on_any_screen_only_the_table_scrolls_sideways(runs, tab):
    (runs / ("x" * 200)).mkdir()
    (runs / ("x" * 200) / "trace.json").write_text("{}")
    with served(runs) as server:
        tab.goto(server.link)
        for path, width in product(("", "run/digits", "run/" + "x" * 200), (1440, 1024, 400)):
            tab.set_viewport_size({"width": width, "height": 800})
            tab.goto(server.link.partition("?")[0] + path)
            tab.get_by_role("heading", level=1).wait_for(timeout=WAIT_MS)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_run_that_recorded_nothing_says_why_in_the_list_and_on_its_own_page(runs, tab):
    with Profiler(lambda state: "skip", JSONTraceHandler(str(runs / "empty" / "traces"))) as profiler:
        for _ in profiler.batches(range(3)):
            pass
    with served(runs) as server:
        tab.goto(server.link)
        assert SCHEDULE_SAID in tab.get_by_role("row").filter(has_text="empty").inner_text()
        tab.get_by_role("link", name="empty", exact=True).click()
        tab.get_by_text(SCHEDULE_SAID).wait_for(timeout=WAIT_MS)
        tab.get_by_text("There are no traces to report on.").wait_for(timeout=WAIT_MS)
