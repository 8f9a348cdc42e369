"""report/words.py: what is said of a step is the same in each place."""

import pytest

from kinetoscope.report.words import bound, largest_part
from simulated_training import Fault, Settings
from simulated_training.analysed import analysed

_MS = 1_000_000
_BUSY = Settings(num_ranks=1, reads_loss="never", num_steps=12)
_SLOW_LOADER = Settings(
    num_ranks=4, num_steps=24, step_ns=12 * _MS, faults=(Fault(kind="slow_loader", cost_ns=22 * _MS),)
)


@pytest.mark.parametrize(
    ("settings", "bound_by", "part"),
    [
        (_BUSY, "bound by computing on the device", "computing"),
        (_SLOW_LOADER, "bound by data", "waiting for data"),
    ],
    ids=["a busy device", "a slow loader"],
)
def test_the_largest_part_of_a_step_is_of_what_bounds_it(settings, bound_by, part):
    run = analysed(settings)[1].run
    assert run["parts"]["host"]["ahead_ns"] > 0
    assert (bound(run), largest_part(run)[0]) == (bound_by, part)


def test_a_run_of_which_no_step_took_any_time_has_no_largest_part():
    _, report = analysed(Settings(num_ranks=1))
    assert largest_part(report.run) is not None
    assert largest_part(report.run | {"step_ns": 0}) is None
    assert largest_part(report.run | {"step_ns": None, "parts": None}) is None


def test_where_most_of_a_step_is_not_known_no_part_of_it_is_told():
    settings = Settings(num_ranks=1, has_device=False, has_torch=False, step_spans="event/batch", num_steps=12)
    run = analysed(settings)[1].run
    assert run["bound_by"] == "unknown"
    assert largest_part(run) is None
