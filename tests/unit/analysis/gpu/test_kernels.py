"""analysis/gpu/kernels.py: how much of the kernels' time is that of kernels which use tensor cores."""

import pytest

from kinetoscope.analysis.gpu.kernels import KernelRow, tensor_core_usage

USES, USES_NONE, UNKNOWN = True, False, None


def kernel(total_ns, uses_tensor_cores, kind="compute"):
    times = dict.fromkeys(("total_ns", "self_ns", "mean_ns", "p50_ns", "p95_ns", "max_ns"), total_ns)
    return KernelRow(name="a kernel", kind=kind, num_calls=1, uses_tensor_cores=uses_tensor_cores, **times)


def shares(*rows):
    return tuple(tensor_core_usage(rows).values())


def test_kernel_with_an_ambiguous_name_counts_in_the_total_only():
    assert shares(kernel(60, USES), kernel(30, USES_NONE), kernel(10, UNKNOWN)) == (0.6, pytest.approx(0.9))


def test_communication_and_copies_are_of_no_share():
    others = [kernel(900, UNKNOWN, "communication"), kernel(900, UNKNOWN, "copy")]
    assert shares(kernel(3, USES), kernel(1, USES_NONE), *others) == (0.75, 1)


def test_share_without_names_is_unknown_and_not_0():
    assert shares(kernel(10, UNKNOWN)) == (None, 0)
    assert shares(kernel(10, USES_NONE)) == (0, 1)
    assert shares() == shares(kernel(10, UNKNOWN, "copy")) == (None, None)
