"""The timeline of a report, in a real browser: moved, searched, measured, clicked, and opened again from its link."""

import re
from dataclasses import replace
from urllib.parse import parse_qs

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from kinetoscope.pages.page import render_page
from kinetoscope.pages.page_data import Counter, Flows, PageData, Spans, Stacks, Timeline, Track
from kinetoscope.report.page.columns import differences, numbers
from simulated_training import Fault, Settings

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(report_of):
    """The report of a run on a GPU whose data loader is slow."""
    return report_of(Settings(has_stacks=True, faults=(Fault(kind="slow_loader", cost_ns=3_000_000),)))


def write_timeline(path, spans, num_ranks=1, counters=(), **others):
    """A page of one thread for each rank; ``spans`` are names, begins and durations, which each of them has."""
    each = len(spans)
    tracks = [
        Track(rank=rank, kind="thread", name="main", process="", row_begins=[rank * each, (rank + 1) * each])
        for rank in range(num_ranks)
    ]
    names, begins, durations = (list(column) * num_ranks for column in zip(*spans, strict=True)) if spans else ([],) * 3
    nothing = numbers(pl.zeros(len(names), pl.UInt32, eager=True))
    none = numbers(pl.Series([], dtype=pl.UInt32))
    texts = list(dict.fromkeys(["", *names]))
    columns = Spans(
        begins=differences(pl.Series(begins, dtype=pl.Int64)),
        durations=numbers(pl.Series(durations, dtype=pl.UInt64)),
        names=numbers(pl.Series([texts.index(name) for name in names], dtype=pl.UInt32)),
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
    )
    path.write_text(render_page(replace(PageData(version="1", title="spans", timeline=timeline), **others)))
    return path


def place(page):
    """What the link says."""
    return {name: values[0] for name, values in parse_qs(page.url.partition("#")[2]).items()}


def place_after(page, deed):
    """What the link says when it was brought up to date after a deed."""
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
    """The name of a track."""
    return page.locator(".timeline-label", has_text=text).first


def selected(page):
    """What is said of the selected span."""
    return page.get_by_role("region", name="Selected span")


def expect_selected(page, name):
    """The selected span has a name, or this in it."""
    expect(selected(page).locator("strong")).to_contain_text(name)


def assert_accessible(page):
    """Axe finds nothing serious, light and dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        assert not [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")]


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
    page.mouse.down()
    earlier = place_after(page, lambda: page.mouse.move(canvas["x"] + 700, canvas["y"] + 60))
    page.mouse.up()
    assert int(earlier["from"]) < int(later["from"])

    seen = length(page).inner_text()
    page.goto("about:blank")
    open_file(report, f"#view=timeline&from={earlier['from']}&to={earlier['to']}")
    expect(length(page)).to_have_text(seen)
    page.keyboard.press("Home")
    expect(length(page)).to_have_text(whole)


def test_a_search_counts_and_goes_from_match_to_match(report, page, open_file):
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
    page.get_by_role("button", name="Match before").click()
    page.get_by_role("button", name="Match before").click()
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


def test_three_clicks_lead_from_a_kernel_to_the_operator_and_the_python_frame_that_launched_it(report, page, open_file):
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

    page.get_by_role("button", name="Measure").click()
    page.mouse.move(canvas["x"] + 200, canvas["y"] + 22)
    page.mouse.down()
    link = place_after(page, lambda: page.mouse.move(canvas["x"] + 600, canvas["y"] + 300))["range"]
    page.mouse.up()
    panel = page.get_by_role("region", name="Measured range", exact=True)
    expect(panel).to_contain_text("on the tracks that were dragged over")
    expect(panel.locator("tr", has_text="cudaLaunchKernelExC")).to_have_text(re.compile(r"ExC\d+[\d.]+ µs"))
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
    expect(selected(page)).to_contain_text("Not kept")
    assert_accessible(page)


def test_names_of_a_trace_stay_text_and_counters_show_their_values(page, open_file, tmp_path):
    times = differences(pl.Series([0, 500_000, 900_000]))
    values = numbers(pl.Series([1, 3, 2]))
    memory = Counter(rank=0, name="GPU memory", unit="B", scale=2.0**30, times=times, values=values)
    spans = [(HOSTILE, 0, 400_000), ("\u202egnirts", 500_000, 400_000), ("x" * 10_000, 950_000, 50_000)]
    open_file(write_timeline(tmp_path / "page.html", spans, counters=[memory]), "#view=timeline")

    expect(label(page, "GPU memory")).to_contain_text("most 3.00 GiB")
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


def test_of_many_ranks_the_first_is_open_and_a_link_opens_the_one_it_names(page, open_file, tmp_path):
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
