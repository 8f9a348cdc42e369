"""analysis/gpu/flops.py: whose operations count, how fast they were done, and at what share of a device's peak."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinetoscope
from kinetoscope.analysis.gpu.flop_formulas import FORMULAS, estimate_work
from kinetoscope.analysis.steps.step_work import WorkSums, build_rate_notes, compute_rates
from trainsim import Settings, simulate

LOOP, STREAM = 1, 7
A100 = "NVIDIA A100-SXM4-80GB"
FLOPS = 2 * 512 * 1024 * 2048


def span(name: str, begin_us: float, dur_us: float, category="cpu_op", tid=LOOP, **args) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": tid // STREAM, "tid": tid, "ts": begin_us, "dur": dur_us,
        "args": args,
    }  # fmt: skip


def product(name="aten::mm", begin_us=10.0, dtype="c10::BFloat16", dur_us=20.0) -> dict[str, Any]:
    args = {"Input Dims": [[512, 1024], [1024, 2048]], "Input type": [dtype, dtype]}
    return span(name, begin_us, dur_us, **args)


def launched(number: int, launch_us: float, begin_us: float, dur_us: float, name: str) -> list[dict[str, Any]]:
    """Return a kernel, and the call that launched it."""
    return [
        span("cudaLaunchKernel", launch_us, 2, "cuda_runtime", correlation=number),
        span(name, begin_us, dur_us, "kernel", tid=STREAM, correlation=number, device=0, stream=STREAM),
    ]


def analyzed(tmp_path, *events, device: str | None = A100):
    devices = [{"id": 0, "name": device}] if device else []
    trace = {"schemaVersion": 1, "deviceProperties": devices, "traceEvents": list(events)}
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    return kinetoscope.analyze(tmp_path / "rank0.json", cache=False)


def rows_of(rows) -> dict[str, Any]:
    return {row.name: row for row in rows}


def test_the_kernels_of_a_product_share_its_operations_by_their_time(tmp_path):
    report = analyzed(
        tmp_path,
        product(),
        *launched(1, 12, 20, 30, "gemm"),
        *launched(2, 16, 50, 10, "splitKreduce"),
        *launched(3, 40, 60, 10, "another"),
    )
    kernels, (row,) = rows_of(report.kernels), [row for row in report.operators if row.name == "aten::mm"]
    assert (kernels["gemm"].flops, kernels["splitKreduce"].flops) == (FLOPS * 3 / 4, FLOPS / 4)
    assert kernels["another"].flops is kernels["another"].mfu is None
    assert row.flops == FLOPS
    assert row.flops_per_s == pytest.approx(FLOPS / 40e-6)
    assert row.mfu == pytest.approx(FLOPS / 40e-6 / 312e12, rel=1e-4)
    assert kernels["gemm"].mfu == pytest.approx(row.mfu, rel=1e-4)


def test_a_kernel_reads_and_writes_each_matrix_once_at_least(tmp_path):
    report = analyzed(tmp_path, product(), *launched(1, 12, 20, 30, "gemm"))
    assert rows_of(report.kernels)["gemm"].bytes == 2 * (512 * 1024 + 1024 * 2048 + 512 * 2048)


def test_an_operator_within_a_counted_one_does_not_count_again(tmp_path):
    outer = span("aten::linear", 5, 40, **{"Input Dims": [[512, 1024], [2048, 1024]]})
    inner = product(begin_us=12, dur_us=10)
    report = analyzed(tmp_path, outer, product("aten::_scaled_mm"), inner, device=None)
    assert [(row.name, row.flops) for row in report.operators if row.flops is not None] == [("aten::_scaled_mm", FLOPS)]


def test_without_a_device_an_operator_is_as_fast_as_its_own_time_says(tmp_path):
    row = rows_of(analyzed(tmp_path, product(), device=None).operators)["aten::mm"]
    assert (row.flops, row.flops_per_s, row.mfu) == (FLOPS, pytest.approx(FLOPS / 20e-6), None)


@pytest.mark.parametrize(
    ("device", "dtype", "kernel", "peak"),
    [
        (A100, "float", "ampere_sgemm_128x64_tn", 19.5e12),
        (A100, "float", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", 156e12),
        (A100, "double", "ampere_dgemm_128x64_tn", 19.5e12),
        (A100, "c10::Float8_e4m3fn", "gemm", None),
        ("A device of tomorrow", "float", "gemm", None),
    ],
)
def test_the_share_of_the_peak_is_that_of_the_type_of_numbers(device, dtype, kernel, peak, tmp_path):
    report = analyzed(tmp_path, product(dtype=dtype), *launched(1, 12, 20, 500, kernel), device=device)
    row = rows_of(report.operators)["aten::mm"]
    assert row.flops_per_s == pytest.approx(FLOPS / 500e-6)
    assert row.mfu == (None if peak is None else pytest.approx(FLOPS / 500e-6 / peak, rel=1e-4))


def test_operator_without_recorded_kernels_has_flops_but_no_rate(tmp_path):
    report = analyzed(tmp_path, product(), *launched(1, 40, 50, 10, "another"))
    row = rows_of(report.operators)["aten::mm"]
    assert (row.flops, row.flops_per_s, row.mfu) == (FLOPS, None, None)


def test_steps_that_the_host_only_queues_are_as_long_as_on_the_device(tmp_path):
    events = []
    for number in (0, 1):
        begin_us = 100 * number
        events += [
            span(f"ProfilerStep#{number}", begin_us, 90, "user_annotation"),
            product(begin_us=begin_us + 10),
            *launched(number + 1, begin_us + 12, 30 + 1000 * number, 1000, "gemm"),
        ]
    report = analyzed(tmp_path, *events)
    assert [row.flops for row in report.steps] == [FLOPS] * 2
    assert [row.flops_per_s for row in report.steps] == [pytest.approx(FLOPS / 1e-3)] * 2
    assert [row.mfu for row in report.steps] == [pytest.approx(FLOPS / 1e-3 / 312e12, rel=1e-4)] * 2
    assert report.run["flops_per_step"] == FLOPS
    assert report.run["mfu"] == pytest.approx(FLOPS / 1e-3 / 312e12, rel=1e-4)


def test_a_step_in_which_one_operator_is_not_known_has_no_sum(tmp_path):
    step = span("ProfilerStep#0", 0, 90, "user_annotation")
    unknown = span("aten::convolution", 50, 10, **{"Input Dims": [[1, 3, 8, 8], [4, 3, 3, 3]], "Input type": []})
    report = analyzed(tmp_path, step, product(), unknown, device=None)
    assert report.steps[0].flops is report.steps[0].flops_per_s is report.run["flops_per_step"] is None
    assert rows_of(report.operators)["aten::mm"].flops == FLOPS
    assert rows_of(report.operators)["aten::convolution"].flops is None


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("aten::mm", [], []),
        ("aten::mm", [[2, 3], []], []),
        ("aten::mm", [[2, 3], [4, 5]], []),
        ("aten::addmm", [[2], [2, "3"], [3, 4]], []),
        ("aten::mm", [[-2, 3], [3, 4]], []),
        ("aten::mm", [[10**9, 10**9], [10**9, 10**9]], []),
        ("aten::mm", [[[2], [3]], [[3], [4]]], []),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], []),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], ["", "", "", "x", "", "", "", "", ""]),
        ("aten::convolution_backward", [[1, 4, 8, 8], [1, 3, 8, 8], [4, 0, 3, 3]], [""] * 11),
        ("aten::_scaled_dot_product_flash_attention", [[2, 4, 6], [2, 4, 6], [2, 4, 6]], []),
        ("aten::_flash_attention_forward", [[9, 4, 6], [9, 4, 6], [9, 4, 6], [3]], []),
    ],
)
def test_flops_without_shapes_are_unknown(name, shapes, values):
    assert estimate_work(name, shapes, values) is None


def test_attention_takes_two_products_and_five_in_its_backward_pass():
    queries, keys, values, result = [2, 4, 6, 8], [2, 4, 10, 8], [2, 4, 10, 16], [2, 4, 6, 16]
    pairs, elements = 2 * 4 * 6 * 10, 2 * 4 * (6 * 8 + 10 * 8 + 10 * 16 + 6 * 16)
    forward = estimate_work("aten::_scaled_dot_product_flash_attention", [queries, keys, values])
    backward = estimate_work("aten::_scaled_dot_product_flash_attention_backward", [result, queries, keys, values])
    assert forward is not None
    assert backward is not None
    assert (forward.flops, forward.elements) == (2 * pairs * (8 + 16), elements)
    assert (backward.flops, backward.elements) == (2 * pairs * (3 * 8 + 2 * 16), 2 * elements)


def test_output_size_of_a_convolution_follows_padding_stride_and_dilation():
    shapes, values = [[2, 3, 9, 12], [8, 3, 3, 5]], ["", "", "", "[2, 1]", "[1, 0]", "[1, 2]", "False", "[0, 0]", "1"]
    work = estimate_work("aten::convolution", shapes, values)
    assert work is not None
    assert work.flops == 2 * (2 * 5 * 4) * (8 * 3 * 3 * 5), "5 rows and 4 columns of places in 2 samples"
    assert work.elements == 2 * 3 * 9 * 12 + 8 * 3 * 3 * 5 + 2 * 8 * 5 * 4


def test_attention_with_heads_after_positions_counts_the_same():
    heads_first, heads_last = [[2, 4, 6, 8]] * 3, [[2, 6, 4, 8]] * 3
    one = estimate_work("aten::_scaled_dot_product_flash_attention", heads_first)
    assert estimate_work("aten::_flash_attention_forward", [*heads_last, [], []]) == one


def test_grouped_convolution_weights_count_as_in_torch_but_not_as_executed():
    shapes, values = [[2, 8, 9, 9], [2, 8, 9, 9], [8, 1, 3, 3]], ["", "", "", "[8]", "[1, 1]", "[1, 1]", "[1, 1]"]
    work = estimate_work(
        "aten::convolution_backward", shapes, [*values, "False", "[0, 0]", "8", "[False, True, False]"]
    )
    assert work is not None
    assert work.flops == 8 * work.executed_flops
    assert work.executed_flops == 2 * 2 * 9 * 9 * 8 * 3 * 3


NUMBERS = st.integers() | st.floats() | st.none() | st.booleans() | st.text(max_size=3)
SHAPES = st.lists(st.lists(NUMBERS | st.lists(NUMBERS, max_size=3), max_size=5) | NUMBERS, max_size=7)
VALUES = st.lists(st.sampled_from(["", "True", "False", "[1, 2]", "[]", "0", "x"]) | NUMBERS, max_size=12)


@given(st.sampled_from(sorted(FORMULAS)), SHAPES, VALUES)
def test_shapes_of_any_form_give_a_number_or_nothing(name, shapes, values):
    work = estimate_work(name, shapes, values)
    assert work is None or (work.flops >= work.executed_flops >= 0 and work.elements >= 0)


def simulated(tmp_path, **settings):
    simulate(Settings(**settings)).write(tmp_path)
    return kinetoscope.analyze(tmp_path, cache=False)


def test_few_operators_outside_a_cuda_graph_give_no_share_of_the_peak(tmp_path):
    report = simulated(tmp_path, has_cuda_graph=True, has_eager_head=True, num_ranks=1)
    rows = [report.run, *(row.to_dict() for row in report.steps)]
    assert all(0.001 < row["mfu_coverage"] < 0.2 for row in rows)
    assert {row["mfu"] for row in rows} == {row["flops_per_s"] for row in rows} == {None}
    (note,) = (note for note in report.run["notes"] if note.startswith("FLOP/s and MFU are unknown"))
    assert f" {100 * report.run['mfu_coverage']:.1f} % of the time" in note


def test_flops_per_second_are_flops_per_step_over_step_time(tmp_path):
    run = simulated(tmp_path, num_ranks=2).run
    assert run["mfu_coverage"] == 1
    assert run["flops_per_s"] * run["step_ns"] / 1e9 == pytest.approx(run["flops_per_step"])
    assert run["mfu"] == pytest.approx(run["flops_per_s"] / 312e12, rel=1e-3)


def test_share_above_the_whole_peak_is_not_reported():
    assert compute_rates([WorkSums(1, True, 8.0, 8.0, 900.0, 10, 10)], 1000.0)["mfu"] == 0.9
    beyond = [WorkSums(1, True, 8.0, 8.0, 1100.0, 10, 10)]
    nothing = {"flops_per_step": None, "flops_per_s": None, "mfu": None, "mfu_coverage": 1}
    assert compute_rates(beyond, 1000.0) == nothing
    assert len(build_rate_notes(beyond, 1000.0)) == 1


def test_no_operator_or_kernel_is_faster_than_the_peak_of_its_device(tmp_path):
    """The shapes are larger than those of what ran."""
    report = analyzed(tmp_path, product(), *launched(1, 12, 20, 0.001, "gemm"))
    for each in (*report.operators, *report.kernels):
        assert each.flops_per_s is each.mfu is None


def test_single_step_lasts_as_long_as_its_cpu_if_slower_than_its_device(tmp_path):
    one = span("ProfilerStep#0", 0, 2000, "user_annotation")
    (row,) = analyzed(tmp_path, one, product(), *launched(1, 12, 20, 500, "gemm")).steps
    assert (row.flops_per_s, row.mfu_coverage) == (pytest.approx(FLOPS / 2000e-6), 1)


def test_kernels_of_compiled_code_that_no_operator_launched_are_not_covered(tmp_path):
    report = analyzed(
        tmp_path,
        span("ProfilerStep#0", 0, 900, "user_annotation"),
        product(),
        *launched(1, 12, 20, 30, "gemm"),
        *launched(2, 40, 60, 270, "triton_tem_fused_mm_3"),
        *launched(3, 50, 400, 300, "triton_poi_fused_mm_4"),
    )
    assert (report.steps[0].mfu_coverage, report.run["mfu_coverage"]) == (pytest.approx(0.1), pytest.approx(0.1))
    assert report.steps[0].flops_per_s is report.run["flops_per_s"] is None
    assert {row.name: row.uses_tensor_cores for row in report.kernels}["triton_poi_fused_mm_4"] is False
