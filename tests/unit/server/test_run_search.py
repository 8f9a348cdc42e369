"""Which runs a folder holds, how they are doing, and which files belong to them."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.server import run_search
from kinetoscope.server.run_search import RunState, find_runs, is_report

REPORT = '<!doctype html><meta charset="utf-8"><meta name="generator" content="kinetoscope 0.1.0" /><p>findings</p>'

TRAIN_UNTIL_TOLD = """
import sys
import time
from types import SimpleNamespace
from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
with Profiler(cyclic_schedule(wait=0, warmup=0, active=1), [JSONTraceHandler(sys.argv[1])]) as profiler:
    for batch in profiler.batches(range(3)):
        if batch == 2:
            profiler.lifecycle.drain(60)
            print("recording", flush=True)
            sys.stdin.read()
"""


def record(folder):
    """A finished run of one rank."""
    with Profiler(cyclic_schedule(wait=0, warmup=0, active=1), [JSONTraceHandler(str(folder))]) as profiler:
        for _ in profiler.batches(range(2)):
            pass


def write(path, text="{}"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found_in(folder):
    """The runs by their names."""
    return {run.name: run for run in find_runs(RunFolder(folder)).runs}


def names(files):
    return [file.name for file in files]


def test_a_finished_run_is_complete_and_has_its_ranks_traces_and_report(tmp_path):
    record(tmp_path / "digits" / "traces")
    write(tmp_path / "digits" / "report.html", REPORT)
    write(tmp_path / "digits" / "torch_traces" / "rank0.1.pt.trace.json")
    [run] = find_runs(RunFolder(tmp_path)).runs
    assert (run.name, run.state, run.ranks, run.world_size) == ("digits", RunState.FINISHED, [0], 1)
    assert names(run.reports) == ["digits/report.html"]
    assert "digits/torch_traces/rank0.1.pt.trace.json" in names(run.traces)
    assert any(name.startswith("digits/traces/ep0-ba1") for name in names(run.traces))
    assert run.changed_ns == max(file.changed_ns for file in [*run.traces, *run.reports])


def test_a_run_is_running_until_it_is_killed_and_then_has_unsaved_records(tmp_path):
    command = [sys.executable, "-c", TRAIN_UNTIL_TOLD, str(tmp_path / "killed" / "traces")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "recording\n"
            assert found_in(tmp_path)["killed"].state is RunState.RECORDING
        finally:
            process.send_signal(signal.SIGKILL)
    run = found_in(tmp_path)["killed"]
    assert (run.state, len(run.unsaved)) == (RunState.KILLED, 1)


@pytest.mark.parametrize("is_active", [True, False])
def test_a_run_of_which_one_rank_has_failed_is_read_again_until_all_have_ended(tmp_path, monkeypatch, is_active):
    record(tmp_path / "run" / "traces")
    status = SimpleNamespace(state=RunState.FAILED, ranks=["a rank"], is_active=is_active)
    monkeypatch.setattr(run_search, "read_run_status", lambda _: status)
    known = {}
    [run] = find_runs(RunFolder(tmp_path), known=known).runs
    assert (run.state, run.status) == (RunState.FAILED, status)
    assert list(known) == ([] if is_active else ["run"])


def test_after_a_restart_the_last_attempt_counts(tmp_path):
    record(tmp_path / "run" / "traces" / "attempt1")
    started = '{"type":"started","ranks":{"rank":%d,"world_size":4,"local_world_size":4},'
    started += '"attempt":{"run_id":"a","restart":0,"pid":1,"host":"elsewhere","start":"a"}}\n'
    for rank in (0, 1):
        write(tmp_path / "run" / "traces" / ".manifest" / f"rank{rank}.jsonl", started % rank)
    assert found_in(tmp_path)["run"].state is RunState.FINISHED
    (tmp_path / "run" / "traces" / "attempt1" / ".manifest" / "rank0.jsonl").unlink()
    (tmp_path / "run" / "traces" / "attempt1" / ".manifest").rmdir()
    run = found_in(tmp_path)["run"]
    assert (run.state, run.ranks, run.world_size) == (RunState.UNKNOWN, [0, 1], 4)


def test_a_folder_of_any_profilers_traces_is_listed_without_a_state(tmp_path):
    write(tmp_path / "other" / "trace.json.gz")
    write(tmp_path / "other" / "trace.pftrace")
    write(tmp_path / "composer" / "traces" / "rank0.json")
    write(tmp_path / "notes.txt")
    found = found_in(tmp_path)
    assert names(found["other"].traces) == ["other/trace.json.gz", "other/trace.pftrace"]
    assert names(found["composer"].traces) == ["composer/traces/rank0.json"]
    assert {run.state for run in found.values()} == {RunState.UNKNOWN}
    assert set(found) == {"other", "composer"}


@pytest.mark.parametrize("below", ["", "traces"])
def test_the_folder_of_a_run_and_of_its_traces_can_be_viewed_too(tmp_path, below):
    record(tmp_path / "digits" / "traces")
    [run] = find_runs(RunFolder(tmp_path / "digits" / below)).runs
    assert (run.name, run.state) == (".", RunState.FINISHED)


def test_only_kinetoscope_pages_are_reports(tmp_path):
    write(tmp_path / "ours.html", REPORT)
    write(tmp_path / "theirs.html", "<!doctype html><p>anything</p>")
    write(tmp_path / "late.html", "x" * 5000 + REPORT)
    [run] = find_runs(RunFolder(tmp_path)).runs
    assert names(run.reports) == ["ours.html"]
    assert not is_report(RunFolder(tmp_path), "theirs.html")


def test_merged_traces_come_first_and_rank_2_before_rank_10(tmp_path):
    for name in ("rank10.json", "rank2.json", "merged_trace.json"):
        write(tmp_path / name)
    [run] = find_runs(RunFolder(tmp_path)).runs
    assert names(run.traces) == ["merged_trace.json", "rank2.json", "rank10.json"]


def test_links_hidden_files_and_unusual_names_are_skipped(tmp_path):
    write(tmp_path / "outside" / "trace.json")
    inside = tmp_path / "inside"
    write(inside / "trace.json")
    write(inside / ".hidden" / "trace.json")
    write(inside / ".trace.json")
    write(inside / "with\nline.json")
    os.mkfifo(inside / "pipe.json")
    (inside / "link.json").symlink_to(tmp_path / "outside" / "trace.json")
    (inside / "folder").symlink_to(tmp_path / "outside")
    (inside / "loop").symlink_to(inside)
    assert names(found_in(inside)["."].traces) == ["trace.json"]


def test_a_damaged_manifest_hides_no_other_run(tmp_path):
    write(tmp_path / "good" / "traces" / "rank0.json")
    (tmp_path / "bad" / "traces" / ".manifest" / "rank0.jsonl").mkdir(parents=True)
    found = found_in(tmp_path)
    assert "Cannot read the manifest" in found["bad"].problem
    assert names(found["good"].traces) == ["good/traces/rank0.json"]


def test_huge_folder_is_searched_from_the_top_and_marked_incomplete(tmp_path, monkeypatch):
    monkeypatch.setattr(run_search, "MAX_ENTRIES", 20)
    for number in range(30):
        write(tmp_path / "deep" / "down" / f"{number}.json")
    write(tmp_path / "near" / "trace.json")
    found = find_runs(RunFolder(tmp_path))
    assert not found.is_complete
    assert "near" in {run.name for run in found.runs}


def test_a_trace_that_is_deleted_during_the_search_hides_no_other(tmp_path, monkeypatch):
    traces = [tmp_path / f"rank{rank}.json" for rank in range(9)]
    for trace in traces:
        write(trace)

    def is_served(walk, name):
        traces[4].unlink(missing_ok=True)
        return True

    monkeypatch.setattr(run_search._FolderWalk, "_is_served", is_served)
    (run,) = find_runs(RunFolder(tmp_path)).runs
    assert names(run.traces) == [f"rank{rank}.json" for rank in range(9) if rank != 4]


def test_an_empty_folder_has_no_runs(tmp_path):
    assert find_runs(RunFolder(tmp_path)).runs == []


def test_the_run_that_was_changed_last_comes_first(tmp_path):
    for age_s, name in [(20, "middle"), (30, "oldest"), (10, "newest")]:
        write(tmp_path / name / "traces" / "rank0.json")
        os.utime(tmp_path / name / "traces" / "rank0.json", (1_700_000_000 - age_s,) * 2)
    assert [run.name for run in find_runs(RunFolder(tmp_path)).runs] == ["newest", "middle", "oldest"]


def test_a_run_that_recorded_nothing_is_found_with_the_reason(tmp_path):
    with Profiler(lambda state: "skip", [JSONTraceHandler(str(tmp_path / "empty" / "traces"))]) as profiler:
        profiler.step()
    run = found_in(tmp_path)["empty"]
    assert (run.state, run.traces) == (RunState.FINISHED, [])
    assert run.no_data_reason == "Nothing was recorded: the schedule returned skip for the only batch."


def test_a_run_says_when_it_began_and_where(tmp_path):
    before = time.time_ns()
    record(tmp_path / "digits" / "traces")
    run = found_in(tmp_path)["digits"]
    assert before - 10**9 <= run.started_ns <= time.time_ns()
    assert run.hosts == [socket.gethostname()]


@pytest.mark.parametrize("start", ["", "a", "20261301T000000-1-a", "99999999T999999-1-a", "-", "20260101T000000"])
def test_a_start_that_a_stranger_named_has_a_time_or_none(tmp_path, start):
    line = '{"type":"started","ranks":{},"attempt":{"run_id":"a","restart":0,"pid":1,"start":"START"}}\n'
    write(tmp_path / "run" / "traces" / ".manifest" / "rank0.jsonl", line.replace("START", start))
    run = found_in(tmp_path)["run"]
    assert run.started_ns == (1_767_225_600 * 10**9 if start == "20260101T000000" else None)
