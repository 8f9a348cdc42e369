"""report/descriptions: the command that measures a fix has the folder of the run."""

import io

import pytest
from rich.console import Console

import kinetoscope
from kinetoscope.report.descriptions import format_ranks_of_slow_step, split_code
from kinetoscope.report.notebook.cell_html import render_cell
from kinetoscope.report.page.build import build_page
from kinetoscope.report.terminal.summary import render_summary
from trainsim import simulate, stories


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder") / "late run"
    folder.mkdir()
    simulate(stories.VALUES_AND_LATE_RANK).write(folder)
    return folder


def screen(report, *, with_details):
    out = io.StringIO()
    Console(file=out, width=1000, highlight=False).print(render_summary(report, 1000, with_details=with_details))
    return out.getvalue()


def outputs(source):
    """Return all texts with the command: both screens, the page, and the notebook."""
    report = kinetoscope.analyze(source, cache=False)
    page = build_page(report, "", recorded=None)
    return {
        "screen": screen(report, with_details=False),
        "details": screen(report, with_details=True),
        "page": page.report["findings"][0]["advice"],
        "notebook": render_cell(report),
    }


def test_a_run_below_the_working_folder_is_named_in_each_output(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for name, text in outputs("late run").items():
        assert "kinetoscope try --run 'late run' --fix" in text.replace("&#39;", "'"), name


def test_only_terminals_name_the_folders_above_a_run(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = outputs(folder)
    for name in ("screen", "details"):
        assert f"kinetoscope try --run '{folder}' --fix" in found[name]
    for name in ("page", "notebook"):
        assert "kinetoscope try --run RUN --fix" in found[name]
        assert folder.parent.name not in found[name]


def test_a_single_trace_has_a_placeholder(folder):
    assert "kinetoscope try --run RUN --fix" in outputs(next(folder.glob("**/*rank0*.json*")))["screen"]


@pytest.mark.parametrize(("ranks", "text"), [([3], "3"), ([3, 5], "3 and 1 more"), ([0, 1, 2, 3], "3 and 3 more")])
def test_a_slow_step_has_one_rank_and_the_number_of_others(ranks, text):
    assert format_ranks_of_slow_step({"rank": 3, "ranks": ranks}) == text


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (
            "Set `a=1` or `b` and `c`.",
            [("Set ", 0), ("a=1", 1), (" or ", 0), ("b", 1), (" and ", 0), ("c", 1), (".", 0)],
        ),
        ("`a``b`", [("a", 1), ("b", 1)]),
        ("a foreign ` name", [("a foreign ` name", 0)]),
        ("", []),
    ],
)
def test_text_between_backticks_is_code(text, pieces):
    assert split_code(text) == pieces
