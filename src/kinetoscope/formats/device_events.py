"""Categories of a trace's events that are work of a device, by Kineto's ActivityType.cpp.

`src/native/rewrite/survey.c` has the same list.
"""

KERNELS = ("kernel", "Kernel", "concurrent_kernel", "mtia_ccp_events")
"""Categories of compute and communication: ``kernel`` of CUDA, ROCm, XPU and private backends, ``Kernel`` of Kineto
before 2022, ``mtia_ccp_events`` of MTIA."""

COPIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset", "GCU_MEMCPY", "GCU_MEMSET")
"""Copies, and memory that is set."""

DEVICE_CATEGORIES = frozenset((*KERNELS, *COPIES))
