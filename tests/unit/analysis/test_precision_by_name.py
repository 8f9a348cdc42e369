"""The precision of kernels by their names: float64 and float32 matmuls are found, similar names are not."""

import pytest

import kinetoscope
from trainsim import Settings
from trainsim.analyses import write_changed

MS = 1_000_000

NAMES = {
    "ampere_dgemm_128x64_tn": "float64",
    "volta_dgemm_64x64_nn": "float64",
    "dgemm_largek_lds64": "float64",
    "sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x8": "float64",
    "cutlass_80_tensorop_d884gemm_64x64_16x3_nn_align1": "float64",
    "void gemv2T_kernel_val<int, int, double, double>(int)": None,  # double is not its first parameter
    "void gemmSN_NN_kernel<double, 128, 2, 4>(cublasGemmSmallNParams)": "float64",
    "ampere_sgemm_128x64_tn": "float32_matmul",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8": "float32_matmul",
    "bf16BatchedGemm_64x64": None,
    "void GroupedGemm<cutlass::bfloat16_t>(Params)": None,
    "BiasGemm_bf16_128": None,
    "tokensGemmKernel": None,
    "void gemm<doubleBuffered, __nv_bfloat16>(Params)": None,
}


def first_kind(name, folder):
    """Return the kind of the first finding on a run whose matmuls are kernels of this name."""

    def rename(trace):
        for event in trace["traceEvents"]:
            if event.get("cat") == "kernel" and "gemm" in event["name"]:
                event["name"] = name

    write_changed(rename, Settings(num_ranks=1, num_steps=8, step_ns=8 * MS), folder)
    findings = kinetoscope.analyze(folder, cache=False).findings
    return findings[0].kind if findings else None


@pytest.mark.parametrize("name", NAMES)
def test_precision_is_judged_by_whole_words(name, tmp_path):
    assert first_kind(name, tmp_path) == NAMES[name]
