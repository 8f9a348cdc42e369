"""report/page/compared_sides.py: the breakdowns of two runs, on one scale."""

from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.report.page.compared_sides import build_compared_sides
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached


@pytest.fixture(scope="module")
def reports():
    faults = ((), (Fault(kind="slow_python", cost_ns=40_000),))
    return [analyze_cached(Settings(num_steps=12, faults=one))[1] for one in faults]


def test_parts_of_both_runs_have_the_verdicts_of_their_rows(reports):
    found = kinetoscope.compare(*reports)
    rows = {row.name: row for row in found.rows if row.kind == "phase"}
    cpu, gpu = build_compared_sides(found)
    assert [cpu.label, gpu.label] == ["CPU", "GPU"]
    parts = {part.part: part for part in [*cpu.parts, *gpu.parts]}
    for part, name in (("python_ns", "python"), ("compute_ns", "device_compute")):
        assert (parts[part].before_ns, parts[part].after_ns) == (rows[name].before, rows[name].after)
        assert (parts[part].change, parts[part].verdict) == (rows[name].change, rows[name].verdict)
    assert parts["gc_ns"].verdict is None
    assert not parts["gc_ns"].is_shown
    assert parts["compute_ns"].is_shown


def test_the_scale_is_the_longer_of_both_bars(reports):
    (cpu, _), (same, _) = (build_compared_sides(kinetoscope.compare(*pair)) for pair in (reports, reports[::-1]))
    assert cpu.max_total_ns == same.max_total_ns
    lengths = [sum(max(0, getattr(part, name) or 0) for part in cpu.parts) for name in ("before_ns", "after_ns")]
    assert cpu.max_total_ns == pytest.approx(max(lengths))


def test_a_side_that_one_run_does_not_have_is_left_out(reports):
    _, without = analyze_cached(Settings(num_steps=12, has_device=False))
    assert [side.label for side in build_compared_sides(kinetoscope.compare(reports[0], without))] == ["CPU"]
    no_parts = replace(without, run=without.run | {"parts": None})
    assert build_compared_sides(kinetoscope.compare(reports[0], no_parts)) == []
