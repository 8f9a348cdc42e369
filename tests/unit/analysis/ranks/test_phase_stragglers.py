"""Runs without recorded collectives: the rank that does more in a phase is named, not the one that waits."""

import json

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.ranks.phase_stragglers import PhaseWork, find_phase_stragglers
from kinetoscope.analysis.steps.steps import StepRow

MS = 1_000_000
NUM_STEPS = 10


def spans_of(rank, name, begin_ms, until_ms):
    """Return a span of this name in each step of 10 ms."""
    categories = {"event/batch": "batch", "event/dataloader": "dataloader"}
    args = {"batch": 0} if name == "event/batch" else {}
    return [
        {
            "ph": "X",
            "name": name,
            "cat": categories.get(name, "marker"),
            "pid": rank,
            "tid": 1,
            "ts": 10_000 * step + 1_000 * begin_ms,
            "dur": 1_000 * (until_ms - begin_ms),
            "args": dict.fromkeys(args, step),
        }
        for step in range(NUM_STEPS)
    ]


def report_on(folder, *ranks, more_events=None):
    """Analyze a run without operators, of whose ranks these spans were recorded: name, begin and end in a step."""
    for rank, (spans, more) in enumerate(zip(ranks, more_events or [()] * len(ranks), strict=True)):
        events = [event for name, span in spans.items() for event in spans_of(rank, name, *span)]
        events += more
        about = {"rank": rank, "world_size": len(ranks)}
        trace = {"baseTimeNanoseconds": 1_790_000_000_000_000_000, "distributedInfo": about, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return kinetoscope.analyze(folder, cache=False)


STEP = {"event/batch": (0, 9), "forward": (0.5, 2), "backward": (2, 8), "optimizer": (8, 9)}


def test_a_rank_with_a_longer_forward_pass_is_named_with_the_phase(tmp_path):
    report = report_on(tmp_path, STEP, STEP | {"forward": (0.5, 6), "backward": (6, 8)})
    first = report.findings[0]
    assert (first.kind, first.where.ranks) == ("straggler", (1,))
    assert first.title == "Straggler: rank 1 delays every step by 4.00 ms (slow CPU code in forward)"
    assert (first.confidence, first.saving_ns_per_step) == ("medium", None)
    assert [(row.rank, row.cause, row.cost_ns_per_step) for row in report.stragglers] == [(1, "host", 4 * MS)]


def test_a_rank_that_waits_for_its_loader_is_late_for_data(tmp_path):
    early = STEP | {"event/dataloader": (0, 0.2)}
    late = STEP | {"event/dataloader": (0, 4), "forward": (4, 5.5), "backward": (5.5, 8)}
    report = report_on(tmp_path, early, early, late)
    assert [(row.rank, row.cause) for row in report.stragglers] == [(2, "data")]


@pytest.mark.parametrize("others", [{}, {"scale": (2.5, 2.6)}])
def test_a_marker_within_backward_names_the_rank_that_is_longer_in_it(others, tmp_path):
    """DDP waits within the backward pass, which takes equally long on both ranks."""
    report = report_on(tmp_path, STEP | others, STEP | {"scale": (2.5, 6.5)})
    first = report.findings[0]
    assert first.where.ranks == (1,)
    assert first.where.spans[0] == "scale"
    assert "in backward)" in first.title


def test_a_marker_that_ends_on_all_ranks_together_may_be_a_wait(tmp_path):
    """The rank that has waited longest for the others is not the late one."""
    report = report_on(tmp_path, STEP | {"reduce": (3, 7)}, STEP | {"reduce": (6.9, 7)})
    assert report.stragglers == []


def samples_of(rank, *frames):
    """Return samples of the loop's thread in each step: frames with their begin and end in ms, and its clocks."""
    of_samples = {"pid": rank, "tid": 2}
    yield of_samples | {"ph": "M", "name": "thread_name", "args": {"name": "samples of MainThread"}}
    instant = {"ph": "i", "s": "t", "cat": "stack_sample,state", "name": "sampled every 0.1 ms", "ts": 0}
    yield of_samples | instant
    blocked_us = sum(1_000 * (end - begin) for name, begin, end in frames if name.startswith("waits: "))
    values = {"running_ns": 1_000 * (10_000 - blocked_us), "starved_ns": 0, "blocked_ns": 1_000 * blocked_us}
    for step in range(NUM_STEPS):
        start_us = 10_000 * step
        for depth, (name, begin_ms, end_ms) in enumerate(frames):
            kind = "state" if name.startswith("waits: ") else "library" if name.startswith("torch/") else ""
            times = {"ts": start_us + 1_000 * begin_ms + 0.01 * depth, "dur": 1_000 * (end_ms - begin_ms) - 0.1}
            yield of_samples | {"ph": "X", "name": name, "cat": f"stack_sample,{kind}".rstrip(","), **times}
        end_us = start_us + 9_999
        yield {"ph": "C", "cat": "system", "name": "loop thread", "pid": rank, "tid": 1, "ts": end_us, "args": values}


@pytest.mark.parametrize("others", [[], [("waits: GIL, samples ran", 1, 1.02)]])
def test_wait_within_torch_for_a_late_rank_is_no_other_finding(others, tmp_path):
    """Without recorded operators such a wait counts as the computing of torch's threads, which it also may be."""
    loop = [("train.py(5): main", 0, 10), ("torch/_tensor.py(623): backward", 2, 8)]
    waiting = samples_of(0, *loop, ("waits: another thread", 2, 8), *others)
    working = samples_of(1, *loop, ("waits: sleep", 2.2, 7.8))
    report = report_on(tmp_path, STEP, STEP, more_events=[waiting, working])
    assert [(row.rank, row.cost_ns_per_step) for row in report.stragglers] == [(1, pytest.approx(5.6 * MS, rel=0.02))]
    costs_ns = {finding.kind: finding.cost_ns_per_step for finding in report.findings}
    assert costs_ns.keys() == {"straggler", "hot_line"}
    assert costs_ns["hot_line"] == pytest.approx(4.3 * MS, rel=0.05)  # of steps of 10 ms


def test_no_rank_is_late_where_the_others_do_not_wait_for_it(tmp_path):
    alone = STEP | {"backward": (2, 4), "optimizer": (4, 5), "event/batch": (0, 5)}
    report = report_on(tmp_path, alone, STEP | {"scale": (2.5, 6.5)})
    assert report.stragglers == []


def rows_of(rank, num_steps=NUM_STEPS, **columns):
    return [
        StepRow(rank=rank, step=step, begin_ns=10 * MS * step, duration_ns=9 * MS, backward_ns=6 * MS, **columns)
        for step in range(num_steps)
    ]


def late(steps, *sampled):
    samples = [
        {"kind": "blocked", "state": state, "step": step, "total_ns": 4 * MS}
        for state in sampled
        for step in range(NUM_STEPS)
    ]
    schema = {"kind": pl.String, "state": pl.String, "step": pl.Int64, "total_ns": pl.Int64}
    markers = pl.DataFrame(schema=dict.fromkeys(("name", "step", "total_ns", "until_ns"), pl.Int64))
    works = [(1, PhaseWork.of(pl.DataFrame(samples, schema=schema), markers)), (0, PhaseWork({}, {}))]
    found = find_phase_stragglers(steps, works)
    return [(row.rank, row.cause, found.phases[row.rank].phase) for row in found.rows]


@pytest.mark.parametrize(
    ("running_ns", "starved_ns", "cause"), [(5 * MS, 0, "host"), (3 * MS, 2 * MS, "host"), (MS, 4 * MS, "processor")]
)
def test_the_cpu_time_of_loops_shows_which_ranks_work(running_ns, starved_ns, cause):
    waiting = rows_of(0, running_ns=MS, starved_ns=0)
    working = rows_of(1, running_ns=running_ns, starved_ns=starved_ns)
    assert late([*waiting, *working]) == [(1, cause, "backward")]


@pytest.mark.parametrize("state", ["sleep", "fsync", "file"])
def test_samples_of_a_rank_that_waits_for_no_other_rank_name_it(state):
    assert late([*rows_of(0), *rows_of(1)], state) == [(1, "host", "backward")]


@pytest.mark.parametrize("state", ["another thread", "network", "events", "pipe"])
def test_samples_of_waits_that_may_be_for_another_rank_name_none(state):
    assert late([*rows_of(0), *rows_of(1)], state) == []


def test_a_single_rank_and_a_single_late_step_are_no_stragglers():
    assert late(rows_of(1), "sleep") == []
    assert late([*rows_of(0, num_steps=1), *rows_of(1, num_steps=1)], "sleep") == []
