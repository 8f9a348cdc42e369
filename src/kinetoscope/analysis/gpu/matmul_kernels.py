"""Classification of kernels by name: matmul, convolution or attention, and use of tensor cores.

The patterns cover cuBLAS, cuBLASLt, CUTLASS and cuDNN on NVIDIA's devices, Tensile (rocBLAS, hipBLASLt), Composable
Kernel and MIOpen on AMD's, oneDNN on Intel's, FlashAttention, DeepGEMM, and Inductor's Triton templates.
"""

import re
from functools import lru_cache

from kinetoscope.analysis.windows.kernel_names import strip_arguments

_MATMUL = re.compile(
    r"(?i)(?<!fb)gemm|gemv|nvjet|xmma|matmul|(^|[^a-z])b?mm([^a-z]|$)|cijk_|_fused_(add)?b?mm|moe_kernel|marlin|"
    r"conv(olve|olution|_|[0-9]|2d|3d|\b)|scudnn|hcudnn|[dw]grad|fprop|winograd|fft2d_(r2c|c2r)|"
    r"flash_?(fwd|bwd|attn|attention)|fmha|mha_|sdpa|attn_(fwd|bwd)|attention"
)
_HELPER = re.compile(
    r"(?i)split_?k_?reduce|offsets?kernel|nchwtonhwc|nhwctonchw|transpose|convert|_scale|quantize|im2col|_helper|"
    r"embedding|softmax|dropout|\bcopy|elementwise|reduce_kernel|triton_(poi|red|per)_"
)
_TENSOR_CORES = re.compile(
    r"(?i)tensor_?op|_tensor\d+x|[a-z]\d*(884|1688|16816|16832|8816|161616|64x\d+x16)[a-z]*gemm|(^|[^a-z])([hib]|wg)?mma|"
    r"nvjet|tf32|(sm)?(8\d|90|1\d\d)a?_xmma.*(bf16|f16|e4m3|e5m2|s8)|flash_(fwd|bwd)|tcgen05|_mi\d+x\d+|"
    r"fmha.*(bf16|f16|half)|deep_gemm|h884|cudnn_generated_fort_native_sdpa"
)
_NO_TENSOR_CORES = re.compile(
    r"(?i)simt|_[sdcz]gemm(_|$)|[^a-z][sdcz]gemm_|gcgemm|[sd]cudnn|gemv|gemmk1|f32f32_f32f32|winograd|fft2d|"
    r"at::native::(?!.*(flash|gemm|mma))|^triton_(poi|red|per)_|_sgemm$|^sgemm_"
)
_MAX_CACHED_NAMES = 1 << 14


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def is_matmul(name: str) -> bool:
    """Return whether a kernel computes matmuls, convolutions or attention, not their helpers such as split-k sums."""
    return _MATMUL.search(name) is not None and _HELPER.search(strip_arguments(name)) is None


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def uses_tensor_cores(name: str) -> bool | None:
    """Return whether a kernel uses tensor cores, or other matrix units; None if its name does not show it."""
    if _TENSOR_CORES.search(name):
        return True
    return False if _NO_TENSOR_CORES.search(name) else None
