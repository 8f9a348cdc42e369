"""Unknown values of runs are computed by one process after the other, and each state of a run is tried once."""

import sys

import pytest

from kinetoscope.formats.run_row import RunRow, read_row, write_row
from kinetoscope.server.row_filler import RowFiller
from kinetoscope.server.run_search import FoundFile, FoundRun
from support.polling import wait_for

# Writes the names that it gets into a file, a line for each process, and a row for each run; dies of the run "bad".
PROGRAM = """
import json, os, sys
from pathlib import Path
from kinetoscope.formats.run_row import RunRow, write_row
folder, names = Path(sys.argv[1]), json.loads(sys.argv[2])
with open(folder / "said", "a") as said:
    said.write(" ".join(names) + "\\n")
for name in names:
    if name == "bad":
        os._exit(9)
    if name == "slow":
        sys.stdin.read()
    write_row(folder / name, RunRow(content_hash=(folder / name).with_suffix(".mark").read_text(), num_steps=7))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def filler(tmp_path):
    filler = RowFiller(tmp_path, [sys.executable, "-c", PROGRAM, str(tmp_path)])
    yield filler
    filler.close()


def found(folder, name, mark="1"):
    run = FoundRun(name, traces=[FoundFile(f"{name}/a.json", 1, 1, mark)])
    (folder / f"{name}.mark").write_text(run.content_hash)
    return run


def requested_names(folder):
    return (folder / "said").read_text().splitlines()


def test_rows_are_worked_out_in_the_order_in_which_they_are_wanted_and_once(tmp_path, filler):
    runs = [found(tmp_path, name) for name in ("b", "a", "c")]
    filler.request_rows(runs)
    wait_for(lambda: not any(filler.is_pending(run.name) for run in runs))
    filler.request_rows(runs)
    filler.close()
    assert requested_names(tmp_path) == ["b a c"]
    assert [read_row(tmp_path / run.name, run.content_hash).num_steps for run in runs] == [7, 7, 7]


def test_a_run_that_kills_the_process_is_not_tried_again_and_those_after_it_are(tmp_path, filler):
    runs = [found(tmp_path, name) for name in ("a", "bad", "c")]
    for _ in range(3):
        filler.request_rows([run for run in runs if read_row(tmp_path / run.name, run.content_hash) is None])
        wait_for(lambda: not any(filler.is_pending(run.name) for run in runs))
    assert requested_names(tmp_path) == ["a bad c", "c"]


@pytest.fixture
def no_cache(own_cache, tmp_path):
    """Make a cache that no user can write: in place of its folder is a file."""
    (tmp_path / "cache").write_text("")


def ask_again_until_all_are_tried(filler, runs):
    """Request runs as pages do that show unknown values."""
    for _ in range(2 * len(runs)):
        filler.request_rows(runs)
        wait_for(lambda: not any(filler.is_pending(run.name) for run in runs))


def test_without_a_cache_each_run_is_worked_out_once_though_nothing_is_kept_of_it(tmp_path, filler, no_cache):
    ask_again_until_all_are_tried(filler, [found(tmp_path, name) for name in ("a", "b", "c")])
    assert requested_names(tmp_path) == ["a b c"]


def test_runs_next_to_one_that_kills_the_process_are_retried_alone_without_cache(tmp_path, filler, no_cache):
    runs = [found(tmp_path, name) for name in ("a", "b", "bad", "c")]
    ask_again_until_all_are_tried(filler, runs)
    assert requested_names(tmp_path) == ["a b bad c", "b", "bad", "c"]


def test_a_run_that_has_changed_is_tried_again(tmp_path, filler):
    for mark in ("1", "2"):
        run = found(tmp_path, "a", mark)
        filler.request_rows([run])
        wait_for(lambda: not filler.is_pending("a"))
        assert read_row(tmp_path / "a", run.content_hash) is not None
    assert requested_names(tmp_path) == ["a", "a"]


def test_closing_ends_the_process(tmp_path, filler):
    filler.request_rows([found(tmp_path, "slow")])
    wait_for((tmp_path / "said").exists)
    filler.close()
    filler.request_rows([found(tmp_path, "late")])
    assert requested_names(tmp_path) == ["slow"]


def test_a_row_is_only_read_for_the_state_that_it_was_made_from(tmp_path):
    write_row(tmp_path / "run", RunRow(content_hash="now", finding="slow loader"))
    assert read_row(tmp_path / "run", "now").finding == "slow loader"
    assert read_row(tmp_path / "run", "later") is None
    assert read_row(tmp_path / "other", "now") is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 10_000, b'{"content_hash": "now", "num_steps": "many"}', b"\xff"]
)
def test_a_damaged_row_is_none(tmp_path, content):
    write_row(tmp_path, RunRow(content_hash="now"))
    (kept,) = (tmp_path / "cache" / "kinetoscope").iterdir()
    kept.write_bytes(content)
    assert read_row(tmp_path, "now") is None
