"""The view of memory, in a real browser: areas over time, their peak, and what grows."""

import re

import pytest

from kinetoscope.pages.page_data import Allocation, Column, MemoryOverTime, StepEnd
from support.minimal_pages import HOSTILE, assert_accessible, write_page

MIB = 2**20
MS = 1_000_000


def over_time(rank=0, device="device 0", peak_mib=600):
    """Memory that grows in each of ten steps, and has a peak in step 7."""
    times = [place * MS for place in range(100)]
    kept = [100 + 5 * (place // 10) for place in range(100)]
    forward = [(place % 10) * 20 for place in range(100)]
    forward[75] = peak_mib - kept[75]
    return MemoryOverTime(
        rank=rank,
        device=device,
        categories=["before_recording", "forward"],
        times=Column.of(times, is_delta=True),
        sizes=[Column.of((mib * MIB for mib in kept), is_delta=True), Column.of(mib * MIB for mib in forward)],
        totals=Column.of(MIB * (one + other) for one, other in zip(kept, forward, strict=True)),
        peak=75,
        peak_bytes=peak_mib * MIB,
        alive_at_peak=[
            Allocation(
                category="forward", name=name, line="train.py:12", step=7, size_bytes=MIB * (9 - at), num_allocations=3
            )
            for at, name in enumerate(["aten::mm", *HOSTILE])
        ],
        step_ends=[
            StepEnd(step=step, time=(step + 1) * 10 * MS - 1, size_bytes=MIB * (280 + 5 * step)) for step in range(10)
        ],
    )


STEPS = [
    {"rank": 0, "step": step, "begin_ns": step * 10 * MS, "duration_ns": 10 * MS - 1, "num_kernels": None}
    for step in range(10)
]
ROW = {
    "rank": 0,
    "device": 0,
    "peak_bytes": 600 * MIB,
    "peak_step": 7,
    "by_category": {"before_recording": 135 * MIB, "forward": 465 * MIB},
    "growth_bytes_per_step": 5 * MIB,
    "holders": [
        {"operator": "aten::cat", "line": "train.py:40", "steps": list(range(1, 10)), "bytes_per_step": 5 * MIB}
    ],
}


def legend(page):
    return page.locator(".memory-legend").inner_text()


def test_peak_live_memory_at_the_peak_and_growth_are_reported(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", {"memory": [over_time()]}, memory=[ROW]), "#view=memory")

    assert "at most 600 MiB" in page.locator("main h2").first.inner_text()
    assert "Peak 600 MiB at 75.0 ms" in legend(page)
    assert "before recording 135 MiB" in legend(page)
    alive = page.get_by_label("Live at the peak on device 0 of rank 0").locator("tbody tr")
    assert alive.first.inner_text().split() == ["aten::mm", "forward", "train.py:12", "7", "3", "9.00", "MiB"]
    assert alive.locator("td:first-child").all_inner_texts()[1:4] == HOSTILE[:3]
    grows = page.get_by_label("Memory growth").locator("tbody tr")
    assert "aten::cat" in grows.inner_text()
    assert "9 steps, 1 to 9" in grows.inner_text()
    assert "forward 465 MiB, before recording 135 MiB" in page.get_by_label("Peak of each device").inner_text()
    assert_accessible(page)


def test_pointer_and_keys_show_numbers_and_zoom_and_a_link_keeps_them(page, open_file, tmp_path):
    report = {"memory": [over_time(), over_time(rank=1, peak_mib=700)]}
    open_file(write_page(tmp_path / "page.html", report, memory=[ROW]), "#view=memory")
    page.get_by_role("combobox").select_option("device 0 of rank 1")
    assert "at most 700 MiB" in page.locator("main h2").first.inner_text()
    chart = page.get_by_role("application")
    plot = page.locator(".u-over").bounding_box()

    page.mouse.move(plot["x"] + plot["width"] * 0.505, plot["y"] + 40)
    assert "125 MiB at 50.0 ms" in legend(page).replace("\n", " ")
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * 0.8, plot["y"] + 40, steps=3)
    page.mouse.up()
    page.wait_for_url(re.compile("from="))
    page.reload()
    assert "at most 700 MiB" in page.locator("main h2").first.inner_text()
    page.get_by_role("button", name="Show as table").click()
    assert "31 moments" in page.get_by_role("status").first.inner_text()
    page.get_by_role("button", name="Show as table").click()
    chart.focus()
    page.keyboard.press("Home")
    page.wait_for_url(lambda url: "from=" not in url)
    page.keyboard.press("ArrowRight")
    assert "Peak" not in legend(page)


def test_bars_show_that_memory_grows_as_steps_end(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", {"memory": [over_time()]}, steps=STEPS, memory=[ROW]), "#view=memory")

    bars = page.get_by_role("img", name="Live memory at the end of a step: 280 MiB in step 0, 325 MiB in step 9")
    assert bars.locator("> span").count() == 10
    bars.locator("> span").nth(2).hover()
    assert page.get_by_text("Step 2: 290 MiB").is_visible()
    assert "in step 7" in legend(page)


def test_unrecorded_memory_is_reported_as_such(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html"), "#view=memory")
    assert "profile_memory=True" in page.locator(".empty").inner_text()

    unknown = ROW | {"growth_bytes_per_step": None, "holders": [], "by_category": {}}
    open_file(write_page(tmp_path / "rows.html", memory=[unknown]), "#view=memory")
    assert "Unknown: memory must" in page.locator("main").inner_text()


def test_the_memory_timeline_of_torch_is_the_same_page_with_nothing_else(page, open_file, tmp_path):
    pytest.importorskip("torch")
    from kinetoscope.torch.memory_timeline import Action, Category, MemoryChange, MemoryTimeline

    changes = [
        MemoryChange(MS * at, Action.CREATE, size * MIB, category)
        for at, (size, category) in enumerate(
            [(3, Category.PARAMETER), (5, Category.ACTIVATION), (-4, Category.ACTIVATION)]
        )
    ]
    MemoryTimeline("cpu", changes).save(tmp_path / "memory.html")
    MemoryTimeline("cuda:7", []).save(tmp_path / "nothing.html")

    open_file(tmp_path / "memory.html")
    assert page.title() == "Memory of cpu"
    assert page.locator("nav[aria-label=Views] a").count() == 1
    assert "at most 8.00 MiB" in page.locator("main h2").inner_text()
    assert "Peak 8.00 MiB at 1.00 ms" in legend(page)
    assert "parameter 3.00 MiB" in legend(page)
    assert_accessible(page)
    open_file(tmp_path / "nothing.html")
    assert "Nothing was allocated on cuda:7" in page.locator(".empty").inner_text()
