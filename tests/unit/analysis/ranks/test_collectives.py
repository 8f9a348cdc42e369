"""analysis/ranks/collectives.py: which calls of several ranks are one call, and how far apart their clocks are."""

import json
from collections import Counter

import pytest

import kinetoscope
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.errors import MergeError
from trainsim import Fault, Settings, simulate

CLOCKS_APART_NS = 5_000_000


def analyse(tmp_path, **settings):
    run = simulate(Settings(num_steps=4, **settings))
    run.write(tmp_path)
    return run, kinetoscope.analyze(tmp_path, cache=False)


def assert_joined(run, report):
    """Each call of the run that its traces name is there, with the ranks that recorded it."""
    known = [call for call in run.truth.collectives if not call["num_unnamed"]]
    truth = Counter((call["step"], call["bytes"], tuple(sorted(call["starts_ns"]))) for call in known)
    found = Counter((row.step, row.bytes, row.ranks) for row in report.collectives)
    assert truth - found == Counter()


def assert_timed(run, report):
    truth = Counter((call["step"], call["skew_ns"], call["transfer_ns"]) for call in run.truth.collectives)
    assert Counter((row.step, row.skew_ns, row.transfer_ns) for row in report.collectives) == truth


def test_clocks_without_calls_shared_with_rank_0_are_aligned_through_others(tmp_path):
    run, report = analyse(tmp_path, num_ranks=4, layout="tensor", offset_ns=CLOCKS_APART_NS)
    assert_timed(run, report)


def test_calls_come_in_the_order_in_which_their_first_rank_began_them(tmp_path):
    _, report = analyse(tmp_path, num_ranks=4, layout="tensor")
    begins = [row.starts_ns[0] for row in report.collectives]
    assert begins == sorted(begins)
    assert [row.ranks[0] for row in report.collectives] != sorted(row.ranks[0] for row in report.collectives)


def test_last_rank_of_a_call_does_not_wait(tmp_path):
    _, report = analyse(tmp_path, num_ranks=4, layout="tensor")
    calls = [row for row in report.collectives if row.late_rank is not None]
    assert {row.waits_ns[row.ranks.index(row.late_rank)] for row in calls} == {0}


@pytest.mark.parametrize("num_calls", [2, 3])
def test_clocks_that_are_far_apart_are_one_run_only_if_three_calls_or_more_show_it(num_calls, tmp_path):
    run = simulate(Settings(num_steps=4, offset_ns=3 * 3600 * 10**9))
    for path in run.write(tmp_path):
        trace = json.loads(path.read_text())
        events = trace["traceEvents"]
        begins = sorted(one["ts"] for one in events if one["name"].startswith("nccl") and one["cat"] == "kernel")
        last_us = begins[num_calls - 1]
        trace["traceEvents"] = [one for one in events if not (is_of_call(one) and one["ts"] > last_us)]
        path.write_text(json.dumps(trace))
    if num_calls < 3:
        with pytest.raises(MergeError, match="no collectives show that both are of one run"):
            kinetoscope.analyze(tmp_path, cache=False)
    else:
        assert [row.num_ranks for row in kinetoscope.analyze(tmp_path, cache=False).collectives] == [2] * num_calls


def is_of_call(event):
    return event["name"].startswith(("nccl", "record_param_comms"))


def test_calls_in_flight_when_each_cycle_began_are_joined_without_numbers(tmp_path):
    run, report = analyse(
        tmp_path, num_ranks=4, layout="sharded", num_cycles=2, has_sequence=False, offset_ns=CLOCKS_APART_NS
    )
    assert sum(row.step is None for row in report.collectives) > 0
    assert_joined(run, report)


def test_calls_without_numbers_are_joined_if_a_rank_starts_within_a_step(tmp_path):
    for layout in ("data", "pipeline"):
        run, report = analyse(tmp_path / layout, layout=layout, late_ranks=(1,), num_missed_calls=2, has_sequence=False)
        assert_joined(run, report)


def write_with_late_ends(run, folder, late_us):
    """On a busy machine the thread of gloo notes the end of a call after the loop has gone on."""
    path = run.write(folder)[0]
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        if event["name"].startswith("gloo:"):
            event["dur"] += late_us
    path.write_text(json.dumps(trace))
    return kinetoscope.analyze(folder, cache=False)


LATE_IN_EVERY_THIRD = Fault(kind="late_host", ranks=(1,), cost_ns=20_000_000, every=3)


def test_work_of_a_rank_before_the_seen_end_of_a_call_does_not_hide_its_wait(tmp_path):
    run = simulate(Settings(num_steps=12, num_layers=2, has_device=False, faults=(LATE_IN_EVERY_THIRD,)))
    (found,) = write_with_late_ends(run, tmp_path, 100).stragglers
    assert found.cost_ns_per_step == pytest.approx(run.truth.waiting_ns_per_step(1, exposed=True), rel=0.02)


def test_a_wait_for_a_call_that_is_seen_to_end_after_it_is_no_work_of_python(tmp_path):
    run = simulate(Settings(num_steps=12, num_layers=2, has_device=False, faults=(LATE_IN_EVERY_THIRD,)))
    in_time, late = (write_with_late_ends(run, tmp_path / str(late_us), late_us) for late_us in (0, 400))
    for name in ("communication_wait_ns", "python_ns"):
        before, after = (sum(getattr(row, name) for row in report.steps if row.rank == 0) for report in (in_time, late))
        assert after == pytest.approx(before, abs=0.02 * 12 * 20_000_000 / 3)
    savings = [report.saving_ns_per_step(Change(on_time=frozenset([1]))) for report in (in_time, late)]
    assert savings[1] == pytest.approx(savings[0], rel=0.02)


def test_rank_that_stopped_earlier_is_no_late_clock_without_steps_and_numbers(tmp_path):
    """The last calls of ranks are then not the same ones."""
    run = simulate(Settings(num_steps=8, has_sequence=False, offset_ns=CLOCKS_APART_NS))
    for rank, path in enumerate(run.write(tmp_path)):
        trace = json.loads(path.read_text())
        events = [event for event in trace["traceEvents"] if "ProfilerStep" not in event["name"]]
        kernels = sorted(event["ts"] for event in events if event["name"].startswith("nccl"))
        trace["traceEvents"] = [event for event in events if not (rank and event.get("ts", 0) >= kernels[-2])]
        path.write_text(json.dumps(trace))
    report = kinetoscope.analyze(tmp_path, cache=False)
    joined = [(row.skew_ns, row.transfer_ns) for row in report.collectives if row.num_ranks == 2]
    truth = {(call["skew_ns"], call["transfer_ns"]) for call in run.truth.collectives}
    assert set(joined) <= truth
    assert len(joined) >= len(run.truth.collectives) - 4
