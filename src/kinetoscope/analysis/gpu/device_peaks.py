"""Peak FLOP/s of devices by name and dtype."""

import re
from typing import NamedTuple

FULL_FLOAT32 = r"(?:^|[^A-Za-z])sgemm(?:[^a-z]|$)|f32f32_f32f32"
"""Names of kernels that compute in full float32."""

TENSOR_FLOAT32 = r"(?i)tf32|tensorop"
"""Names of kernels that compute in TF32."""

TYPES = {"double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
TYPES |= {f"c10::Float8_{kind}": "float8" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")}
"""Dtypes of matmuls, by their names in traces."""

NUM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}


class _Peaks(NamedTuple):
    """Peak TFLOP/s of dense matmuls; None where the vendor gives none, or the device has no units for it."""

    float64: float | None
    float32: float
    tf32: float | None
    float16: float
    bfloat16: float | None = None
    float8: float | None = None


_DEVICES: dict[str, _Peaks] = {
    "V100-PCIE": _Peaks(7.0, 14.0, None, 112.0),
    "V100": _Peaks(7.8, 15.7, None, 125.0),
    "T4": _Peaks(None, 8.1, None, 65.0),
    "A10": _Peaks(None, 31.2, 62.5, 125.0, 125.0),
    "A30": _Peaks(10.3, 10.3, 82.0, 165.0, 165.0),
    "A40": _Peaks(None, 37.4, 74.8, 149.7, 149.7),
    "A100": _Peaks(19.5, 19.5, 156.0, 312.0, 312.0),
    "L4": _Peaks(None, 30.3, 60.0, 121.0, 121.0, 242.5),
    "L40": _Peaks(None, 90.5, 90.5, 181.0, 181.0, 362.0),
    "L40S": _Peaks(None, 91.6, 183.0, 362.0, 362.0, 733.0),
    "H100 PCIe": _Peaks(51.0, 51.0, 378.0, 756.0, 756.0, 1513.0),
    "H100 NVL|H200 NVL": _Peaks(60.0, 60.0, 417.5, 835.5, 835.5, 1670.5),
    "H100|H200|GH200": _Peaks(66.9, 66.9, 494.7, 989.4, 989.4, 1978.9),
    "B200": _Peaks(37.0, 75.0, 1100.0, 2250.0, 2250.0, 4500.0),
    "MI250X": _Peaks(47.9, 47.9, None, 191.5, 191.5),
    "MI300X|MI325X": _Peaks(163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9),
}
"""Peaks from the vendors' data sheets, by name: of dense matmuls, on matrix units where the device has them.

The first name that consists of whole words of the device's name counts.

- NVIDIA: the data sheets of V100, T4, A10, A30, A40, A100, L4, L40, L40S, H100, H200 and GH200, and the white papers on
  the architectures of H100 (2022) and of Blackwell (2024), at nvidia.com/data-center. From A100 on they have the
  numbers with sparsity, too, which are twice as large, or have only those.
- AMD: the data sheets of Instinct MI250X, MI300X and MI325X, at amd.com/instinct. A MI250X is two devices, each of
  which has half.
"""


def peak_flops_per_s(device_name: str, dtype: str, *, is_full_float32: bool = False) -> float | None:
    """Return the peak FLOP/s of a device in matmuls of a dtype; None if unknown, as for a part of a device (MIG).

    Args:
        device_name: name of the device as in the trace.
        dtype: one of the values of `TYPES`.
        is_full_float32: whether matmuls of float32 do not run in TF32, which is faster.
    """
    if "MIG" in device_name.split():
        return None
    found = (peaks for name, peaks in _DEVICES.items() if re.search(rf"\b({name})\b", device_name))
    if (peaks := next(found, None)) is None:
        return None
    is_tf32 = dtype == "float32" and not is_full_float32 and peaks.tf32 is not None
    peak = getattr(peaks, "tf32" if is_tf32 else dtype, None)
    return None if peak is None else peak * 1e12
