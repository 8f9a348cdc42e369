"""The command ``kinetoscope info``, as a user runs it."""

import json
import subprocess

import pytest

from support.fork_server import run_command_on_bytes

EVENTS = [
    {"ph": "X", "name": "ProfilerStep#1", "cat": "user_annotation", "pid": 7, "tid": 8, "ts": 0, "dur": 2e6},
    {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 7, "tid": 8, "ts": 10, "dur": 5},
    {"ph": "i", "name": "here", "pid": 7, "tid": 8, "ts": 10},
]


def info(*arguments, stdin=""):
    done = run_command_on_bytes("info", *arguments, stdin=stdin.encode())
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def traces(tmp_path):
    for rank in range(2):
        header = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": 1_790_857_026 * 10**9}
        (tmp_path / f"{rank}.json").write_text(json.dumps(header | {"traceEvents": EVENTS}))
    return tmp_path


def test_info_says_on_one_screen_what_is_in_a_run(traces):
    done = info(traces)
    assert done.returncode == 0, done.stderr
    assert "2 traces of 2 ranks, 4 spans" in done.stdout
    assert "1 of 2" in done.stdout
    assert "2.000 s from 2026-10-01 12:17:06 UTC, 1 batch" in done.stdout
    assert "cpu_op 1, user_annotation 1" in done.stdout


def test_info_as_json_is_for_programs_and_reads_a_pipe():
    done = info("-", "--json", stdin=json.dumps(EVENTS))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["num_spans"], summary["num_instants"], summary["num_batches"]) == (2, 1, 1)
    assert summary["has_clock"] is False


def test_info_of_a_damaged_file_says_what_was_repaired_and_exits_with_1(tmp_path):
    (tmp_path / "cut.json").write_text(json.dumps(EVENTS)[:-10])
    done = info(tmp_path / "cut.json", "--no-cache")
    assert done.returncode == 1
    assert "repaired    The file ends too early" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["cut.json"]


def test_info_of_nothing_says_what_to_pass(tmp_path):
    done = info(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: No trace in ")


def test_a_batch_that_torch_calls_a_step_counts_once():
    names = ["event/batch", "ProfilerStep#6", "event/batch", "ProfilerStep#7"]
    spans = [EVENTS[0] | {"name": name, "ts": ts, "tid": ts % 2} for ts, name in enumerate(names)]
    done = info("-", "--json", stdin=json.dumps(spans))
    assert json.loads(done.stdout)["num_batches"] == 2
