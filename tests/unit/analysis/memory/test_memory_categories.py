"""Memory categories: by the part of the step that allocated it, for as long as it lived."""

import json

import pytest

import kinetoscope
from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.memory.memory_categories import memory_allocations
from kinetoscope.analysis.windows.window_reader import read_windows

LOOP, AUTOGRAD = 1, 2
SPANS = [
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", 0, 10, LOOP),
    ("ProfilerStep#1", "user_annotation", 10, 90, LOOP),
    ("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", 30, 20, AUTOGRAD),
    ("Optimizer.step#Adam.step", "user_annotation", 60, 20, LOOP),
    ("event/eval", "eval", 110, 20, LOOP),
]


def span(name, category, begin_us, length_us, thread):
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": thread, "ts": begin_us, "dur": length_us}


def memory(time_us, size, address, total, *, thread=LOOP, device=None):
    place = {"Device Type": 0, "Device Id": -1} if device is None else {"Device Type": 1, "Device Id": device}
    args = place | {"Total Allocated": total, "Bytes": size, "Addr": address}
    event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 0}
    return event | {"tid": thread, "ts": time_us, "args": {name: v for name, v in args.items() if v is not None}}


def write(folder, *events, spans=SPANS):
    """Return a trace of one step with these events."""
    path = folder / "rank0.json"
    base_ns = 1_790_000_000_000_000_000
    path.write_text(json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": [*events, *(span(*s) for s in spans)]}))
    return path


def classify_allocations(folder, *events, **options):
    (row,) = kinetoscope.analyze(write(folder, *events, **options), cache=False).memory
    return row.to_dict()["by_category"]


def test_each_allocation_is_of_the_part_of_the_step_that_made_it(tmp_path):
    found = classify_allocations(
        tmp_path,
        memory(5, 1, 100, 1),
        memory(20, 10, 200, 11),
        memory(40, 100, 300, 111, thread=AUTOGRAD),
        memory(70, 1_000, 400, 1_111),
        memory(120, 10_000, 500, 11_111),
        memory(140, 100_000, 600, 111_111),
    )
    assert found == {
        "data": 1,
        "forward": 10,
        "backward": 100,
        "optimizer": 1_000,
        "evaluation": 10_000,
        "other": 100_000,
    }


def test_memory_freed_before_the_peak_does_not_count(tmp_path):
    assert classify_allocations(
        tmp_path, memory(20, 50, 100, 50), memory(21, -50, 100, 0), memory(22, 60, 100, 60), memory(23, -60, 100, 0)
    ) == {"forward": 60}


def test_events_of_one_microsecond_count_in_the_order_of_the_file(tmp_path):
    events = [memory(20, 50, 100, 50), memory(20, -50, 100, 0), memory(20, 60, 200, 60), memory(20, 1, 100, 61)]
    assert classify_allocations(tmp_path, *events, memory(20, -60, 200, 1)) == {"forward": 61}


def test_memory_from_before_the_recording_is_its_own_category(tmp_path):
    events = [memory(20, -400, 900, 600, device=0), memory(25, 500, 100, 1_100, device=0)]
    assert classify_allocations(tmp_path, *events) == {"before_recording": 600, "forward": 500}


def test_only_cpu_memory_freed_in_the_window_is_known_to_be_older(tmp_path):
    events = [memory(20, 500, 100, 1_500), memory(25, -400, 900, 1_100)]
    assert classify_allocations(tmp_path, *events) == {"before_recording": 400, "forward": 500}


def test_in_a_step_with_spans_of_the_forward_pass_only_these_are_forward(tmp_path):
    spans = [("event/batch", "batch", 10, 90, LOOP), ("event/forward", "forward", 15, 10, LOOP)]
    events = [memory(20, 10, 100, 10), memory(28, 5, 200, 15)]
    assert classify_allocations(tmp_path, *events, spans=spans) == {"forward": 10, "other": 5}


def test_an_optimizer_that_steps_within_the_backward_pass_allocates_its_own_memory(tmp_path):
    spans = [*SPANS, ("Optimizer.step#SGD.step", "user_annotation", 35, 5, AUTOGRAD)]
    assert classify_allocations(tmp_path, memory(37, 8, 100, 8, thread=AUTOGRAD), spans=spans) == {"optimizer": 8}


def test_other_threads_do_not_work_for_the_forward_pass(tmp_path):
    assert classify_allocations(tmp_path, memory(20, 8, 100, 8, thread=3)) == {"other": 8}


@pytest.mark.parametrize(
    "events",
    [
        [memory(20, 50, None, 50), memory(21, 60, None, 110)],
        [memory(20, 50, 100, 50), memory(21, 60, None, 110)],
        [memory(20, 50, 100, 50), memory(21, 60, 200, 60)],
    ],
    ids=["no addresses", "an address is missing", "something was freed unseen"],
)
def test_memory_categories_are_omitted_where_frees_are_unknown(events, tmp_path):
    assert classify_allocations(tmp_path, *events) == {}


def test_each_device_has_memory_of_its_own_though_addresses_are_the_same(tmp_path):
    path = write(
        tmp_path,
        memory(20, 5, 100, 5, device=0),
        memory(21, 7, 100, 7, device=1),
        memory(22, 9, 100, 9),
        memory(23, -7, 100, 0, device=1),
    )
    rows = kinetoscope.analyze(path, cache=False).memory
    assert {row.device: dict(row.by_category) for row in rows} == {device: {"forward": n} for device, n in PEAKS}


PEAKS = [(0, 5), (1, 7), (None, 9)]


def test_pieces_that_are_alive_add_up_to_what_is_allocated_at_every_event(tmp_path):
    path = write(
        tmp_path,
        memory(12, 20, 100, 1_020, device=0),
        memory(14, -300, 900, 720, device=0),
        memory(16, -20, 100, 700, device=0),
        memory(40, 30, 100, 730, thread=AUTOGRAD, device=0),
        memory(70, 5, 300, 735, device=0),
    )
    (window,) = read_windows(kinetoscope.load(path))
    pieces = memory_allocations(window, TrainingLoop(window))
    assert pieces.sort("category", "bytes").select("category", "bytes").rows() == [
        ("backward", 30),
        ("before_recording", 300),
        ("before_recording", 700),
        ("forward", 20),
        ("optimizer", 5),
    ]
    for time_ns, total in window.instants.allocations.select("ts", "total").rows():
        alive = [
            row["bytes"]
            for row in pieces.rows(named=True)
            if (row["begin"] or 0) <= time_ns and (row["end"] is None or row["end"] > time_ns)
        ]
        assert sum(alive) == total
