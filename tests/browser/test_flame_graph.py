"""The view of flame graphs, in a real browser: zoomed, searched, walked through by keys, read as a table."""

import pytest

from kinetoscope.pages.page_data import Column, FlameGraph
from small_pages import HOSTILE, assert_accessible, write_page

MS = 1_000_000


def flame_graph(calls, title="Python", rank=0):
    """A flame graph of ``calls``: for each frame its name, the place of its caller or None, and its own time."""
    totals = [own for _, _, own in calls]
    for place in reversed(range(len(calls))):
        caller = calls[place][1]
        if caller is not None:
            totals[caller] += totals[place]
    texts = list(dict.fromkeys(name for name, _, _ in calls))
    return FlameGraph(
        title=title,
        rank=rank,
        texts=texts,
        names=Column.of(texts.index(name) for name, _, _ in calls),
        callers=Column.of(0 if caller is None else caller + 1 for _, caller, _ in calls),
        own=Column.of(own for _, _, own in calls),
        total=Column.of(totals),
        total_ns=sum(total for total, (_, caller, _) in zip(totals, calls, strict=True) if caller is None),
        num_calls=Column.of([1] * len(calls)),
    )


STEP = [
    ("train.py(10): train", None, 5 * MS),
    ("train.py(30): forward", 0, 10 * MS),
    ("train.py(40): load", 0, 25 * MS),
    ("aten::mm", 1, 40 * MS),
    ("site-packages/data/loader.py(7): read", 2, 20 * MS),
]


def facts(page):
    return page.locator(".flame-facts").inner_text()


def test_a_click_zooms_the_path_goes_back_and_keys_do_the_same(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP)]}), "#view=flame")
    canvas = page.get_by_role("application")
    box = canvas.bounding_box()

    canvas.hover(position={"x": box["width"] * 0.9, "y": 19 * 2 + 9})  # the third level: the shorter callee of train
    assert "train.py(40): load" in page.locator(".tip").inner_text()
    assert "45 %" in page.locator(".tip").inner_text()
    canvas.click(position={"x": box["width"] * 0.9, "y": 19 * 2 + 9})
    assert "train.py(40): load" in page.locator(".flame-path strong").inner_text()
    assert "45.0 ms, of which own 25.0 ms" in facts(page)
    assert "100 % of the shown, 45 % of all" in facts(page)
    page.reload()
    assert "load" in page.locator(".flame-path strong").inner_text()
    page.get_by_role("button", name="train.py(10): train").click()
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert "loader.py(7): read" in facts(page)
    page.keyboard.press("Enter")
    assert "read" in page.locator(".flame-path strong").inner_text()
    page.keyboard.press("Escape")
    assert "load" in page.locator(".flame-path strong").inner_text()
    page.keyboard.press("Home")
    assert "100 ms" in facts(page)
    assert page.locator(".flame-path").count() == 0
    assert_accessible(page)


def test_a_search_says_which_part_of_the_time_it_found_and_marks_it(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP)]}), "#view=flame")
    before = page.get_by_role("application").screenshot()

    page.get_by_role("searchbox").fill("MM")

    assert page.get_by_role("status").inner_text() == "Found 1 frame: 40.0 ms, 40 %"
    assert page.get_by_role("application").screenshot() != before
    page.get_by_role("searchbox").fill("nowhere")
    assert page.get_by_role("status").inner_text() == "Nothing found"


def test_each_graph_can_be_chosen_and_read_as_a_table(page, open_file, tmp_path):
    operators = flame_graph([("aten::linear", None, 1 * MS), ("aten::addmm", 0, 3 * MS)], "Operators", None)
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP), operators]}), "#view=flame")

    page.get_by_label("Calls of").select_option("Operators, all ranks")
    page.get_by_role("button", name="Show as table").click()

    rows = [row.split() for row in page.locator("tbody tr").all_inner_texts()]
    assert rows == [
        ["aten::addmm", "3.00", "ms", "3.00", "ms", "1"],
        ["aten::linear", "1.00", "ms", "4.00", "ms", "1"],
    ]
    assert_accessible(page)


def test_fifty_thousand_frames_and_hostile_names_are_drawn(page, open_file, tmp_path):
    calls = [(name, None, MS) for name in HOSTILE]
    calls += [(f"frame {place % 500}", max(0, place - 1 - place % 7), 100 + place) for place in range(4, 50_000)]
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(calls)]}), "#view=flame")

    page.get_by_role("searchbox").fill("frame 77")
    assert "Found 500 frames" in page.get_by_role("status").inner_text()
    canvas = page.get_by_role("application")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert HOSTILE[0] in page.locator(".flame-path strong").inner_text()


def test_a_run_without_stacks_says_how_to_record_them(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html"), "#view=flame")

    assert "with_stack=True" in page.locator(".empty").inner_text()


@pytest.fixture(autouse=True)
def tall_enough(page):
    page.set_viewport_size({"width": 1280, "height": 900})
