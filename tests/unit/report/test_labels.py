"""report/labels.py: what is said of a step is the same in each place."""

from typing import Any

import pytest

from kinetoscope.analysis.steps.time_breakdown import DeviceBreakdown, StepBreakdown, classify_bound
from kinetoscope.report.labels import HOST_PART_LABELS, find_limiting_side, format_interval, label_bound
from trainsim import Fault, Settings
from trainsim.analyses import measured

_MS = 1_000_000
_BUSY = Settings(num_ranks=1, reads_loss="never", num_steps=12)
_SLOW_LOADER = Settings(
    num_ranks=4, num_steps=24, step_ns=12 * _MS, faults=(Fault(kind="slow_loader", cost_ns=22 * _MS),)
)
_WITHOUT_EVIDENCE = Settings(num_ranks=1, has_device=False, has_torch=False, step_spans="event/batch", num_steps=12)


@pytest.mark.parametrize(
    ("settings", "label", "side", "part"),
    [
        (_BUSY, "compute-bound (GPU)", "device", "compute_ns"),
        (_SLOW_LOADER, "input-bound", "host", "data_wait_ns"),
        (_WITHOUT_EVIDENCE, None, "host", "unknown_ns"),
    ],
    ids=["a busy device", "a slow loader", "nothing that says what it is"],
)
def test_bounding_side_has_the_bound_as_its_largest_part(settings, label, side, part):
    run: Any = measured(settings)[1].run
    breakdown = run["parts"][side]
    assert (label_bound(run), find_limiting_side(run)) == (label, side)
    assert max(breakdown, key=lambda name: breakdown[name] or 0) == part


def test_a_run_without_steps_has_no_side_that_bounds_it():
    run: Any = measured(Settings(num_ranks=1))[1].run
    assert find_limiting_side(run | {"step_ns": None, "parts": None}) is None


@pytest.mark.parametrize(
    ("late_wait_ms", "expected"), [(0, "communication"), (18, "communication"), (20, "ranks"), (37, "ranks")]
)
@pytest.mark.parametrize("has_device", [False, True])
def test_step_that_mostly_waits_for_ranks_is_bound_by_them_however_late(has_device, late_wait_ms, expected):
    """The demo waited for communication for 37.8 of 86 ms, half of it for late ranks, and was "CPU-bound"."""
    host = dict.fromkeys(HOST_PART_LABELS, 0.0) | {"communication_wait_ns": 37.8 * _MS, "backward_ns": 27.6 * _MS}
    device = None
    if has_device:
        host = dict.fromkeys(HOST_PART_LABELS, 0.0) | {"sync_ns": 65.4 * _MS}
        device = DeviceBreakdown(
            compute_ns=27.6 * _MS, exposed_communication_ns=37.8 * _MS, exposed_copy_ns=0.0, idle_ns=0.0
        )
    parts = StepBreakdown(host=host, device=device)
    assert classify_bound(parts, 65.4 * _MS, on_device=False, late_wait_ns=late_wait_ms * _MS) == expected


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((-0.062, 0.01), "-6.2 to +1.0 %"),
        ((-0.997, 631.0), "-99.7 to +63,100.0 %"),
        ((11.4, 631.0), "12.4x to 632x"),
    ],
)
def test_both_ends_of_an_interval_have_one_unit(interval, text):
    assert format_interval(interval) == text
