"""The page as a whole: what axe says of each view, names that look like programs, links, narrow windows."""

import json
import re

import pytest
from playwright.sync_api import expect

from kinetoscope.cli import main
from support.minimal_pages import assert_accessible
from trainsim import Fault, Settings, simulate

VIEWS = ["overview", "timeline", "ranks", "communication", "modules", "operators", "kernels", "memory", "flame"]
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\0" + "x" * 10_000
FORMULA = "=cmd()"
IS_MARKED = ("module", "cpu_op", "kernel", "python_function", "user_annotation", "cuda_runtime")
HAPPENED = "window.happened = true"


def _report(folder, arguments=()):
    assert main(["report", "--no-cache", str(folder), "-o", str(folder / "report.html"), *arguments]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """The report of a run with something in every view."""
    folder = tmp_path_factory.mktemp("rich")
    faults = (Fault(kind="slow_loader", cost_ns=3_000_000), Fault(kind="leak", num_bytes=8_000_000))
    simulate(Settings(has_stacks=True, has_modules=True, faults=faults)).write(folder)
    return _report(folder)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The report of the same run, after someone has changed all that a trace lets one choose."""
    folder = tmp_path_factory.mktemp("hostile")
    simulate(Settings(has_stacks=True, has_modules=True, faults=(Fault(kind="slow_loader", cost_ns=3_000_000),))).write(
        folder
    )
    for file in folder.glob("*.json"):
        trace = json.loads(file.read_text())
        trace["host_name"] = trace["traceName"] = HOSTILE
        trace["kinetoscope"] = {"run_name": HOSTILE}
        trace["deviceProperties"][0]["name"] = HOSTILE
        trace["traceEvents"] = [_changed(event) for event in trace["traceEvents"]] + _added(trace["traceEvents"])
        file.write_text(json.dumps(trace))
    return _report(folder)


def _changed(event):
    """Return a span, a thread or a group whose name is markup; steps keep theirs, since they are found by it."""
    arguments = event.get("args") or {}
    if event["ph"] == "M":
        return event | {"args": dict.fromkeys(arguments, f"{FORMULA}{HOSTILE}")}
    changed = {name: f"{FORMULA}{value}{HOSTILE}" for name, value in arguments.items() if name == "Process Group Name"}
    if event.get("cat") not in IS_MARKED or event["name"].startswith("ProfilerStep"):
        return event | {"args": arguments | changed}
    return event | {"name": f"{event['name']}{HOSTILE}", "args": arguments | changed | {HOSTILE: HOSTILE}}


def _added(events):
    """Return a span that is nothing but markup, and a counter."""
    begin = next(event for event in events if event.get("cat") == "cpu_op")
    counter = {"ph": "C", "name": HOSTILE, "pid": begin["pid"], "ts": begin["ts"], "args": {HOSTILE: 1}}
    return [begin | {"name": f"{FORMULA}{HOSTILE}", "dur": begin["dur"] / 2}, counter]


def test_axe_finds_nothing_serious_in_any_view(rich, page, open_file):
    for view in VIEWS:
        open_file(rich, f"#view={view}")
        page.wait_for_selector(f"main[data-view={view}]")
        assert_accessible(page)


def test_names_that_look_like_programs_stay_text_in_every_view(hostile, page, open_file):
    dialogs = []

    def dismiss(dialog):
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    shown = ""
    for view in VIEWS:
        open_file(hostile, f"#view={view}")
        page.wait_for_selector(f"main[data-view={view}]")
        for button in page.get_by_role("button", name="Show as table").all():
            button.click()
        shown += page.locator("body").inner_text()

        assert page.locator("img").count() == 0
        assert page.evaluate("document.scripts.length") == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, view
    assert "onerror=alert(1)" in shown
    page.remove_listener("dialog", dismiss)
    assert dialogs == []


def test_the_page_runs_no_script_but_its_own(rich, browser, tmp_path):
    changed = tmp_path / "changed.html"
    injected = f"<script>{HAPPENED}</script><img src=x onerror='{HAPPENED}'><a href=\"javascript:{HAPPENED}\">link</a>"
    changed.write_text(rich.read_text().replace("<body>", f"<body>{injected}", 1))
    page = browser.new_page()
    refused = []
    page.on("console", lambda message: refused.append(message.text))

    page.goto(changed.as_uri())
    page.wait_for_selector("main")
    page.get_by_role("link", name="link").click()

    assert page.evaluate("window.happened") is None
    assert any("Content Security Policy" in text for text in refused)
    page.close()


def test_link_restores_its_view_after_a_reload_and_back_leaves_it(rich, page, open_file):
    place = "#view=timeline&from=4000000&to=9000000&rank=1"
    open_file(rich, place)
    in_view = page.get_by_text("5.00 ms in view")
    expect(in_view).to_be_visible()

    page.reload()
    expect(in_view).to_be_visible()

    page.get_by_role("link", name="Kernels").click()
    expect(page.locator("main[data-view=kernels]")).to_be_visible()
    page.go_back()
    expect(page.locator("main[data-view=timeline]")).to_be_visible()
    expect(in_view).to_be_visible()


def test_a_phone_shows_the_main_columns_of_each_table_until_all_are_requested(rich, page, open_file):
    page.set_viewport_size({"width": 400, "height": 800})
    too_wide = []
    for view in VIEWS:
        open_file(rich, f"#view={view}")
        page.wait_for_selector(f"main[data-view={view}]")
        tables = page.locator("main :is(.table-scroll, .top-calls)").all()
        too_wide += [view for table in tables if table.evaluate("(box) => box.scrollWidth > box.clientWidth")]
    assert too_wide == []

    open_file(rich, "#view=operators")
    headings = page.get_by_role("columnheader")
    expect(headings).to_contain_text(["Operator", "Self time", "Of step"])
    page.get_by_role("button", name=re.compile(r"^Show \d+ more columns$")).click()
    expect(headings.filter(has_text="p95")).to_be_visible()
    page.get_by_role("button", name=re.compile(r"^Hide \d+ columns$")).click()
    expect(headings).to_have_count(3)


def test_a_narrow_window_shows_every_view_without_scrolling_the_page_sideways(rich, page, open_file):
    page.set_viewport_size({"width": 480, "height": 800})
    too_wide = []
    for view in VIEWS:
        open_file(rich, f"#view={view}")
        page.wait_for_selector(f"main[data-view={view}]")
        if page.evaluate("document.documentElement.scrollWidth") > 480:
            too_wide.append(view)

    assert too_wide == []
