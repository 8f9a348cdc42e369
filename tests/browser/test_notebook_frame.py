"""`kinetoscope.view`: the page in a frame without access to anything, in a real browser."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import kinetoscope
from kinetoscope.errors import SettingsError
from kinetoscope.report.notebook.view import MAX_FRAME_BYTES, NotebookPage
from support.minimal_pages import HOSTILE, assert_accessible
from trainsim import Settings, simulate


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    simulate(Settings(num_ranks=2)).write(folder)
    return kinetoscope.analyze(folder, cache=False)


def write_notebook(path: Path, shown: NotebookPage) -> Path:
    """Return a page that shows it as a notebook does."""
    title = "<meta charset=utf-8><title>notebook</title><h1 id='cell'>A notebook</h1>"
    path.write_text(f"<!doctype html><html lang=en>{title}{shown._repr_html_()}</html>", encoding="utf-8")
    return path


def test_the_frame_draws_its_views_and_links_stay_within_it(report, page, tmp_path):
    path = write_notebook(tmp_path / "notebook.html", kinetoscope.view(report))
    page.context.grant_permissions(["clipboard-write"])
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe")

    frame.get_by_role("link", name="Operators").click()
    frame.get_by_role("searchbox").fill("mm")
    assert "aten::mm" in frame.locator("tbody tr").first.inner_text()
    frame.get_by_role("button", name="Copy as TSV").click()
    frame.get_by_text("Copied:").wait_for()
    frame.get_by_role("link", name="Memory").click()
    frame.locator("main[data-view=memory]").wait_for()
    assert page.url == path.as_uri()
    assert page.locator("#cell").inner_text() == "A notebook"
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_a_report_in_a_cell_is_readable_on_the_notebooks_own_ground(report, page, tmp_path, ground):
    text = "#111111" if ground == "#ffffff" else "#eeeeee"
    style = f"<style>body {{ background: {ground}; color: {text} }}</style><title>cells</title><h1>Cells</h1>"
    cells = f"<main>{report._repr_html_()}</main>"
    page_text = f"<!doctype html><html lang=en><meta charset=utf-8>{style}{cells}</html>"
    (tmp_path / "cell.html").write_text(page_text, encoding="utf-8")
    page.goto((tmp_path / "cell.html").as_uri())
    assert_accessible(page)
    bar = page.locator("table").first.bounding_box()
    parts = [part.bounding_box() for part in page.locator("table").first.locator("td").all()]
    assert sum(part["width"] for part in parts) == pytest.approx(bar["width"], rel=0.02)
    assert all(part["height"] > 5 for part in parts)
    assert page.evaluate("document.scripts.length") == 0


def test_a_report_that_is_too_large_leaves_rows_out_and_says_so(report, page, tmp_path):
    row = report.operators[0]
    random = Random(7)  # or the page would be packed
    many = [type(row)(**{**row.to_dict(), "name": f"{random.randbytes(60).hex()}{HOSTILE[0]}"}) for _ in range(8_000)]
    shown = kinetoscope.view(replace(report, operators=many))

    assert len(shown._repr_html_()) <= MAX_FRAME_BYTES
    page.goto(write_notebook(tmp_path / "notebook.html", shown).as_uri())
    note = page.frame_locator("iframe").locator(".page-note").last.inner_text()
    assert "of 8,000 operators" in note
    assert "of 8,000 operators by name" in note
    assert "kinetoscope report" in note


def test_comparison_and_folder_are_shown_and_outside_a_notebook_instructions(report, page, tmp_path):
    shown = kinetoscope.view(kinetoscope.compare(report, report), height=500)
    page.goto(write_notebook(tmp_path / "notebook.html", shown).as_uri())

    page.frame_locator("iframe").locator("main[data-view=compare]").wait_for()
    assert page.locator("iframe").bounding_box()["height"] == 500
    assert "kinetoscope report PATH --open" in repr(shown)
    simulate(Settings(num_ranks=1, num_steps=2)).write(tmp_path / "run")
    assert "iframe" in kinetoscope.view(tmp_path / "run")._repr_html_()


@pytest.mark.parametrize(
    ("source", "height", "message"), [(3, 720, "not a int"), ("run", 0, "above 0"), ("run", True, "above 0")]
)
def test_invalid_argument_of_view_is_refused(source, height, message):
    with pytest.raises(SettingsError, match=message):
        kinetoscope.view(source, height=height)
