"""Names of communication kernels of all known libraries, and of copies.

A name is as in a trace: demangled, as ``void (anonymous namespace)::multimem_all_reduce_kernel<...>(...)``, or as the
compiler wrote it, as ``_ZN8internal26multimem_all_reduce_kernelI...``.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from kinetoscope.core.text.wording import sanitize

_ANONYMOUS_NAMESPACE = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_ARGUMENTS = re.compile("[<(]")


def strip_arguments(kernel: str) -> str:
    """Return the name of a kernel with its namespaces, without its arguments and those of its template."""
    return _ARGUMENTS.split(_ANONYMOUS_NAMESPACE.sub("", kernel), maxsplit=1)[0]


COPY = r"(?i)^(memcpy |mem(ory_)?copy_|copy(host|device)to)"
"""Names of copies, also of those that ROCm reports as kernels.

Those are ``MEMORY_COPY_HOST_TO_DEVICE`` of rocprofiler-sdk, which Kineto has as a kernel before its pull request 1295,
and ``CopyHostToDevice`` of roctracer.
"""

COPY_TO_DEVICE = r"(?i)^(memcpy (htod|[hm]2d)\b|mem(ory_)?copy_host_to_device|copyhosttodevice)"
"""Names of copies from the CPU to a device: ``HtoD`` of CUDA and ROCm, ``M2D`` and, from pinned memory, ``H2D`` of XPU.
"""

COPY_TO_HOST = r"(?i)^(memcpy (dtoh|d2[hm])\b|mem(ory_)?copy_device_to_host|copydevicetohost)"
"""Names of copies from a device to the CPU."""

COPY_OF_PINNED_MEMORY = r"(?i)^memcpy (htod \(pinned|h2d)\b"
"""Names of copies to a device from memory that is known to be pinned. ROCm does not report it."""


class KernelFamily(NamedTuple):
    """Communication kernels of one library.

    ``pattern`` is found in a kernel's name without arguments; ``source`` is where the library defines the names.
    """

    pattern: str
    source: str


_WORD_START = r"(?:^|[^a-z])"
"""Start of a word in a name; in a mangled name, it follows the number of its letters."""

COMMUNICATION_KERNELS = (
    KernelFamily(
        _WORD_START + "(nccl|rccl|msccl)", "NCCL, RCCL, which keeps NCCL's names, and MSCCL++, also with NCCL-EP"
    ),
    KernelFamily(_WORD_START + "oneccl", "oneCCL"),
    KernelFamily(_WORD_START + "(nvshmem|rocshmem)|_on_stream_kernel", "NVSHMEM: nvshmemi_h_to_d_*_defs.cuh; rocSHMEM"),
    KernelFamily(
        _WORD_START + "(deep_?ep|uccl)|inter_?node_ll|"
        r"(intranode|internode)(::|\d+)(cached_|notify_|dispatch|combine|barrier|clean_)",
        "DeepEP: csrc/kernels/intranode.cu, internode.cu, internode_ll.cu; copies of it have other outer namespaces",
    ),
    KernelFamily(
        "multimem_(all_gather|(one_shot_)?(all_)?reduce)|"
        r"(^|::|\d)(barrier|put_signal|wait_signal)_kernel|exchangeSplitAndOffset|(^|::|\d)allToAllV",
        "PyTorch's symmetric memory: c10d/symm_mem/CUDASymmetricMemory.cu, CUDASymmetricMemoryOps.cu, "
        "nvshmem_extension.cu",
    ),
    KernelFamily(
        "(one|two)_?shot_?all_?reduce",
        "one- and two-shot all-reduce: PyTorch's symmetric memory; TensorRT-LLM's customAllReduceKernels.cu and "
        "mnnvlAllreduceKernels.cu; FlashInfer",
    ),
    KernelFamily(
        "cross_device_reduce_[12]stage|all_?reduce_prototype",
        "vLLM's custom_all_reduce.cuh and quickreduce, also in SGLang and AITER",
    ),
    KernelFamily(
        "all_?reduce_fusion_kernel|moeA2A|moeAll_?to_?All",
        "TensorRT-LLM's allReduceFusionKernels.cu, moeAllReduceFusionKernels.cu, moeAlltoAllKernels.cu; FlashInfer",
    ),
    KernelFamily("userbuffers_", "userbuffers of Transformer Engine and TensorRT-LLM: userbuffers.cu"),
    KernelFamily(_WORD_START + r"Ep(Dispatch|Combine)\w*Kernel", "AMD's MORI-EP: intranode.hpp, internode.hpp"),
)
"""The known libraries. Kernels of torch's collectives also have the collective's name in their args."""

_KNOWN = re.compile("|".join(f"(?:{family.pattern})" for family in COMMUNICATION_KERNELS), re.IGNORECASE)
_CANDIDATE = re.compile(
    r"(?<![A-Za-z])(?i:all_?reduce|all_?gather|all_?to_?all|all2all|a2a|reduce_?scatter|send_?recv|multimem|nvls)"
    "|All_?(?:Reduce|Gather|To_?All)|ReduceScatter|SendRecv"
)
_WITHIN_A_DEVICE = re.compile(r"(?i)(warp|block|thread|quad)_?all_?reduce")
_NAMED_AFTER_OPERATORS = re.compile("triton_[a-z]+_fused_")
"""Inductor names a kernel after the operators around it, so also after a collective whose result it reads."""

_MAX_CACHED_NAMES = 1 << 14


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def is_communication(name: str) -> bool:
    """Return whether the kernel of this name is one of `COMMUNICATION_KERNELS`."""
    base_name = strip_arguments(name)
    return _KNOWN.search(base_name) is not None and _NAMED_AFTER_OPERATORS.match(base_name) is None


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def may_be_communication(name: str) -> bool:
    """Return whether a kernel that is none of `COMMUNICATION_KERNELS` may communicate, by its name."""
    base_name = strip_arguments(name)
    is_candidate = _CANDIDATE.search(base_name) is not None and _WITHIN_A_DEVICE.search(base_name) is None
    return is_candidate and _NAMED_AFTER_OPERATORS.match(base_name) is None and not is_communication(name)


def build_communication_notes(kernels: Iterable[str]) -> list[str]:
    """Return a sentence on compute kernels whose names look like communication; none if there are no such kernels."""
    found = [name for name in kernels if may_be_communication(name)]
    if not found:
        return []
    names = ", ".join(sanitize(strip_arguments(name).removeprefix("void ").strip()) for name in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return [
        f"Communication is a lower bound: these kernels look like communication of an unknown library, and count as "
        f"compute: {names}{more}."
    ]
