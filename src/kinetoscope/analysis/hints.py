"""Hints on faster settings of PyTorch, for a run on a GPU in which nothing is wrong."""

import re
from collections.abc import Collection, Sequence

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.gpu.device_peaks import FULL_FLOAT32, TENSOR_FLOAT32, peak_flops_per_s
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.gpu.matmul_kernels import is_matmul
from kinetoscope.core.text.wording import format_percent

MIN_MATMUL_SHARE = 0.1
"""Matmuls and convolutions with a smaller share of the compute time gain little from another precision."""

MIN_ELEMENTWISE_SHARE = 0.2
MIN_SHARE = 0.02
"""Layout conversions, attention and optimizers with a smaller share of the compute time get no hint."""

MIN_SOFTMAX_SHARE = 0.01
"""Batched matmuls with a smaller share of softmax are no attention."""

MAX_SHORT_KERNEL_NS = 10_000
"""Kernels that take less on average hardly fill a GPU: a launch alone takes 2 to 5 us."""

MAX_HINTS = 4

_FIRST_WITH_TENSOR_CORES, _FIRST_WITH_BFLOAT16 = 7, 8
"""Major compute capability of Volta, and of Ampere."""

_FLOAT32 = re.compile(r"<float\b|(?:^|[^a-z])sgemm|scudnn|f32f32_f32f32")
_HALF = re.compile(r"(?i)half|bf16|bfloat16|f16|h884|h1688|s16816|s884")
_ELEMENTWISE = re.compile(r"elementwise_kernel|reduce_kernel|CatArrayBatchedCopy|batch_norm|layer_norm|bn_(?:fw|bw)")
_LAYOUT = re.compile(r"(?i)nchwtonhwc|nhwctonchw")
_FOREACH = re.compile(r"multi_tensor_apply_kernel(?!.*(?i:fused))")


def find_hints(
    kernels: Sequence[KernelRow],
    operators: Sequence[OperatorRow],
    majors: Collection[int],
    device_names: Collection[str],
) -> list[str]:
    """Return one sentence for each setting that may be faster, the largest share of the compute time first.

    Args:
        kernels: rows of all kernels.
        operators: rows of all operators.
        majors: major versions of the GPUs' compute capability, as far as they were recorded.
        device_names: names of the GPUs.
    """
    compute = [row for row in kernels if row.kind == "compute"]
    compute_ns = sum(row.total_ns for row in compute)
    if not compute_ns:
        return []
    hints = _Hints(compute, {row.name for row in operators}, compute_ns)
    found = [
        hints.suggest_precision(majors, device_names),
        hints.suggest_compilation(),
        hints.suggest_attention(operators),
        hints.suggest_layout(),
        hints.suggest_optimizer(),
        hints.suggest_batch_size(),
    ]
    known = sorted((one for one in found if one is not None), key=lambda one: -one[0])
    return [sentence for _, sentence in known[:MAX_HINTS]]


class _Hints:
    """The compute kernels of a run. Each method returns a share of the compute time and a sentence, or None."""

    def __init__(self, kernels: Sequence[KernelRow], operators: set[str], compute_ns: int) -> None:
        self._kernels, self._operators, self._compute_ns = kernels, operators, compute_ns

    def _time_share(self, kernels: Collection[KernelRow]) -> float:
        return sum(row.total_ns for row in kernels) / self._compute_ns

    def _kernels_named(self, pattern: re.Pattern[str]) -> list[KernelRow]:
        return [row for row in self._kernels if pattern.search(row.name)]

    def suggest_precision(self, majors: Collection[int], device_names: Collection[str]) -> tuple[float, str] | None:
        """Suggest mixed precision, or TF32 where there is half precision already."""
        products = [row for row in self._kernels if is_matmul(row.name) and row.uses_tensor_cores is not True]
        slow = [row for row in products if _FLOAT32.search(row.name) and not _HALF.search(row.name)]
        share = self._time_share(slow)
        if share < MIN_MATMUL_SHARE or not _have_tensor_cores(majors, device_names):
            return None
        takes = (
            f"float32 matmuls and convolutions take {format_percent(share)} of the compute time without tensor cores"
        )
        has_bfloat16 = bool(majors) and min(majors) >= _FIRST_WITH_BFLOAT16
        full = [row for row in slow if re.search(FULL_FLOAT32, row.name) and not re.search(TENSOR_FLOAT32, row.name)]
        if has_bfloat16 and self._kernels_named(_HALF) and full:
            return share, f'TF32: {takes}. Try torch.set_float32_matmul_precision("high").'
        how = (
            'torch.autocast("cuda", dtype=torch.bfloat16)'
            if has_bfloat16
            else 'torch.autocast("cuda", dtype=torch.float16) with torch.amp.GradScaler()'
        )
        return share, f"Mixed precision: {takes}. Try {how}."

    def suggest_compilation(self) -> tuple[float, str] | None:
        """Suggest torch.compile where elementwise kernels take long and none is compiled."""
        share = self._time_share(self._kernels_named(_ELEMENTWISE))
        if share < MIN_ELEMENTWISE_SHARE or any(row.name.startswith("triton_") for row in self._kernels):
            return None
        takes = f"elementwise kernels, normalizations and reductions take {format_percent(share)} of the compute time"
        return share, f"Compilation: {takes}. torch.compile(model) fuses many of them."

    def suggest_attention(self, operators: Sequence[OperatorRow]) -> tuple[float, str] | None:
        """Suggest scaled_dot_product_attention where attention is built of matmuls and a softmax."""
        if any("scaled_dot_product" in name or "flash" in name for name in self._operators):
            return None
        if not {"aten::_softmax", "aten::bmm"} <= self._operators:
            return None
        softmax, bmm = (
            sum(row.device_ns or 0 for row in operators if row.name in names) / self._compute_ns
            for names in (("aten::_softmax", "aten::_softmax_backward_data"), ("aten::bmm",))
        )
        share = softmax + bmm
        if softmax < MIN_SOFTMAX_SHARE or share < MIN_SHARE:
            return None
        takes = f"batched matmuls and softmax take {format_percent(share)} of the compute time"
        return share, f"Attention: {takes}. Try torch.nn.functional.scaled_dot_product_attention."

    def suggest_layout(self) -> tuple[float, str] | None:
        """Suggest channels_last where cuDNN converts the layout of each convolution."""
        share = self._time_share(self._kernels_named(_LAYOUT))
        if share < MIN_SHARE:
            return None
        takes = f"conversions of the memory layout take {format_percent(share)} of the compute time"
        return share, f"Channels last: {takes}. Try model.to(memory_format=torch.channels_last), and the inputs alike."

    def suggest_optimizer(self) -> tuple[float, str] | None:
        """Suggest a fused optimizer where it is one of many foreach kernels."""
        share = self._time_share(self._kernels_named(_FOREACH))
        if share < MIN_SHARE or not any(name.startswith("aten::_foreach_") for name in self._operators):
            return None
        takes = f"its foreach kernels take {format_percent(share)} of the compute time"
        return share, f"Optimizer: {takes}. Adam, AdamW, SGD and Adagrad have fused=True."

    def suggest_batch_size(self) -> tuple[float, str] | None:
        """Suggest a larger batch where kernels are too short to fill a GPU."""
        mean_ns = self._compute_ns / max(1, sum(row.num_calls for row in self._kernels))
        if mean_ns > MAX_SHORT_KERNEL_NS:
            return None
        takes = f"a kernel takes {mean_ns / 1000:.1f} us on average"
        return 0.0, f"Batch size: {takes}. A larger batch fills the GPU better."


def _have_tensor_cores(majors: Collection[int], device_names: Collection[str]) -> bool:
    """Return whether the GPUs have units for matrix products in half precision."""
    if majors:
        return min(majors) >= _FIRST_WITH_TENSOR_CORES
    peaks = [(peak_flops_per_s(name, "float16"), peak_flops_per_s(name, "float32")) for name in device_names]
    return any(half is not None and full is not None and half > full for half, full in peaks)
