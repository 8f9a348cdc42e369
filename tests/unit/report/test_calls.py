"""report/calls.py: calls that have something in common, added up."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.report.calls import (
    build_call_tables,
    count_steps,
    describe_untimed_steps,
    find_top_calls,
    strip_types,
    sum_operators_by_name,
)
from support.report_consistency import screen
from trainsim import Settings
from trainsim.analyses import analyze_cached


def operator(name, num_calls, total_ns, shapes=None, **others):
    times = {"self_ns": total_ns, "mean_ns": total_ns / num_calls, "p50_ns": 7, "p95_ns": 9, "max_ns": total_ns // 2}
    times |= {"name_p50_ns": 8, "name_p95_ns": 11}
    return OperatorRow(name=name, shapes=shapes, num_calls=num_calls, total_ns=total_ns, **times | others)


def kernel(name, kind, total_ns, num_bytes=None):
    times = dict.fromkeys(("total_ns", "self_ns", "mean_ns", "p50_ns", "p95_ns", "max_ns"), total_ns)
    return KernelRow(name=name, kind=kind, num_calls=1, bytes=num_bytes, **times)


def by(tables, of, how):
    return next(table.rows for table in tables if (table.of, table.by) == (of, how))


def test_mean_and_quantiles_of_a_name_cover_all_its_calls_of_any_shape():
    b, a = sum_operators_by_name([operator("a", 1, 10), operator("b", 2, 70), operator("a", 3, 50)])
    assert (a.name, a.num_rows, a.num_calls, a.total_ns, a.mean_ns, a.max_ns) == ("a", 2, 4, 60, 15, 25)
    assert (a.p50_ns, a.p95_ns, a.device_ns) == (8, 11, None)
    assert (b.mean_ns, b.p50_ns, b.p95_ns) == (35, 7, 9)


def test_rates_of_a_group_count_by_their_time_and_a_share_of_the_peak_needs_all():
    rows = [
        operator("mm", 1, 4_000_000, "a", flops=6e9, flops_per_s=3e12, mfu=0.3),
        operator("mm", 1, 2_000_000, "b", flops=6e9, flops_per_s=1e12, mfu=0.1),
        operator("mm", 1, 2_000_000, "c"),
    ]
    (mm,) = sum_operators_by_name(rows)
    assert (mm.flops, mm.flops_per_s, mm.mfu) == (12e9, pytest.approx(1.5e12), pytest.approx(0.15))
    (unsure,) = sum_operators_by_name([*rows, operator("mm", 1, 1, "d", flops=1e9, flops_per_s=1e12)])
    assert (unsure.flops, unsure.mfu) == (13e9, None)
    assert [row.shapes for row in by(build_call_tables(rows, []), "operators", "shapes")] == ["a", "b", "c"]


def test_kernels_are_added_up_by_name_by_name_without_types_and_by_kind():
    rows = [
        kernel("void at::fill<float>(int)", "compute", 30),
        kernel("void at::fill<double>(int)", "compute", 12),
        kernel("Memcpy HtoD", "copy", 8, 4000),
    ]
    tables = build_call_tables([], rows)
    assert [table.by for table in tables] == ["name", "untyped", "kind"]
    untyped = {row.name: row.total_ns for row in by(tables, "kernels", "untyped")}
    assert untyped == {"at::fill": 42, "Memcpy HtoD": 8}
    fill = by(tables, "kernels", "untyped")[0]
    assert (fill.p50_ns, fill.p95_ns) == (None, None), "they are unknown for several names together"
    compute, copy = by(tables, "kernels", "kind")
    assert (compute.kind, compute.num_rows, compute.bytes, compute.bytes_per_s) == ("compute", 2, None, None)
    assert (copy.bytes, copy.bytes_per_s) == (4000, pytest.approx(5e11))


def test_no_calls_have_no_table():
    assert build_call_tables([], []) == []


@pytest.mark.parametrize(
    ("name", "untyped"),
    [
        ("void at::native::fill<float, (int)4>(at::Tensor<float>, long)", "at::native::fill"),
        ("void at::native::(anonymous namespace)::add<double>(int)", "at::native::{anonymous}::add"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("<odd", "<odd"),
    ],
)
def test_a_kernel_without_its_types_has_the_name_that_it_has_with_other_types(name, untyped):
    assert strip_types(name) == untyped


@pytest.mark.parametrize("last_ms", [10, 200])
def test_a_last_step_without_an_end_is_named_where_it_is_unlike_the_others(last_ms):
    report = analyze_cached(Settings(num_ranks=1, has_device=False))[1]
    rows = [
        StepRow(
            rank=0,
            step=number,
            begin_ns=number * 11_000_000,
            duration_ns=(last_ms if number == 9 else 10) * 1_000_000,
            between_ns=None if number == 9 else 1_000_000,
        )
        for number in range(10)
    ]
    report = replace(report, steps=rows, run=report.run | {"step_ns": 11e6})
    sentence = "The step time leaves out the last step of a window, which has no end."
    assert (sentence in describe_untimed_steps(report)) == (last_ms == 200)
    assert any(sentence in line for line in screen(report)) == (last_ms == 200)
    assert find_top_calls(report).basis == describe_untimed_steps(report)


def test_top_calls_without_steps_are_of_the_whole_recording():
    report = analyze_cached(Settings(num_ranks=1, num_steps=4))[1]
    known, num_steps = find_top_calls(report), count_steps(report.ranks)
    found = find_top_calls(replace(report, operators=[], run=report.run | {"step_ns": None, "parts": None}))
    assert (found.of, found.names, found.shares) == ("kernels", known.names, [])
    assert found.times_ns == pytest.approx([num_steps * time_ns for time_ns in known.times_ns])
    assert found.num_calls == pytest.approx([num_steps * number for number in known.num_calls])
