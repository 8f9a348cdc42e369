"""The peaks of devices are known by their names, and those of parts and of others are not."""

import pytest

from kinetoscope.analysis.gpu.device_peaks import peak_flops_per_s


@pytest.mark.parametrize(
    ("device", "dtype", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312.0),
        ("NVIDIA A100-PG509-200", "float64", 19.5),
        ("NVIDIA A10", "float16", 125.0),
        ("Tesla V100-SXM2-32GB", "float16", 125.0),
        ("Tesla V100-PCIE-16GB", "float16", 112.0),
        ("Tesla T4", "float32", 8.1),
        ("NVIDIA L4", "float8", 242.5),
        ("NVIDIA L40S", "bfloat16", 362.0),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA H100 NVL", "bfloat16", 835.5),
        ("NVIDIA H200", "float8", 1978.9),
        ("NVIDIA GH200 480GB", "bfloat16", 989.4),
        ("AMD Instinct MI300X", "bfloat16", 1307.4),
    ],
)
def test_the_peak_of_a_device_is_that_of_its_makers_data_sheet(device, dtype, tflops):
    assert peak_flops_per_s(device, dtype) == tflops * 1e12


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("", "float32"),
        ("NVIDIA RTX A1000", "float32"),
        ("NVIDIA A10G", "float16"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bfloat16"),
        ("Tesla V100-SXM2-32GB", "bfloat16"),
        ("NVIDIA A100-SXM4-80GB", "float8"),
        ("NVIDIA A100-SXM4-80GB", ""),
    ],
)
def test_peaks_without_a_data_sheet_are_unknown(device, dtype):
    assert peak_flops_per_s(device, dtype) is None


def test_float32_may_run_in_tf32_unless_its_kernels_say_otherwise():
    assert peak_flops_per_s("NVIDIA A100-SXM4-80GB", "float32") == 156e12
    assert peak_flops_per_s("NVIDIA A100-SXM4-80GB", "float32", is_full_float32=True) == 19.5e12
    assert peak_flops_per_s("Tesla V100-SXM2-32GB", "float32") == 15.7e12
