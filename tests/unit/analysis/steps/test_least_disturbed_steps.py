"""Least disturbed steps under CPU contention, and the sentence on them."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.analysis.steps.least_disturbed_steps import find_least_disturbed_steps
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.report.descriptions import list_warnings
from kinetoscope.report.no_findings import describe_no_findings
from support.report_consistency import screen
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

MS = 1_000_000
SLOWED = {"own_percent": 40.0, "others_percent": 55.0, "steal_percent": 0.0, "slowdown": 3.0}


def step(number, delay_ms, backward_ms=8):
    """Return a step that waits 10 ms for data, computes for 2 and ``backward_ms``, and has no CPU for ``delay_ms``."""
    return StepRow(
        rank=0,
        step=number,
        begin_ns=number * 100 * MS,
        duration_ns=(2 + backward_ms + delay_ms) * MS,
        data_wait_ns=10 * MS,
        forward_ns=2 * MS,
        backward_ns=(backward_ms + delay_ms) * MS,
        running_ns=(2 + backward_ms) * MS,
        blocked_ns=10 * MS,
        starved_ns=delay_ms * MS,
    )


def test_the_tenth_with_the_smallest_share_of_delay_is_chosen_and_two_at_least():
    rows = [step(number, 0 if number in (3, 5) else 60) for number in range(8)]
    assert find_least_disturbed_steps(rows) == {
        "num_steps": 2,
        "num_known": 8,
        "delay_share": 0.0,
        "usual_delay_share": pytest.approx(360 / 520),
        "step_ns": 20 * MS,
        "parts": {"data_wait_ns": 10 * MS, "backward_ns": 8 * MS, "forward_ns": 2 * MS},
    }


def test_time_between_steps_belongs_to_none():
    rows = [replace(step(number, 0 if number in (3, 6, 9) else 60), between_ns=number * MS) for number in range(30)]
    found = find_least_disturbed_steps(rows)
    assert (found["num_steps"], found["step_ns"]) == (3, 20 * MS)
    assert "between_ns" not in found["parts"]


@pytest.mark.parametrize(
    "rows",
    [
        [step(number, 60) for number in range(8)],
        [step(number, 0) for number in range(3)],
        [replace(step(number, 20 * number), starved_ns=None) for number in range(8)],
    ],
)
def test_steps_that_are_disturbed_alike_or_too_few_or_without_a_delay_show_nothing(rows):
    assert find_least_disturbed_steps(rows) is None


def report_with(contention, steps=None):
    report = analyze_cached(Settings(num_ranks=1, has_device=False))[1]
    about = {"contention": contention, "least_disturbed_steps": steps}
    return replace(report, findings=[], run=report.run | about)


def test_a_run_under_contention_has_its_least_disturbed_steps_in_json():
    idle = Settings(num_ranks=1, num_steps=12, has_device=False, has_states=True)
    busy = replace(idle, faults=(Fault(kind="preempted", cost_ns=30 * MS, every=2),))
    found = [analyze_cached(one)[1].to_dict()["run"]["least_disturbed_steps"] for one in (idle, busy)]
    assert found[0] is None
    assert (found[1]["num_steps"], found[1]["num_known"], found[1]["delay_share"]) == (2, 12, 0.0)


def test_a_run_under_contention_shows_what_bounds_its_least_disturbed_steps():
    rows = [step(number, 0 if number in (3, 5) else 60) for number in range(8)]
    assert list_warnings(report_with(SLOWED, find_least_disturbed_steps(rows))) == [
        "The 2 least disturbed of 8 steps waited for a CPU 0 % of their time (all: 69 %), and took 20.0 ms on the CPU, "
        "without the time between steps: waiting for data 10.0 ms 50 %, backward 8.00 ms 40 %, forward 2.00 ms 10 %."
    ]
    assert any(one.startswith("CPU contention may hide faults") for one in describe_no_findings(report_with(SLOWED)))


def test_low_confidence_under_contention_has_its_reason():
    report = report_with(SLOWED)
    low = build_finding("input_bound", "A fault", "Do that.", confidence="low", evidence={}, cost_ns=9 * MS)
    for contention, has_reason in ((SLOWED, True), (None, False)):
        lines = screen(replace(report, findings=[low], run=report.run | {"contention": contention}))
        (line,) = (line for line in lines if line.startswith("No finding is above low confidence"))
        assert ("since CPU contention disturbs the steps" in line) == has_reason


@pytest.mark.parametrize("contention", [None, SLOWED | {"slowdown": 1.05}])
def test_other_runs_show_nothing_of_it(contention):
    assert list_warnings(report_with(contention)) == []
    assert not any("contention" in one for one in describe_no_findings(report_with(contention)))
