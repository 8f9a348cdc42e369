"""The critical path of a step, over all ranks."""

from collections import Counter
from itertools import pairwise

from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

STEP = 6


def path_of(**settings):
    """Return the report on a run, and the path of a step in its middle."""
    _, report = analyze_cached(Settings(num_steps=8, **settings))
    return report, report.critical_path(STEP)


def shares(path, *fields):
    """Which part of the path is of what."""
    times = Counter()
    for span in path:
        times[tuple(getattr(span, field) for field in fields)] += span.end_ns - span.begin_ns
    return {what: time_ns / times.total() for what, time_ns in times.items()}


def test_the_path_has_all_of_the_time_from_one_step_to_the_next():
    report, path = path_of(num_ranks=2)
    begins = {step: min(row.begin_ns for row in report.steps if row.step == step) for step in (STEP, STEP + 1)}
    assert (path[0].begin_ns, path[-1].end_ns) == (begins[STEP], begins[STEP + 1])
    assert all(span.end_ns == later.begin_ns for span, later in pairwise(path))


def test_a_busy_device_is_the_path_of_a_healthy_step():
    _, path = path_of(num_ranks=1)
    found = shares(path, "kind")
    assert found["device",] > 0.9


def test_the_path_of_a_rank_that_the_others_wait_for_is_on_it():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=6_000_000)
    _, path = path_of(num_ranks=3, faults=(late,))
    found = shares(path, "rank", "kind", "name")
    assert found[1, "host", "python"] > 0.5


def test_the_path_of_a_step_that_waits_for_data_is_the_fetch():
    slow = Fault(kind="slow_loader", cost_ns=9_000_000)
    _, path = path_of(num_ranks=1, num_workers=0, faults=(slow,))
    assert shares(path, "name")["data",] > 0.6


def test_there_is_no_path_of_a_step_that_was_not_recorded():
    report, _ = path_of(num_ranks=1)
    assert report.critical_path(99) == []
