"""The table of slow steps in the first view, in a real browser."""

from support.minimal_pages import HOSTILE, assert_accessible, write_page

MS = 1_000_000


def slow(step, excess_ns, line, **others):
    usual = {"rank": 0, "ranks": [0], "phase": "forward", "starved_ns": None, "is_machines": False, "every": None}
    row = {"step": step, "excess_ns": excess_ns, "duration_ns": excess_ns + 10 * MS, "line": line, "num_kept": 1}
    return usual | row | others


def cells(page):
    rows = page.locator(".slow-steps tbody tr").all()
    return [[cell.strip() for cell in row.locator("td").all_inner_texts()] for row in rows]


def test_slow_steps_are_listed_the_slowest_first_with_what_is_known_of_them(page, open_file, tmp_path):
    rows = [
        slow(1500, 300 * MS, "train.py:41", every=500, num_kept=4, phase="checkpoint"),
        slow(70, 90 * MS, None, rank=1, ranks=[0, 1, 2], phase="data_wait", is_machines=True),
    ]
    open_file(write_page(tmp_path / "page.html", run={"slow_steps": rows}))

    page.get_by_role("heading", name="Slow steps").wait_for()
    first, second = cells(page)
    assert first == ["1,500", "300 ms", "310 ms", "checkpoint", "train.py:41", "0", "every 500 steps, 4 kept"]
    assert second[3:] == ["data wait", "unknown", "1 and 2 more", "its thread waited for a CPU"]
    assert_accessible(page)


def test_a_run_without_slow_steps_has_no_table_of_them(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html"))

    page.get_by_role("heading", name="About this run").wait_for()
    assert page.get_by_role("heading", name="Slow steps").count() == 0


def test_hostile_names_of_files_stay_text(page, open_file, tmp_path):
    rows = [slow(number, (9 - number) * MS, name) for number, name in enumerate(HOSTILE)]
    open_file(write_page(tmp_path / "page.html", run={"slow_steps": rows}))

    page.get_by_role("heading", name="Slow steps").wait_for()
    assert [row[4] for row in cells(page)][:2] == HOSTILE[:2]
    assert page.locator("img").count() == 0
