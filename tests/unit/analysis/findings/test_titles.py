"""analysis/labels.py: what is written above a report, and above its page."""

import json
import os
import shutil

import pytest

import kinetoscope
from kinetoscope.analysis.labels import differing_folders, run_title
from kinetoscope.cli import main
from kinetoscope.report.notebook.view import view
from kinetoscope.report.page.build import build_page
from support.page_data import page_of, page_text
from trainsim import Settings, simulate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run's folder with one trace, which does not say what run it is of."""
    folder = tmp_path_factory.mktemp("made") / "slow digits"
    (folder / "traces").mkdir(parents=True)
    simulate(Settings(num_ranks=1, num_steps=2)).write(folder / "traces")
    return folder


def test_a_single_trace_is_titled_by_its_file_and_the_run_that_it_is_of(folder):
    (file,) = (folder / "traces").iterdir()
    assert run_title([file], None) == run_title([str(file)], None) == "rank0.json"
    assert run_title([file], "digits") == "rank0.json of digits"


def test_a_folder_is_titled_by_the_run_or_else_by_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [run_title([path], None) for path in (folder, folder / "traces", f"{folder}/", ".")] == ["slow digits"] * 4
    assert run_title([folder], "digits") == "digits"


def test_a_second_run_into_the_same_folder_is_titled_by_both_folders(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "digits" / "2")
    second = tmp_path / "digits" / "2"
    assert run_title([second], None) == "2"  # a folder with this name
    (tmp_path / "digits" / "traces").mkdir()
    assert run_title([second], None) == run_title([second / "traces"], "2") == "digits/2"
    assert run_title([second], "mine") == "mine"


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("s3://bucket/anna/rank0.json.gz", "rank0.json.gz"),
        ("https://store/rank0.json?X-Amz-Signature=secret#part", "rank0.json"),
        ("https://", None),
        ("-", "standard input"),
        ("/home/anna/runs/*/traces", None),
        ("", None),
    ],
)
def test_special_file_is_titled_by_its_name_without_a_key(source, title):
    assert run_title([source], None) == title


def test_several_traces_have_the_name_of_their_run():
    assert run_title(["a.json", "b.json"], "digits") == "digits"
    assert run_title(["a.json", "b.json"], None) is None
    assert run_title([], None) is None


def test_undecodable_name_is_titled_and_reported(tmp_path, capsys):
    (file,) = simulate(Settings(num_ranks=1, num_steps=2)).write(tmp_path)
    undecodable = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.json")
    os.rename(file, undecodable)
    assert run_title([undecodable], None) == "caf?.json"
    assert main(["summary", "--no-cache", "--json", undecodable]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["title"].startswith("caf?.json")
    assert main(["report", "--no-cache", undecodable, "-o", str(tmp_path / "report.html")]) == 0


def test_piped_trace_is_not_titled_by_its_descriptor():
    assert run_title(["/dev/fd/63"], "digits") == "standard input of digits"


def test_the_folder_of_an_attempt_is_titled_by_its_run(folder):
    attempt = folder / "traces" / "attempt1"
    attempt.mkdir(exist_ok=True)
    assert run_title([attempt], None) == "slow digits"


def test_a_home_is_no_title(monkeypatch):
    monkeypatch.setattr("os.path.isdir", lambda path: True)
    assert run_title(["/home/anna"], None) is None


def test_a_report_its_page_and_its_comparison_have_the_title_and_the_name_stays(folder, tmp_path):
    other = shutil.copy(next((folder / "traces").iterdir()), tmp_path / "later <b>.json")
    report, later = (kinetoscope.analyze(path, cache=False) for path in (folder, other))
    assert (report.run["title"], report.run["name"]) == ("slow digits", None)
    assert build_page(later, "0").title == view(later).title == "later <b>.json"
    assert page_of(other, redact=True).title == "A run"
    assert "later" not in str(page_of(other, redact=True).report["run"])
    assert view(kinetoscope.compare(report, later)).title == "slow digits and later <b>.json"
    assert repr(report).startswith("<kinetoscope.RunReport of slow digits: ")


def test_a_trace_that_was_loaded_is_titled_as_its_file(folder):
    (trace,) = kinetoscope.load(folder, cache=False)
    assert run_title([trace], None) == "rank0.json"


@pytest.mark.parametrize("within", ["", "traces"])
def test_two_traces_of_one_name_are_distinguished_by_differing_folders(folder, tmp_path, within):
    paths = [tmp_path / run / within / "trace.json" for run in ("main", "mine")]
    for path in paths:
        path.parent.mkdir(parents=True)
        shutil.copy(next((folder / "traces").iterdir()), path)
    found = kinetoscope.compare(*paths, cache=False)
    assert [run["title"] for run in (found.before, found.after)] == ["trace.json in main", "trace.json in mine"]
    assert view(found).title == "trace.json in main and trace.json in mine"
    same = kinetoscope.compare(paths[0], paths[0], cache=False)
    assert [run["title"] for run in (same.before, same.after)] == ["trace.json", "trace.json"]


def test_two_runs_of_one_name_are_distinguished_in_a_report_too(tmp_path):
    paths = [tmp_path / run / "digits" for run in ("main", "mine")]
    for path in paths:
        simulate(Settings(num_ranks=1, num_steps=2)).write(path)
    page = tmp_path / "report.html"
    assert main(["report", *map(str, paths), "--no-timeline", "-o", str(page)]) == 0
    found = kinetoscope.compare(*paths, cache=False)
    titles = [run["title"] for run in (found.before, found.after)]
    assert titles == ["digits in main", "digits in mine"]
    shown = page_text(page.read_text())["comparison"]
    assert [shown[run]["title"] for run in ("before", "after")] == titles


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://anna:key@store/run/t.json", "https://bob:key@store/run/t.json"),
        ("/home/anna/t.json", "/home/bob/t.json"),
        ("-", "-"),
        ("", ""),
    ],
)
def test_two_runs_cannot_be_distinguished_by_user_or_key(before, after, monkeypatch):
    monkeypatch.setattr("os.path.exists", lambda path: True)
    assert differing_folders(before, after) is None


def test_traces_behind_urls_are_distinguished_by_their_folders():
    assert differing_folders("s3://bucket/main/traces/t.json?key=1", "s3://bucket/mine/traces/t.json") == (
        "main",
        "mine",
    )
