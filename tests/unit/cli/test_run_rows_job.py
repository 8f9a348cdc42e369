"""The job that works out the row of a run in a list of runs from its traces, and keeps it."""

import json
import os
import subprocess

import pytest

import kinetoscope
from kinetoscope.cli import run_rows_job
from kinetoscope.cli.run_rows_job import find_run
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.run_row import read_row
from kinetoscope.report.descriptions import describe_saving
from kinetoscope.server.run_search import find_runs
from support.view_server import command_of
from trainsim import Fault, Settings, simulate


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    faults = (Fault(kind="slow_loader", cost_ns=3_000_000),)
    simulate(Settings(num_ranks=2, num_steps=6, faults=faults)).write(folder / "slow")
    (folder / "broken").mkdir()
    (folder / "broken" / "a.json").write_text("no trace")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kinetoscope"


def fill(folder, *names):
    """Run the job in a process of its own, and return its exit status and output."""
    command = [*command_of("run_rows_job", folder), json.dumps(names)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        printed = process.stdout.read()
    return process.returncode, printed


def build_row(folder, name):
    (run,) = (run for run in find_runs(RunFolder(folder)).runs if run.name == name)
    return read_row(folder / name, run.content_hash)


def test_the_row_of_a_run_is_what_its_report_says_and_the_list_finds_it(recorded, own_cache):
    assert fill(recorded, "slow") == (0, b"")
    row = build_row(recorded, "slow")
    report = kinetoscope.analyze(recorded / "slow")
    assert (row.num_steps, row.step_ns, row.mfu) == tuple(report.run[name] for name in ("num_steps", "step_ns", "mfu"))
    assert row.finding == report.findings[0].title
    assert row.saving == describe_saving(report.findings[0], report.run)
    assert (row.ranks, row.hosts) == ([0, 1], report.run["hosts"])
    assert row.overview["findings"][0].startswith(f"{row.finding}: ")
    assert row.overview["breakdowns"][0]["step_ns"] == row.step_ns
    assert row.peak_bytes == max((one.peak_bytes for one in report.memory), default=None)


def test_a_run_in_which_no_fault_was_looked_for_is_not_one_without_faults(recorded):
    report = kinetoscope.analyze(recorded / "slow", step="no such step", cache=False)
    row = run_rows_job.build_row(report, "made from")
    assert (row.finding, row.why_unknown) == (None, "No findings: see the notes of its report.")
    found = run_rows_job.build_row(kinetoscope.analyze(recorded / "slow", cache=False), "made from")
    assert (found.finding is not None, found.why_unknown) == (True, "")


def test_the_report_is_kept_for_the_next_command_and_no_trace_is(recorded, own_cache):
    fill(recorded, "slow")
    assert sorted(path.name.partition(".")[2] for path in own_cache.iterdir()) == ["report.json", "row.json"]
    (kept,) = own_cache.glob("*.report.json")
    before = kept.stat().st_mtime_ns
    os.utime(kept, (1, 1))
    kinetoscope.analyze(recorded / "slow")
    assert kept.stat().st_mtime_ns > before, "it was used"
    assert not list(own_cache.glob("*.parquet")), "and the traces were not read"


def test_a_run_that_cannot_be_analysed_gets_a_reason_and_the_next_one_is_done(recorded):
    assert fill(recorded, "broken", "slow") == (0, b"")
    assert "broken" in build_row(recorded, "broken").why_unknown
    assert build_row(recorded, "slow").num_steps == 6


def test_large_runs_are_analyzed_only_on_request(recorded, monkeypatch):
    monkeypatch.setattr(run_rows_job, "MAX_BYTES", 1000)
    row = run_rows_job.compute_row(recorded / "slow", "now")
    assert row.step_ns is None
    assert row.why_unknown.startswith("Its traces are large (")


def test_a_row_is_no_longer_used_when_a_trace_has_changed_or_is_new(recorded, tmp_path):
    simulate(Settings(num_ranks=1, num_steps=4)).write(tmp_path / "runs" / "one")
    fill(tmp_path / "runs", "one")
    assert build_row(tmp_path / "runs", "one") is not None
    (tmp_path / "runs" / "one" / "more.json").write_text("{}")
    assert build_row(tmp_path / "runs", "one") is None


def test_a_run_is_the_same_one_seen_from_its_folder_and_from_the_one_above(recorded):
    above = {run.name: run for run in find_runs(RunFolder(recorded)).runs}
    assert find_run(recorded / "slow").content_hash == above["slow"].content_hash
    assert find_run(recorded / "slow", max_entries=1) is None
