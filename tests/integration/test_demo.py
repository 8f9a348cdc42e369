"""The main use: the example profiles a real two-rank run, and the traces hold what they promise."""

from collections import defaultdict
from pathlib import Path

import pytest

import kinetoscope
from support.fork_server import TORCH_MODULES, run_forked
from support.report_consistency import assert_consistent_report
from support.trace_files import trace_json
from support.trace_processor.trace_processor import load

pytest.importorskip("torch")
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"
IMPORTED = (*TORCH_MODULES, "torch.distributed.launcher.api", "sklearn.datasets", "rich.progress", "rich.table")
ALONE = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# What torchrun does, but ranks are forked and so need not import torch again. `make demo` uses torchrun itself.
UNDER_TORCHRUN = """
import runpy, sys
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def rank(*arguments):
    sys.argv = list(arguments)
    runpy.run_path(sys.argv[0], run_name="__main__")

meeting = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "demo"}
elastic_launch(LaunchConfig(1, 1, nproc_per_node=2, start_method="fork", **meeting), rank)(*sys.argv[1:])
"""
INSIDE = {
    "model": "forward",
    "cross_entropy": "loss",
    "autograd": "backward",
    "adam": "optimizer",
    "wait for the other rank": "barrier",
}


def train(program: str, folder: Path, *options: str) -> Path:
    pytest.importorskip("sklearn")
    done = run_forked(IMPORTED, program, EXAMPLE, "--out", folder, *options, timeout_s=150)
    assert done.returncode == 0, done.stderr
    assert "Final loss" in done.stdout
    assert "backward" in done.stdout
    assert ".py(" not in done.stdout  # samples are in the report, not in the table of spans
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(UNDER_TORCHRUN, tmp_path_factory.mktemp("run") / "digits")


@pytest.fixture(scope="module")
def run_alone_with_stack(tmp_path_factory):
    return train(ALONE, tmp_path_factory.mktemp("run") / "digits", "--with-stack", "--epochs", "1")


@pytest.fixture(scope="module")
def merged(run):
    return trace_json(run / "traces" / "merged_trace.json.gz")["traceEvents"]


def spans(events, name, rank):
    found = [e for e in events if e["ph"] == "X" and e["name"] == name and e["pid"] == rank]
    return sorted((event["ts"], event["ts"] + event["dur"]) for event in found)


def test_the_run_leaves_the_files_it_should(run):
    expected = {
        f"traces/ep{epoch}-ba{batch}-rank{rank}.json.gz" for epoch, batch in ((0, 12), (1, 26)) for rank in (0, 1)
    }
    expected |= {f"traces/.manifest/rank{rank}.jsonl" for rank in (0, 1)}
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    found -= {"report.html"}  # on a busy machine it may not be ready in time
    pulses = {name for name in found if name.startswith("pulse/")}
    assert len([name for name in pulses if name.endswith(".pulse")]) == 2
    assert found - pulses == expected | {"traces/merged_trace.json.gz"}


def test_its_report_has_the_same_numbers_everywhere(run):
    assert_consistent_report(kinetoscope.analyze(run, cache=False))


def test_every_trace_opens_in_perfetto_without_an_error(run):
    for path in sorted(run.rglob("*.json.gz")):
        with load(path) as trace:
            assert trace.errors() == {}, path
            assert trace.query("select count(*) as n from slice")[0]["n"] > 1000


def test_with_python_stacks_no_slice_is_lost(run_alone_with_stack):
    for path in sorted(run_alone_with_stack.rglob("*.json.gz")):
        written = sum(event["ph"] == "X" for event in trace_json(path)["traceEvents"])
        with load(path) as trace:
            assert trace.errors() == {}, path
            assert trace.query("select count(*) as n from slice where dur >= 0")[0]["n"] >= written


def test_the_args_say_which_spans_were_clipped_or_moved(run_alone_with_stack):
    (path,) = (run_alone_with_stack / "traces").glob("ep0-ba12-rank0.json.gz")
    events = trace_json(path)["traceEvents"]
    notes = [event["args"]["kinetoscope"] for event in events if "kinetoscope" in event.get("args", {})]
    assert notes
    assert all("clipped" in note or "moved" in note for note in notes)


@pytest.mark.parametrize("rank", [0, 1])
def test_markers_torch_operators_and_system_counters_of_a_rank_are_one_process(merged, rank):
    of_rank = [event for event in merged if event["pid"] == rank]
    assert spans(of_rank, "forward", rank)
    assert spans(of_rank, "aten::conv2d", rank)
    counters = {event["name"] for event in of_rank if event["ph"] == "C"}
    assert {"cpu", "process", "memory/virtual", "training loss"} <= counters
    (name,) = [event["args"]["name"] for event in of_rank if event["name"] == "process_name"]
    assert name.endswith("rank"), "viewers put the pid, which is the rank, behind it"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("inner", "outer"), INSIDE.items())
def test_a_record_function_span_is_inside_the_marker_around_it(merged, rank, inner, outer):
    inners, outers = spans(merged, inner, rank), spans(merged, outer, rank)
    assert len(inners) == 20  # ten recorded batches in each of two epochs
    for begin, end in inners:
        assert any(b - 5 <= begin and end <= e + 5 for b, e in outers), (begin, end)


def test_no_rank_leaves_a_barrier_before_the_other_has_come(merged):
    """The distance between their ends depends on the machine's load; `make bench` measures it (two_ranks)."""
    first, second = (spans(merged, "barrier", rank) for rank in (0, 1))
    assert len(first) == 22
    for (begin, end), (other_begin, other_end) in zip(first, second, strict=True):
        assert end >= other_begin - 50
        assert other_end >= begin - 50


def test_only_the_batches_of_the_schedule_are_in_the_trace(merged):
    batches = defaultdict(set)
    for event in merged:
        if event["name"] == "event/batch":
            batches[event["pid"]].add(event["args"]["batch"])
    expected = {*range(1, 12), *range(15, 26)}  # one warm-up and ten recorded batches an epoch
    assert batches == {0: expected, 1: expected}


def test_one_rank_alone_needs_no_launcher(run_alone_with_stack):
    with load(run_alone_with_stack / "traces" / "merged_trace.json.gz") as trace:
        assert trace.errors() == {}
        assert {row["name"] for row in trace.query("select name from process where name like '%rank' and pid = 0")} == {
            "rank"
        }
