"""The host's ledger of a step: its parts share nothing, add up, and are what the simulator knows to be true."""

from itertools import pairwise

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.memory.memory_categories import memory_allocations
from kinetoscope.analysis.steps.step_time import timed_sequences
from kinetoscope.analysis.windows.window_reader import read_windows
from trainsim import Fault, Settings, simulate
from trainsim.analyses import measured

OURS = {"step_spans": "event/batch", "has_memory": False}
GC = Fault(kind="gc", cost_ns=900_000, every=3)
SETTINGS = {
    "a closure": Settings(num_closure_calls=1),
    "a closure on the CPU": Settings(num_closure_calls=1, has_device=False, num_ranks=1),
    "a closure called three times": Settings(num_closure_calls=3, step_spans="both", num_ranks=1),
    "a closure with markers": Settings(num_closure_calls=2, markers=("forward", "backward", "optimizer")),
    "a closure with a marker of forward": Settings(num_closure_calls=2, markers=("forward",), has_device=False),
    "a closure that reads values": Settings(num_closure_calls=2, faults=(Fault(kind="items", count=20),)),
    "markers": Settings(markers=("forward", "backward", "optimizer"), reads_loss="each step", faults=(GC,)),
    "a marker of the optimizer": Settings(markers=("optimizer",), has_device=False, layout="data"),
    "markers on sharded ranks": Settings(markers=("forward", "backward"), layout="sharded"),
    "our spans only": Settings(**OURS, has_torch=False, has_device=False),
    "our spans and markers only": Settings(
        **OURS, has_torch=False, has_device=False, markers=("forward", "optimizer"), faults=(GC,), evaluates_every=3
    ),
    "markers in three windows": Settings(
        **OURS, has_torch=False, has_device=False, markers=("forward", "backward"), num_cycles=3, num_steps=4
    ),
    "three windows": Settings(num_cycles=3, num_steps=3, step_spans="both"),
    "steps alone": Settings(num_cycles=4, num_steps=1),
    "evaluations": Settings(step_spans="event/batch", evaluates_every=2, num_ranks=1),
    "a CUDA graph": Settings(has_cuda_graph=True),
}
STEP_PARTS = ("forward_ns", "backward_ns", "optimizer_ns", "communication_wait_ns", "sync_ns", "gc_ns", "python_ns")
COLUMNS = (*STEP_PARTS, "data_wait_ns", "between_ns", "unknown_ns")


@pytest.fixture(scope="module", params=SETTINGS)
def any_run(request):
    return measured(SETTINGS[request.param])


def test_each_part_of_each_step_is_what_it_was(any_run):
    run, report = any_run
    found = {(row.rank, row.step): row.to_dict() for row in report.steps}
    truth = {(row["rank"], row["step"]): row for row in run.truth.steps}
    assert found.keys() == truth.keys()
    for key, row in truth.items():
        for name in COLUMNS:
            is_zero_unseen = (found[key][name], row[name]) == (None, 0)
            assert is_zero_unseen or found[key][name] == row[name], (key, name)


def test_the_parts_of_a_step_add_up_to_it(any_run):
    _, report = any_run
    for row in report.steps:
        known = sum(getattr(row, name) or 0 for name in (*STEP_PARTS, "unknown_ns", "evaluation_inside_ns"))
        data_ns = row.duration_ns - known
        assert 0 <= data_ns <= (row.data_wait_ns or 0)


def test_the_parts_of_the_run_add_up_to_its_step(any_run):
    _, report = any_run
    parts = report.run["parts"]["host"]
    assert sum(value for value in parts.values() if value is not None) == report.run["step_ns"]
    assert all(value >= 0 for name, value in parts.items() if value is not None and name != "ahead_ns")


def test_each_part_of_the_run_is_the_mean_of_its_steps(any_run):
    _, report = any_run
    parts = report.run["parts"]["host"]
    rows = [row for sequence in timed_sequences(report.steps) for row in sequence.timed_rows]
    for name in STEP_PARTS:
        known = [value for row in rows if (value := getattr(row, name)) is not None]
        assert (parts[name] is None) == (not known), name
        assert parts[name] is None or abs(parts[name] - sum(known) / len(rows)) <= 1, name


def test_a_phase_that_nothing_shows_is_unknown_and_no_zero():
    _, report = measured(SETTINGS["our spans and markers only"])
    parts = report.run["parts"]["host"]
    unknown = ("backward_ns", "communication_wait_ns", "sync_ns", "python_ns")
    assert [parts[name] for name in unknown] == [None] * 4
    assert parts["unknown_ns"] > 0.4 * report.run["step_ns"]


@pytest.mark.parametrize(
    ("settings", "unknown"),
    [
        (Settings(num_ranks=1, has_cuda_graph=True, reads_loss="never"), {"backward_ns", "gc_ns"}),
        (Settings(num_ranks=1, num_closure_calls=1, num_steps=2), {"gc_ns"}),
        (Settings(num_ranks=2, communicates_by="symmetric memory", num_steps=2), {"gc_ns"}),
        (Settings(num_ranks=1, has_copies_beside=True, max_launches=60, num_steps=2), {"gc_ns"}),
    ],
    ids=["a CUDA graph", "a closure", "symmetric memory", "copies beside a queue that blocks"],
)
def test_unrecorded_value_is_none_and_not_zero_also_in_the_run(settings, unknown):
    _, report = measured(settings)
    of_run = report.run["parts"]["host"]
    for name in unknown:
        assert of_run[name] is None
        assert {getattr(row, name) for row in report.steps} == {None}
    assert unknown == {name for name in STEP_PARTS if of_run[name] is None} - {"communication_wait_ns"}


def test_steps_and_what_lies_between_them_add_up_to_each_window():
    run, report = measured(SETTINGS["markers in three windows"])
    for rank in run.ranks:
        rows = [row for row in report.steps if row.rank == rank.rank]
        windows = [rows[place : place + 4] for place in range(0, len(rows), 4)]
        for window, sequence_ns in zip(windows, run.truth.cycles_ns[rank.rank], strict=True):
            inside = sum(row.duration_ns + (row.between_ns or 0) + (row.evaluation_ns or 0) for row in window)
            assert inside + sum(after.data_wait_ns for _, after in pairwise(window)) == sequence_ns


def test_memory_that_a_closure_takes_in_its_forward_pass_is_forwards(tmp_path):
    settings = Settings(num_closure_calls=2, num_ranks=1, num_steps=4)
    (path,) = simulate(settings).write(tmp_path)
    (window,) = read_windows(kinetoscope.load(path, cache=False))
    pieces = memory_allocations(window, TrainingLoop(window))
    (taken,) = pieces.filter(category="forward").select(pl.col("bytes").sum()).row(0)
    assert taken == 4 * 2 * settings.layers * 8_000_000
    assert not len(pieces.filter(category="optimizer"))
