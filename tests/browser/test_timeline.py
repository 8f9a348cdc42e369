"""The timeline of a report, in a real browser: moved, searched, measured, clicked, and opened again from its link."""

import json
import re
from dataclasses import replace
from urllib.parse import parse_qs

import polars as pl
import pytest
from playwright.sync_api import expect

from kinetoscope.cli import main
from kinetoscope.pages.html_file import render_page
from kinetoscope.pages.page_data import Column, Counter, Flows, LeftOut, PageData, Spans, Stacks, Timeline, Track
from kinetoscope.report.page.columns import encode_deltas, encode_numbers
from support.minimal_pages import assert_accessible
from trainsim import Fault, Settings

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(analyze_sources):
    """The report of a run on a GPU whose data loader is slow."""
    return analyze_sources(Settings(has_stacks=True, faults=(Fault(kind="slow_loader", cost_ns=3_000_000),)))


def write_timeline(path, spans, num_ranks=1, counters=(), **others):
    """Return a page of one thread for each rank; ``spans`` are names, begins and durations, which each of them has."""
    each = len(spans)
    tracks = [
        Track(rank=rank, kind="thread", name="main", process="", row_begins=[rank * each, (rank + 1) * each])
        for rank in range(num_ranks)
    ]
    names, begins, durations = (list(column) * num_ranks for column in zip(*spans, strict=True)) if spans else ([],) * 3
    nothing = encode_numbers(pl.zeros(len(names), pl.UInt32, eager=True))
    none = encode_numbers(pl.Series([], dtype=pl.UInt32))
    texts = list(dict.fromkeys(["", *names]))
    columns = Spans(
        begins=encode_deltas(pl.Series(begins, dtype=pl.Int64)),
        durations=encode_numbers(pl.Series(durations, dtype=pl.UInt64)),
        names=encode_numbers(pl.Series([texts.index(name) for name in names], dtype=pl.UInt32)),
        **dict.fromkeys(("categories", "details", "stacks", "launches"), nothing),
    )
    timeline = Timeline(
        texts=texts,
        tracks=tracks if spans else [],
        spans=columns,
        flows=Flows(sources=none, targets=none, names=none),
        counters=list(counters),
        details=[],
        stacks=Stacks(lines=none, callers=none),
        notes=["Spans below 1 µs are not shown."],
        **{name: others.pop(name) for name in ("windows", "left_out") if name in others},
    )
    path.write_text(render_page(replace(PageData(version="1", title="spans", timeline=timeline), **others)))
    return path


def place(page):
    """Return the state in the link."""
    return {name: values[0] for name, values in parse_qs(page.url.partition("#")[2]).items()}


def place_after(page, deed):
    """Return the state in the link once it is updated after an action."""
    before = page.url
    deed()
    page.wait_for_function("before => location.href !== before", arg=before)
    return place(page)


def length(page):
    """Where the page says how much time is in view."""
    return page.locator(".timeline-length")


def boxes(page):
    """Where the canvas of tracks is."""
    return page.locator(".timeline-content canvas").bounding_box()


def label(page, text):
    """Return the name of a track."""
    return page.locator(".timeline-label", has_text=text).first


def selected(page):
    """Return the details of the selected span."""
    return page.get_by_role("region", name="Selected span")


def expect_selected(page, name):
    """The selected span has a name, or this in it."""
    expect(selected(page).locator("strong")).to_contain_text(name)


def test_wheel_keys_and_drags_move_the_view_and_the_link_leads_back_to_it(report, page, open_file):
    open_file(report, "#view=timeline")
    whole = length(page).inner_text()

    canvas = boxes(page)
    page.mouse.move(canvas["x"] + 600, canvas["y"] + 60)
    zoomed = place_after(page, lambda: page.mouse.wheel(0, -800))
    expect(length(page)).not_to_have_text(whole)
    closer = place_after(page, lambda: page.keyboard.press("w"))
    assert int(zoomed["from"]) < int(closer["from"]) < int(closer["to"]) < int(zoomed["to"])
    later = place_after(page, lambda: page.keyboard.press("d"))
    assert int(later["from"]) > int(closer["from"])
    page.keyboard.down("Shift")
    page.mouse.down()
    earlier = place_after(page, lambda: page.mouse.move(canvas["x"] + 700, canvas["y"] + 60))
    page.mouse.up()
    page.keyboard.up("Shift")
    assert int(earlier["from"]) < int(later["from"])

    seen = length(page).inner_text()
    page.goto("about:blank")
    open_file(report, f"#view=timeline&from={earlier['from']}&to={earlier['to']}")
    expect(length(page)).to_have_text(seen)
    page.keyboard.press("Home")
    expect(length(page)).to_have_text(whole)


def test_search_counts_and_steps_through_matches(report, page, open_file):
    open_file(report, "#view=timeline")

    page.keyboard.press("/")
    page.keyboard.type("dataloader next")
    count = page.locator(".timeline-count")
    expect(count).to_have_text("20")
    page.keyboard.press("Enter")
    expect(count).to_have_text("1 of 20")
    page.keyboard.press("Enter")
    expect(count).to_have_text("2 of 20")
    expect_selected(page, "DataLoader")
    page.get_by_role("button", name="Previous match").click()
    page.get_by_role("button", name="Previous match").click()
    expect(count).to_have_text("20 of 20")
    page.locator("body").press("n")
    expect(count).to_have_text("1 of 20")

    chosen = selected(page).get_attribute("data-span")
    page.wait_for_function("span => location.hash.includes(`span=${span}`)", arg=chosen)
    page.goto("about:blank")
    open_file(report, f"#view=timeline&q=dataloader+next&span={chosen}")
    expect(count).to_have_text("1 of 20")
    expect_selected(page, "DataLoader")
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(count).to_have_text("")


def test_three_clicks_lead_from_a_kernel_to_its_operator_and_python_frame(report, page, open_file):
    open_file(report, "#view=timeline&from=12300000&to=12320000&rank=1")
    top = page.locator(".timeline-label", has_text="stream 7").nth(1).bounding_box()["y"]

    canvas = boxes(page)
    page.mouse.click(canvas["x"] + canvas["width"] * 0.7, top + 18 + 9)
    expect_selected(page, "clamp_min")
    expect(selected(page)).to_contain_text("kernel")
    expect(selected(page)).to_contain_text("GPU 1")
    page.get_by_role("button", name="aten::relu").click()
    expect_selected(page, "aten::relu")
    page.get_by_role("button", name="model.py(8): forward").click()
    expect_selected(page, "model.py(8): forward")

    selected(page).get_by_role("button", name="clamp_min").first.click()
    expect_selected(page, "clamp_min")
    page.keyboard.press("Escape")
    expect(selected(page)).to_have_count(0)


def test_a_drag_measures_and_lists_what_is_in_it_and_a_table_lists_what_is_in_view(report, page, open_file):
    open_file(report, "#view=timeline")
    canvas = boxes(page)

    page.mouse.move(canvas["x"] + 200, canvas["y"] + 22)
    page.mouse.down()
    link = place_after(page, lambda: page.mouse.move(canvas["x"] + 600, canvas["y"] + 300))["range"]
    page.mouse.up()
    panel = page.get_by_role("region", name="Measured range", exact=True)
    expect(panel).to_contain_text("on the selected tracks")
    expect(panel.locator("tr", has_text="cudaLaunchKernelExC")).to_have_text(re.compile(r"ExC\d+([\d.]+ µs){3}"))
    page.goto("about:blank")
    open_file(report, f"#view=timeline&range={link}")
    expect(panel).to_contain_text("on all tracks")
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)

    page.keyboard.press("t")
    table = page.get_by_role("region", name="Spans in view").first
    expect(table).to_contain_text("longest of")
    table.get_by_role("button", name="step 3", exact=True).first.click()
    expect_selected(page, "step 3")
    expect(selected(page)).to_contain_text("Not in this report")
    assert_accessible(page)


def test_a_drag_moves_where_the_reader_chose_it_and_escape_ends_that(report, page, open_file):
    open_file(report, "#view=timeline&from=4000000&to=9000000")
    canvas = boxes(page)
    page.keyboard.press("m")
    expect(page.get_by_role("button", name="Drag to move")).to_have_attribute("aria-pressed", "true")
    page.mouse.move(canvas["x"] + 200, canvas["y"] + 22)
    page.mouse.down()
    moved = place_after(page, lambda: page.mouse.move(canvas["x"] + 400, canvas["y"] + 22))
    page.mouse.up()
    assert int(moved["from"]) < 4_000_000
    assert "range" not in moved
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Drag to move")).to_have_attribute("aria-pressed", "false")


def test_overview_map_moves_and_resizes_the_view_by_pointer_and_keys(report, page, open_file):
    open_file(report, "#view=timeline&from=4000000&to=9000000")
    minimap = page.get_by_role("slider", name="Visible part of the recording")
    box = minimap.bounding_box()

    expect(minimap).to_have_attribute("aria-valuetext", "5.00 ms from 4.000 ms")
    end = place_after(page, lambda: page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 10))
    assert int(end["to"]) > int(end["from"]) > 9_000_000
    expect(length(page)).to_have_text("5.00 ms in view")
    minimap.focus()
    earlier = place_after(page, lambda: page.keyboard.press("ArrowLeft"))
    assert int(end["from"]) - int(earlier["from"]) == pytest.approx(500_000, abs=2)
    page.keyboard.press("Home")
    expect(length(page)).to_have_text("5.00 ms in view")
    first = page.get_by_text("5.00 ms in view")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.mouse.down()
    page.mouse.up()
    expect(first).to_be_visible()
    place_after(page, lambda: page.keyboard.press("End"))
    assert_accessible(page)


def test_the_ruler_says_which_step_it_is_at_the_pointer_in_view_and_between_steps(report, page, open_file):
    open_file(report, "#view=timeline")
    corner = page.locator(".timeline-ruler .timeline-corner")
    expect(corner).to_have_text(re.compile(r"Rank 0: steps 3 to 12"))
    page.evaluate("location.hash = '#view=timeline&from=4000000&to=4000100'")
    expect(corner).to_have_text(re.compile(r"Rank 0: step \d+"))
    canvas = boxes(page)
    page.mouse.move(canvas["x"] + 300, canvas["y"] + 22)
    expect(corner).to_have_text(re.compile(r"Rank 0: step \d+"))


def test_a_pinned_track_stays_above_the_others_and_in_the_link(report, page, open_file):
    open_file(report, "#view=timeline")
    pin = page.get_by_role("button", name="Pin stream 7").first
    pin.focus()
    link = place_after(page, lambda: page.keyboard.press("Enter"))
    pinned = page.get_by_role("region", name="Pinned tracks")
    expect(pinned).to_contain_text("Rank 0: stream 7")
    expect(pin).to_have_attribute("aria-pressed", "true")
    page.get_by_role("region", name="Tracks", exact=True).evaluate("tracks => (tracks.scrollTop = 300)")
    expect(pinned.locator("canvas")).to_be_in_viewport()
    canvas = pinned.locator("canvas").bounding_box()
    page.mouse.click(canvas["x"] + canvas["width"] / 2, canvas["y"] + 9)
    assert_accessible(page)

    page.goto("about:blank")
    open_file(report, f"#view=timeline&pin={link['pin']}")
    expect(pinned).to_contain_text("Rank 0: stream 7")
    pinned.get_by_role("button", name="Pin Rank 0: stream 7").click()
    expect(pinned).to_have_count(0)


def test_a_finding_opens_its_rank_and_outlines_its_spans(analyze_sources, page, open_file):
    late = Fault(kind="late_host", ranks=(5,), cost_ns=4_000_000, every=2)
    open_file(analyze_sources(Settings(num_ranks=6, num_layers=2, num_steps=8, faults=(late,))))

    finding = page.locator(".findings > ol > li", has_text="Straggler: rank 5").first
    finding.get_by_role("link", name=re.compile("in the timeline")).click()
    expect(page.locator(".timeline-marked")).to_have_text("▾ Rank 5")
    expect(page.locator(".timeline-ruler .timeline-corner")).to_contain_text("Rank 5: step")
    outlined = page.locator(".timeline-outlined")
    expect(outlined).to_have_text(re.compile(r"Straggler: rank 5.*: [1-9]\d* spans? outlined"))
    assert_accessible(page)
    outlined.get_by_role("button", name="Remove the outlines").click()
    expect(outlined).to_have_count(0)


def test_gaps_between_windows_are_folded_and_times_stay_true(page, open_file, tmp_path):
    spans = [("first", 0, 400_000), ("second", 60_000_000_000, 400_000)]
    windows = [[0, 400_000], [60_000_000_000, 60_000_400_000]]
    open_file(write_timeline(tmp_path / "page.html", spans, windows=windows), "#view=timeline")

    expect(length(page)).to_have_text("1.00 min in view")
    canvas = boxes(page)
    for at, name in ((0.25, "first"), (0.75, "second")):  # each takes about half of the width
        page.mouse.move(canvas["x"] + canvas["width"] * at, canvas["y"] + 26)
        expect(page.locator(".timeline-tooltip")).to_contain_text(f"400 µs {name}")
    page.mouse.click(canvas["x"] + canvas["width"] * 0.75, canvas["y"] + 26)
    expect_selected(page, "second")
    expect(selected(page)).to_contain_text("60.0000")
    page.evaluate("location.hash = '#view=timeline&from=60000100000&to=60000200000'")
    expect(length(page)).to_have_text("100 µs in view")
    assert int(place(page)["from"]) == 60_000_100_000


def test_an_area_in_which_spans_are_left_out_says_at_least_and_another_one_does_not(page, open_file, tmp_path):
    spans = [("long", 1000 * at, 900) for at in range(100)]
    column = Column.of
    left_out = LeftOut(cell_ns=1000, tracks=column([0]), cells=column([80]), counts=column([1234]))
    file = write_timeline(tmp_path / "page.html", spans, left_out=left_out)

    panel = page.get_by_role("region", name="Measured range", exact=True)
    open_file(file, "#view=timeline&range=0~50000")
    expect(panel).to_contain_text(": 50 spans on all tracks")
    expect(panel).not_to_contain_text("at least")
    page.goto("about:blank")
    open_file(file, "#view=timeline&range=50000~100000")
    expect(panel).to_contain_text("at least 50 spans")
    expect(panel).to_contain_text("1,234 shorter spans of this area are not on the page")
    expect(panel.locator("tr", has_text="long")).to_contain_text("≥ 50")
    assert_accessible(page)


def test_names_of_a_trace_stay_text_and_counters_show_their_values(page, open_file, tmp_path):
    times = encode_deltas(pl.Series([0, 500_000, 900_000]))
    values = encode_numbers(pl.Series([1, 3, 2]))
    memory = Counter(rank=0, name="GPU memory", unit="B", scale=2.0**30, times=times, values=values)
    spans = [(HOSTILE, 0, 400_000), ("\u202egnirts", 500_000, 400_000), ("x" * 10_000, 950_000, 50_000)]
    open_file(write_timeline(tmp_path / "page.html", spans, counters=[memory]), "#view=timeline")

    expect(label(page, "GPU memory")).to_contain_text("max 3.00 GiB")
    expect(page.locator("main")).to_contain_text("Spans below 1 µs are not shown.")
    canvas = boxes(page)
    page.mouse.move(canvas["x"] + 100, canvas["y"] + 26)
    expect(page.locator(".timeline-tooltip")).to_contain_text(f"400 µs {HOSTILE}")
    page.mouse.click(canvas["x"] + 100, canvas["y"] + 26)
    expect_selected(page, HOSTILE)
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect_selected(page, "10000 characters")
    assert_accessible(page)


def test_first_of_many_ranks_is_open_and_a_link_opens_its_rank(page, open_file, tmp_path):
    path = write_timeline(tmp_path / "page.html", [("a", 0, 1000), ("b", 2000, 500)], num_ranks=64)
    open_file(path, "#view=timeline")

    ranks = page.locator(".timeline-group button")
    expect(ranks).to_have_count(64)
    expect(page.locator(".timeline-group button[aria-expanded=true]")).to_have_text("▾ Rank 0")
    ranks.nth(1).click()
    expect(page.locator(".timeline-track")).to_have_count(2)
    page.evaluate("location.hash = '#view=timeline&rank=40&from=1500&to=3000'")
    expect(page.locator(".timeline-marked")).to_have_text("▾ Rank 40")
    expect(page.locator(".timeline-marked")).to_be_in_viewport()
    expect(length(page)).to_have_text("1.50 µs in view")
    page.get_by_role("button", name="Open all ranks").click()
    expect(page.locator(".timeline-track")).to_have_count(64)
    page.get_by_role("button", name="Close all ranks").click()
    expect(page.locator(".timeline-track")).to_have_count(0)


def test_a_timeline_without_spans_says_what_to_record(page, open_file, tmp_path):
    open_file(write_timeline(tmp_path / "page.html", []), "#view=timeline")
    expect(page.locator("main")).to_contain_text("kinetoscope.marker")


def test_a_report_without_a_timeline_says_how_to_get_one(page, open_file, tmp_path):
    report = {table: [] for table in ("steps", "findings", "operators", "kernels", "ranks", "memory")}
    run = {"ranks": [0], "hosts": [], "num_steps": 0, "world_size": 1}
    path = tmp_path / "page.html"
    path.write_text(render_page(PageData(version="1", title="none", report={"run": run, **report})))
    open_file(path, "#view=timeline")
    expect(page.locator("main")).to_contain_text("--no-timeline")


PERFETTO = """() => {
  const tab = document.body.appendChild(document.createElement("iframe")).contentWindow;
  const answer = { data: "PONG", origin: "https://ui.perfetto.dev", source: tab };
  tab.postMessage = (message) => {
    if (message === "PING") dispatchEvent(new MessageEvent("message", answer));
    else new Response(message.perfetto.buffer).text().then((text) => (window.given = text));
  };
  window.open = () => tab;
}"""
"""Has a tab that answers as Perfetto does, and keeps what it is given."""


def test_perfetto_is_given_the_spans_of_the_page_as_a_valid_trace(report, page, open_file, tmp_path):
    open_file(report, "#view=timeline")
    page.evaluate(PERFETTO)
    page.get_by_role("button", name="Open in Perfetto").click()
    page.get_by_text("The timeline is open in the tab of https://ui.perfetto.dev").wait_for()
    page.wait_for_function("window.given")
    (tmp_path / "given.json").write_text(page.evaluate("window.given"), encoding="utf-8")
    assert main(["check", str(tmp_path / "given.json")]) == 0
    names = {event["name"] for event in json.loads((tmp_path / "given.json").read_text())["traceEvents"]}
    assert {"process_name", "thread_name", "aten::mm"} <= names
