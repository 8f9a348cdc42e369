"""The view of flame graphs, in a real browser: zoomed, searched, walked through by keys, read as a table."""

import pytest
from playwright.sync_api import expect

from kinetoscope.pages.page_data import Column, FlameGraph
from support.minimal_pages import HOSTILE, assert_accessible, write_page

MS = 1_000_000


def flame_graph(calls, title="Python", rank=0):
    """Return a flame graph of ``calls``: for each frame its name, the place of its caller or None, and its own time."""
    totals = [self_ns for _, _, self_ns in calls]
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
        self_ns=Column.of(self_ns for _, _, self_ns in calls),
        total=Column.of(totals),
        total_ns=sum(total for total, (_, caller, _) in zip(totals, calls, strict=True) if caller is None),
        num_calls=Column.of([1] * len(calls)),
        firsts=Column.of(range(len(calls))),
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


def test_click_zooms_in_path_zooms_out_and_keys_do_both(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP)]}), "#view=flame")
    canvas = page.get_by_role("application")
    box = canvas.bounding_box()

    canvas.hover(position={"x": box["width"] * 0.9, "y": 19 * 2 + 9})  # the third level: the shorter callee of train
    assert "train.py(40): load" in page.locator(".tip").inner_text()
    assert "45 %" in page.locator(".tip").inner_text()
    canvas.click(position={"x": box["width"] * 0.9, "y": 19 * 2 + 9})
    assert "train.py(40): load" in page.locator(".flame-path strong").inner_text()
    assert "45.0 ms, self 25.0 ms" in facts(page)
    assert "100 % of the view, 45 % of all" in facts(page)
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
    expect(page.locator(".flame-facts")).to_contain_text("100 ms")
    assert page.locator(".flame-path").count() == 0
    assert_accessible(page)


def test_a_search_says_which_part_of_the_time_it_found_and_marks_it(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP)]}), "#view=flame")
    before = page.get_by_role("application").screenshot()

    page.get_by_role("searchbox").fill("MM")

    assert page.get_by_role("status").first.inner_text() == "Found 1 frame: 40.0 ms, 40 %"
    assert page.get_by_role("application").screenshot() != before
    page.get_by_role("searchbox").fill("nowhere")
    assert page.get_by_role("status").first.inner_text() == "Nothing found"


def test_each_graph_can_be_chosen_and_has_a_table(page, open_file, tmp_path):
    operators = flame_graph([("aten::linear", None, 1 * MS), ("aten::addmm", 0, 3 * MS)], "Operators", None)
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP), operators]}), "#view=flame")

    page.get_by_label("Calls of").select_option("Operators, all ranks")
    rows = [row.split() for row in page.locator("tbody tr").all_inner_texts()]
    assert rows == [
        ["aten::addmm", "3.00", "ms", "3.00", "ms", "1"],
        ["aten::linear", "1.00", "ms", "4.00", "ms", "1"],
    ]
    assert_accessible(page)


def test_frames_of_libraries_are_hidden_by_a_switch_that_a_link_keeps(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP)]}), "#view=flame")
    library = page.get_by_role("cell", name="loader.py(7): read")
    expect(library).to_have_count(1)

    page.get_by_label("Hide library frames").check()

    expect(library).to_have_count(0)
    load = page.get_by_role("row", name="train.py(40): load")
    expect(load).to_contain_text("45.0 ms")
    page.reload()
    expect(library).to_have_count(0)
    assert_accessible(page)


def test_fifty_thousand_frames_and_hostile_names_are_drawn(page, open_file, tmp_path):
    calls = [(name, None, MS) for name in HOSTILE]
    calls += [(f"frame {place % 500}", max(0, place - 1 - place % 7), 100 + place) for place in range(4, 50_000)]
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(calls)]}), "#view=flame")

    page.get_by_role("searchbox").fill("frame 77")
    assert "Found 500 frames" in page.get_by_role("status").first.inner_text()
    canvas = page.get_by_role("application")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert HOSTILE[0] in page.locator(".flame-path strong").inner_text()


def test_calls_lie_left_heavy_or_in_order_of_time_and_callers_above_or_below(page, open_file, tmp_path):
    file = write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(STEP)]})
    open_file(file, "#view=flame")
    canvas = page.get_by_role("application")
    width = canvas.bounding_box()["width"]

    def at_left(level):
        canvas.hover(position={"x": 30, "y": 19 * level + 9})
        return page.locator(".tip strong").inner_text()

    assert at_left(2) == "train.py(30): forward"  # 50 of 100 ms, load has 45
    canvas.hover(position={"x": width * 0.9, "y": 19 * 2 + 9})
    page.get_by_label("Order").select_option("In order of time")
    assert at_left(2) == "train.py(30): forward"  # which came first, too
    page.get_by_label("Drawn as").select_option("Flame: callers below")
    assert at_left(0) == "aten::mm"
    assert at_left(3) == "Python"
    canvas.focus()
    page.keyboard.press("ArrowUp")  # to what it calls, which lies above
    assert "train.py(10): train" in facts(page)
    assert_accessible(page)
    page.reload()
    expect(page.get_by_label("Order")).to_have_value("In order of time")
    expect(page.get_by_label("Drawn as")).to_have_value("Flame: callers below")


def test_a_sandwich_shows_who_called_a_function_and_what_it_called(page, open_file, tmp_path):
    calls = [("a", None, 5 * MS), ("b", None, 5 * MS), ("mm", 0, 10 * MS), ("mm", 1, 20 * MS), ("copy", 3, 8 * MS)]
    open_file(write_page(tmp_path / "page.html", {"flame_graphs": [flame_graph(calls)]}), "#view=flame")
    page.get_by_role("application").focus()
    for key in ("ArrowDown", "ArrowDown"):  # b, then mm in it
        page.keyboard.press(key)
    page.get_by_role("button", name="Callers and callees").click()

    callers, callees = page.get_by_role("application").all()
    assert "38.0 ms, self 30.0 ms" in facts_of(page, 1)
    height = callers.bounding_box()["height"]
    callers.hover(position={"x": 40, "y": height - 19 - 9})  # above the function: its callers
    assert page.locator(".tip").inner_text().startswith("b")
    assert "28.0 ms in calls from here" in page.locator(".tip").inner_text()
    callees.hover(position={"x": 40, "y": 19 + 9})
    assert page.locator(".tip").inner_text().startswith("copy")
    assert_accessible(page)
    page.reload()
    page.get_by_role("button", name="copy", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".table-bar").first).to_contain_text("All calls of copy")
    page.get_by_role("button", name="Back to the graph").click()
    expect(page.get_by_role("application")).to_have_count(1)


def facts_of(page, at):
    return page.locator(".flame-facts").nth(at).inner_text()


def test_a_run_without_stacks_says_how_to_record_them(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html"), "#view=flame")

    assert "with_stack=True" in page.locator(".empty").inner_text()


@pytest.fixture(autouse=True)
def tall_enough(page):
    page.set_viewport_size({"width": 1280, "height": 900})
