"""Least disturbed steps under CPU contention, and the sentence on them."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.analysis.steps.quiet_steps import find_quiet_steps
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.report.descriptions import describe_quiet_steps, list_warnings
from kinetoscope.report.no_findings import describe_no_findings
from support.report_consistency import screen
from trainsim import Settings
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
    quiet = find_quiet_steps([step(number, 0 if number in (3, 5) else 60) for number in range(8)])
    assert (quiet.num_steps, quiet.num_known, quiet.delay_share, quiet.step_ns) == (2, 8, 0.0, 20 * MS)
    assert quiet.usual_delay_share == pytest.approx(360 / 520)
    assert quiet.parts == {"data_wait_ns": 10 * MS, "backward_ns": 8 * MS, "forward_ns": 2 * MS}


def test_time_between_steps_belongs_to_none():
    rows = [replace(step(number, 0 if number in (3, 6, 9) else 60), between_ns=number * MS) for number in range(30)]
    quiet = find_quiet_steps(rows)
    assert (quiet.num_steps, quiet.step_ns) == (3, 20 * MS)
    assert "between_ns" not in quiet.parts


@pytest.mark.parametrize(
    "rows",
    [
        [step(number, 60) for number in range(8)],
        [step(number, 0) for number in range(3)],
        [replace(step(number, 20 * number), starved_ns=None) for number in range(8)],
    ],
)
def test_steps_that_are_disturbed_alike_or_too_few_or_without_a_delay_show_nothing(rows):
    assert find_quiet_steps(rows) is None


def report_with(contention):
    report = analyze_cached(Settings(num_ranks=1, has_device=False))[1]
    rows = [step(number, 0 if number in (3, 5) else 60) for number in range(8)]
    return replace(report, steps=rows, findings=[], run=report.run | {"contention": contention})


def test_a_run_under_contention_shows_what_bounds_its_least_disturbed_steps():
    (sentence,) = describe_quiet_steps(report_with(SLOWED))
    assert sentence == (
        "The 2 least disturbed of 8 steps waited for a CPU 0 % of their time (all: 69 %), and took 20.0 ms on the CPU, "
        "without the time between steps: waiting for data 10.0 ms 50 %, backward 8.00 ms 40 %, forward 2.00 ms 10 %."
    )
    assert list_warnings(report_with(SLOWED))[-1] == sentence
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
    assert describe_quiet_steps(report_with(contention)) == []
    assert not any("contention" in one for one in describe_no_findings(report_with(contention)))
