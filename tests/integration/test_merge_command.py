"""The command ``kinetoscope merge``, in a process of its own, on traces that torch.profiler records on two ranks."""

import json
import subprocess
from pathlib import Path

import pytest

from support.fork_server import run_command, start_with_torch
from support.trace_processor.trace_processor import load

pytest.importorskip("torch", reason="records real traces with torch")

RECORD = """
import os, sys, torch
import torch.distributed as dist
rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for cycle in range(2):
    with torch.profiler.profile(with_stack=True, record_shapes=True) as profiler:
        for step in range(4):
            with torch.profiler.record_function("step"):
                model(torch.randn(8, 32)).sum().backward()
                optimizer.step()
    profiler.export_chrome_trace(f"{out}/rank{rank}.{cycle}.pt.trace.json")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    store = tmp_path_factory.mktemp("store") / "store"
    ranks = [start_with_torch(RECORD, rank, store, folder) for rank in (0, 1)]
    assert [rank.wait().returncode for rank in ranks] == [0, 0]
    return folder


def merge(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command("merge", *arguments)


def test_two_ranks_and_two_cycles_with_stacks_load_in_perfetto_without_an_error(recorded, tmp_path):
    output = tmp_path / "merged.json.gz"
    done = merge("-o", output, recorded)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 files of 2 ranks" in done.stdout
    originals = [json.loads(path.read_text())["traceEvents"] for path in recorded.glob("rank*.json")]
    num_spans = sum(event["ph"] == "X" for events in originals for event in events)
    with load(output) as trace:
        assert trace.errors() == {}
        # Kineto's `Iteration Start` and `Record Window End` are instants: two more slices for each of the four files.
        assert trace.query("select count(*) as n from slice")[0]["n"] == num_spans + 8
        steps = trace.query(
            "select pid, count(*) as n from slice join thread_track on track_id = thread_track.id "
            "join thread using (utid) join process using (upid) where slice.name = 'step' group by pid"
        )
        assert [(row["pid"], row["n"]) for row in steps] == [(0, 8), (1, 8)]
        ends = "select max(ts + dur) - min(ts) as n from slice where name = 'step'"
        assert trace.query(ends)[0]["n"] < 60_000_000_000


def test_the_args_say_which_of_kinetos_spans_overlapped(recorded, tmp_path):
    output = tmp_path / "merged.json"
    assert merge("-o", output, recorded / "rank0.0.pt.trace.json").returncode == 0
    events = json.loads(output.read_text())["traceEvents"]
    assert any("clipped" in event.get("args", {}).get("kinetoscope", "") for event in events)


def test_a_missing_file_is_one_clear_line_and_exit_code_2(tmp_path):
    done = merge("-o", tmp_path / "out.json", tmp_path / "nowhere")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nowhere" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_one_clear_line_and_exit_code_1(tmp_path):
    (tmp_path / "rank0.json").touch()
    done = merge("-o", tmp_path / "out.json", tmp_path / "rank0.json")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "it is empty" in done.stderr


def test_wrong_usage_is_exit_code_2(tmp_path):
    assert merge("-o", tmp_path / "out.json").returncode == 2
    assert merge().returncode == 2


def test_help_teaches_with_examples():
    done = merge("--help")
    assert done.returncode == 0
    assert "kinetoscope merge runs/digits -o merged.json.gz" in done.stdout


def test_a_run_s_merged_trace_is_replaced_by_one_that_still_contains_deleted_traces(tmp_path):
    traces = tmp_path / "run" / "traces"
    (traces / ".manifest").mkdir(parents=True)
    merged = traces / "merged_trace.json"

    def save(cycle):
        event = {"ph": "X", "name": f"cycle {cycle}", "pid": 0, "tid": 9, "ts": 100 * cycle, "dur": 1}
        header = {"baseTimeNanoseconds": 10**18, "kinetoscope": {"rank": 0, "cycle": cycle}}
        (traces / f"{cycle}.json").write_text(json.dumps(header | {"traceEvents": [event]}))

    def merged_cycles():
        assert merge(tmp_path / "run", "-o", merged).returncode == 0
        trace = json.loads(merged.read_text())
        names = sorted(event["name"] for event in trace["traceEvents"] if event["ph"] == "X")
        assert names == [f"cycle {source[0]}" for source in sorted(trace["kinetoscope"]["sources"])]
        return names

    save(0)
    save(1)
    assert merged_cycles() == ["cycle 0", "cycle 1"]
    (traces / "0.json").unlink()
    save(2)
    for _ in range(2):
        assert merged_cycles() == ["cycle 0", "cycle 1", "cycle 2"]
    assert merge(tmp_path / "run", "-o", tmp_path / "out.json", "--nice").returncode == 0
    assert "cycle 0" not in (tmp_path / "out.json").read_text()
