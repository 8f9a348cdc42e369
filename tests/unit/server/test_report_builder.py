"""Requested reports are made one after the other, each once, and the last few are stored."""

import sys

import pytest

from kinetoscope.server.report_builder import ReportBuilder
from kinetoscope.server.run_search import FoundFile, FoundRun
from support.polling import wait_for

MAX_KEPT = 8
# Notes the run of the requested report, waits for the file "go", and writes the report. It fails if there is a
# file "disk is full", "memory is full" or "defect".
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
folder, (page, *names) = Path(sys.argv[1]), json.loads(sys.argv[2])
with open(folder / "said", "a") as said:
    said.write(" ".join(names) + "\\n")
while not (folder / "go").exists():
    time.sleep(0.01)
if (folder / "disk is full").exists():
    sys.exit("error: the disk is full")
if (folder / "memory is full").exists():
    os.kill(os.getpid(), signal.SIGKILL)
if (folder / "defect").exists():
    raise ValueError("no rank")
Path(page).write_text(" ".join(names))
"""


@pytest.fixture
def made(tmp_path):
    (tmp_path / "pages").mkdir()
    made = ReportBuilder(tmp_path / "pages", [sys.executable, "-c", PROGRAM, str(tmp_path)])
    yield made
    made.close()


def found(name):
    return FoundRun(name, traces=[FoundFile(f"{name}/a.json", 1, 1)])


def page_when_built(made, run):
    """Poll as a waiting tab does, until there is a page, or a problem."""
    return wait_for(lambda: (page := made.get([run])) and (page.is_ready or page.problem) and page)


def built_names(folder):
    return (folder / "said").read_text().splitlines()


def test_nine_reports_that_are_waited_for_at_once_are_all_made_and_each_once(tmp_path, made):
    runs = [found(f"run{number}") for number in range(MAX_KEPT + 1)]
    for _ in range(3):
        assert not any(made.get([run]).is_ready for run in runs)
    (tmp_path / "go").touch()
    assert [page_when_built(made, run).path.read_text() for run in runs] == [run.name for run in runs]
    assert sorted(built_names(tmp_path)) == [run.name for run in runs]
    assert len(list((tmp_path / "pages").iterdir())) == MAX_KEPT


@pytest.mark.parametrize(
    ("cause", "problem"),
    [
        ("disk is full", "the disk is full"),
        ("memory is full", "its process was killed (SIGKILL), as the system does when memory is exhausted"),
        ("defect", "ValueError: no rank"),
    ],
)
def test_failed_report_shows_its_reason_and_is_built_on_the_next_request(cause, problem, tmp_path, made):
    run = found("digits")
    (tmp_path / "go").touch()
    (tmp_path / cause).touch()
    assert page_when_built(made, run).problem == problem
    (tmp_path / cause).unlink()
    assert page_when_built(made, run).path.read_text() == "digits"
