"""analysis/ranks/run_queue_delay.py: one measure of a lack of CPU, and its source."""

import pytest

from kinetoscope.analysis.ranks.contention import CpuUse, find_contention
from kinetoscope.analysis.ranks.run_queue_delay import CoreLoad, DelayEffect, DelaySource, RunQueueDelay
from kinetoscope.analysis.steps.steps import StepRow

STEP_NS = 10_000_000
FULL = CoreLoad(machine_percent=99, process_percent=40)


def steps(**columns):
    return [StepRow(rank=0, step=step, begin_ns=step * STEP_NS, duration_ns=STEP_NS, **columns) for step in range(4)]


RECORDED = steps(starved_ns=4_000_000, running_ns=4_000_000, blocked_ns=2_000_000)


def test_the_clocks_of_threads_give_the_delay_per_step():
    delay = RunQueueDelay(RECORDED, STEP_NS)
    assert delay.source is DelaySource.THREAD_CLOCKS
    assert (delay.ns_per_step, delay.share, delay.is_high) == (4_000_000, 0.5, True)
    assert delay.lowers_confidence(DelayEffect.CONTAINED)
    assert not delay.lowers_confidence(DelayEffect.APART)


def test_the_load_of_cores_is_an_upper_bound_that_changes_no_time():
    delay = RunQueueDelay(steps(), STEP_NS, [CoreLoad(99, 90), FULL])
    assert delay.source is DelaySource.CORE_LOAD
    assert (delay.ns_per_step, delay.share, delay.is_high) == (None, 0, True)
    assert "this process used 40 % of one" in delay.estimate_advice
    assert delay.share_of_step(DelayEffect.CONTAINED, STEP_NS / 2) == 0.5
    assert not delay.lowers_confidence(DelayEffect.CONTAINED)  # the loop may have waited for something else


@pytest.mark.parametrize("load", [CoreLoad(99, 100), CoreLoad(60, 40)], ids=["busy process", "idle machine"])
def test_a_loop_that_had_its_core_was_not_delayed(load):
    delay = RunQueueDelay(steps(), STEP_NS, [load])
    assert (delay.source, delay.is_high, delay.estimate_advice) == (DelaySource.CORE_LOAD, False, "")


def test_recorded_cpu_use_takes_precedence_over_core_load():
    delay = RunQueueDelay(steps(starved_ns=0, running_ns=STEP_NS), STEP_NS, [FULL])
    assert (delay.source, delay.is_high, delay.estimate_advice) == (DelaySource.THREAD_CLOCKS, False, "")


def test_without_clocks_and_counters_the_delay_is_unknown():
    delay = RunQueueDelay(steps(), STEP_NS)
    assert (delay.source, delay.ns_per_step, delay.slowdown, delay.is_high) == (None, None, None, False)
    assert find_contention(delay, CpuUse()) is None


def test_the_slowdown_of_a_run_is_by_the_same_delay():
    contention = find_contention(RunQueueDelay(RECORDED, STEP_NS), CpuUse())
    assert contention is not None
    assert contention["slowdown"] == pytest.approx(10 / 6, abs=0.001)
