"""Hints: settings of PyTorch that may be faster, each only where its operators were recorded."""

from dataclasses import fields

import pytest

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.gpu.matmul_kernels import uses_tensor_cores
from kinetoscope.analysis.hints import find_hints

MS = 1_000_000
V100, A100, P100 = "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-80GB", "Tesla P100-PCIE-16GB"
SGEMM = "volta_sgemm_64x64_nt"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >()"
HALF_GEMM = "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn"


def kernel(name, total_ms, num_calls=100):
    times = dict.fromkeys(("self_ns", "mean_ns", "p50_ns", "p95_ns", "max_ns"), 0)
    return KernelRow(
        name=name,
        kind="compute",
        num_calls=num_calls,
        total_ns=round(total_ms * MS),
        uses_tensor_cores=uses_tensor_cores(name),
        **times,
    )


def operator(name, device_ms=0.0):
    times = {field.name: 0 for field in fields(OperatorRow) if field.name.endswith("_ns")}
    return OperatorRow(name=name, shapes=None, num_calls=1, **times | {"device_ns": round(device_ms * MS)})


def topics(kernels, operators=(), majors=(), names=(V100,)):
    return [hint.partition(":")[0] for hint in find_hints(kernels, list(operators), set(majors), set(names))]


@pytest.mark.parametrize(
    ("majors", "names", "expected"),
    [((7,), (), "torch.float16"), ((8,), (), "torch.bfloat16"), ((), (V100,), "torch.float16")],
)
def test_float32_matmuls_on_a_gpu_with_tensor_cores_suggest_mixed_precision(majors, names, expected):
    (hint,) = find_hints([kernel(SGEMM, 60), kernel("other_kernel", 40)], [], set(majors), set(names))
    assert hint.startswith("Mixed precision: float32 matmuls and convolutions take 60 % of the compute time")
    assert expected in hint


@pytest.mark.parametrize(("majors", "names"), [((6,), (P100,)), ((), (P100,)), ((), ())])
def test_a_gpu_without_tensor_cores_gets_no_hint_on_precision(majors, names):
    assert topics([kernel(SGEMM, 60), kernel("other_kernel", 40)], majors=majors, names=names) == []


def test_float32_left_in_a_run_of_half_precision_suggests_tf32():
    assert topics([kernel(SGEMM, 20), kernel(HALF_GEMM, 80)], majors=[8], names=(A100,)) == ["TF32"]


def test_elementwise_kernels_suggest_compilation_unless_the_model_is_compiled():
    kernels = [kernel(ADD, 30), kernel(HALF_GEMM, 70)]
    assert topics(kernels) == ["Compilation"]
    assert topics([*kernels, kernel("triton_poi_fused_add_0", 1)]) == []


def test_attention_of_matmuls_and_softmax_suggests_one_call():
    kernels = [kernel(HALF_GEMM, 100)]
    built = [operator("aten::_softmax", 10), operator("aten::bmm", 20)]
    assert topics(kernels, built) == ["Attention"]
    assert topics(kernels, [*built, operator("aten::scaled_dot_product_attention", 5)]) == []
    assert topics(kernels, [operator("aten::_softmax", 0.1), operator("aten::bmm", 20)]) == []


def test_layout_conversions_suggest_channels_last():
    name = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true>()"
    assert topics([kernel(HALF_GEMM, 90), kernel(name, 10)]) == ["Channels last"]


def test_foreach_kernels_suggest_a_fused_optimizer():
    kernels = [kernel(HALF_GEMM, 90), kernel("void at::native::multi_tensor_apply_kernel<at::native::Add>()", 10)]
    assert topics(kernels, [operator("aten::_foreach_add_")]) == ["Optimizer"]
    fused = kernel("void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float>>()", 10)
    assert topics([kernels[0], fused], [operator("aten::_fused_adam_")]) == []


def test_short_kernels_suggest_a_larger_batch():
    assert topics([kernel(HALF_GEMM, 1, num_calls=1000)]) == ["Batch size"]


def test_a_run_without_kernels_has_no_hints():
    assert topics([], [operator("aten::bmm")]) == []
