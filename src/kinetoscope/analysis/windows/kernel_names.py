"""analysis: the names of kernels as compilers write them, and those of copies as Kineto does."""

import re

_NO_NAME = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_ARGUMENTS = re.compile("[<(]")


def own_name(kernel: str) -> str:
    """The name of a kernel with its namespaces, without its arguments and those of its template."""
    return _ARGUMENTS.split(_NO_NAME.sub("", kernel), maxsplit=1)[0]


COPY = r"(?i)^(memcpy |mem(ory_)?copy_|copy(host|device)to)"
"""Copies, also those that ROCm reports as kernels: ``MEMORY_COPY_HOST_TO_DEVICE`` of rocprofiler-sdk, which Kineto has
as a kernel before its pull request 1295, and roctracer's ``CopyHostToDevice``."""

COPY_TO_DEVICE = r"(?i)^(memcpy (htod|[hm]2d)\b|mem(ory_)?copy_host_to_device|copyhosttodevice)"
"""Copies from the host to a device: ``HtoD`` of CUDA and ROCm, ``M2D`` and, from pinned memory, ``H2D`` of XPU."""

COPY_TO_HOST = r"(?i)^(memcpy (dtoh|d2[hm])\b|mem(ory_)?copy_device_to_host|copydevicetohost)"
"""Copies from a device to the host."""

COPY_OF_PINNED_MEMORY = r"(?i)^memcpy (htod \(pinned|h2d)\b"
"""Those of them that say that the host's memory was pinned. ROCm does not say it."""
