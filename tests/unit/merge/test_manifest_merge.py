"""merge/manifest_merge.py: the files that a node's ranks list are merged, without waiting for ranks that never come."""

import json
import os
import shlex
import socket
import threading
import time
from pathlib import Path

import pytest

from kinetoscope.cli import main
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.formats.manifest import (
    AttemptAgreed,
    RankClosed,
    RankStarted,
    TraceExpired,
    TraceFinished,
    append_entry,
)
from kinetoscope.merge.manifest_merge import merge_manifest

NO_PROCESS = 2**22 + 1


def start(folder: Path, rank: int, node_rank: int = 0, pid: int | None = None, num_local: int = 2) -> None:
    host, name = socket.gethostname(), f"start of {rank}"
    ranks, attempt = Ranks(rank, rank % 2, 4, num_local, node_rank), Attempt("a", 0, pid or os.getpid(), name, host)
    append_entry(folder, rank, RankStarted(ranks, attempt))
    append_entry(folder, rank, AttemptAgreed("this one"))


def finish(folder: Path, rank: int, name: str) -> Path:
    event = {"ph": "X", "name": "x", "pid": rank, "tid": 9, "ts": 1, "dur": 1}
    header = {"baseTimeNanoseconds": 10**18, "kinetoscope": {"rank": rank}}
    (folder / name).write_text(json.dumps(header | {"traceEvents": [event]}))
    append_entry(folder, rank, TraceFinished(rank, name, 1, {}, 0))
    return folder / name


def test_only_the_ranks_of_the_node_are_merged(tmp_path):
    for rank in range(4):
        start(tmp_path, rank, node_rank=rank // 2)
        finish(tmp_path, rank, f"{rank}.json")
    report = merge_manifest(tmp_path, tmp_path / "out.json", node_rank=1)
    assert report is not None
    assert report.ranks == [2, 3]


def test_without_finished_traces_there_is_nothing_to_merge(tmp_path):
    start(tmp_path, 0)
    assert merge_manifest(tmp_path, tmp_path / "out.json") is None
    assert not (tmp_path / "out.json").exists()


def test_a_deleted_trace_is_left_out_and_the_header_says_so(tmp_path):
    start(tmp_path, 0)
    finish(tmp_path, 0, "gone.json").unlink()
    finish(tmp_path, 0, "kept.json")
    report = merge_manifest(tmp_path, tmp_path / "out.json")
    assert report is not None
    assert report.num_files == 1
    assert "gone.json" in json.loads(report.output.read_text())["kinetoscope"]["notes"][0]


def test_a_rank_that_finishes_while_we_wait_is_merged(tmp_path):
    start(tmp_path, 0)
    finish(tmp_path, 0, "0.json")
    append_entry(tmp_path, 0, RankClosed(0))

    def second_rank() -> None:
        start(tmp_path, 1)
        finish(tmp_path, 1, "1.json")
        append_entry(tmp_path, 1, RankClosed(1))

    timer = threading.Timer(0.2, second_rank)
    timer.start()
    report = merge_manifest(tmp_path, tmp_path / "out.json", wait_s=20)
    timer.join()
    assert report is not None
    assert report.ranks == [0, 1]


def test_a_dead_rank_is_not_waited_for(tmp_path):
    for rank in (0, 1):
        start(tmp_path, rank, pid=NO_PROCESS)
        finish(tmp_path, rank, f"{rank}.json")
    before = time.monotonic()
    assert merge_manifest(tmp_path, tmp_path / "out.json", wait_s=60) is not None
    assert time.monotonic() - before < 10


def test_the_wait_for_a_live_rank_ends(tmp_path):
    start(tmp_path, 0, num_local=1)
    finish(tmp_path, 0, "0.json")
    before = time.monotonic()
    assert merge_manifest(tmp_path, tmp_path / "out.json", wait_s=0.3) is not None
    assert 0.3 <= time.monotonic() - before < 10


def test_expired_traces_are_deleted_once_merged_and_stay_in_the_merged_trace(tmp_path):
    start(tmp_path, 0, num_local=1)
    output = tmp_path / "out.json"
    for cycle in range(4):
        finish(tmp_path, 0, f"{cycle}.json")
        if cycle:
            append_entry(tmp_path, 0, TraceExpired(f"{cycle - 1}.json"))
        merge_manifest(tmp_path, output)
        assert len([e for e in json.loads(output.read_text())["traceEvents"] if e["ph"] == "X"]) == cycle + 1
    assert sorted(path.name for path in tmp_path.glob("?.json")) == ["3.json"]


def test_ranks_of_an_earlier_run_in_the_same_folder_are_not_merged(tmp_path):
    start(tmp_path, 0)
    finish(tmp_path, 0, "0.json")
    old = RankStarted(Ranks(1, 1, 2, 2), Attempt("a", 0, NO_PROCESS, "last week", socket.gethostname()))
    append_entry(tmp_path, 1, old)
    finish(tmp_path, 1, "1.json")
    report = merge_manifest(tmp_path, tmp_path / "out.json", start="start of 0")
    assert report is not None
    assert report.ranks == [0]
    assert "Rank 1 is not in this trace, though its files are in the same folder" in report.notes[0]


def test_forced_merge_works_in_any_folder_and_the_trace_omits_its_path(tmp_path, monkeypatch, caplog):
    traces = tmp_path / "my run" / "traces"
    start(traces, 0)
    finish(traces, 0, "0.json")
    append_entry(traces, 1, RankStarted(Ranks(1, 1, 2, 2), Attempt("a", 0, NO_PROCESS, "last week", "host")))
    finish(traces, 1, "1.json")
    merge_manifest(traces, traces / "merged_trace.json", start="start of 0")
    assert str(tmp_path) not in (traces / "merged_trace.json").read_text()
    (message,) = caplog.messages
    command = shlex.split(message.partition("To merge all ranks anyway: ")[2])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (command[0], main(command[1:])) == ("kinetoscope", 0)
    events = json.loads(Path("all.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 1}


def test_second_merge_of_an_attempt_replaces_its_merged_file(tmp_path):
    for rank in (0, 1):
        start(tmp_path, rank)
        finish(tmp_path, rank, f"{rank}.json")
    output = tmp_path / "out.json"
    reports = [merge_manifest(tmp_path, output, replaces=False) for _ in range(2)]
    assert [report.output for report in reports if report is not None] == [output, output]


@pytest.mark.parametrize("as_list", [False, True])
def test_a_merged_trace_of_any_size_is_replaced_without_being_read(tmp_path, as_list):
    start(tmp_path, 0)
    finish(tmp_path, 0, "0.json")
    output = tmp_path / "out.json"
    merge_manifest(tmp_path, output, as_list=as_list)
    os.truncate(output, 1 << 36)  # 64 GB, but sparse
    finish(tmp_path, 0, "1.json")
    report = merge_manifest(tmp_path, output, as_list=as_list)
    assert report is not None
    assert report.num_events == 2
    assert output.stat().st_size < 10_000
