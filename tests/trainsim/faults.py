"""Faults in the program of one rank: pauses, tiny kernels, leaks and calls of ``.item()``."""

from typing import Literal

from trainsim.actions import Allocate, BlockingCopy, Close, Launch, Open, Synchronize, Work
from trainsim.engine import Kernel
from trainsim.settings import Fault, FaultKind
from trainsim.states import BLOCKED, STARVED
from trainsim.writer import AFTER_NS, BEFORE_NS, COMPUTE, LATENCY_NS, PYTHON_NS, SYNC_NS, Writer

_STATES: tuple[tuple[FaultKind, str], ...] = (("blocked", BLOCKED), ("preempted", STARVED))


def write_faults_of_layer(writer: Writer) -> None:
    """Write what strikes only in the forward pass of this layer."""
    write_pauses(writer, "start")
    write_small_kernels(writer)
    write_leak(writer)
    if (fault := writer.fault("items")) and writer.settings.has_device:
        write_items(writer, fault.count)
    if (fault := writer.fault("pageable_copies")) and writer.settings.has_device:
        with writer.span("aten::to", phase="forward"), writer.span("aten::copy_"):
            _write_pageable_copy(writer, fault)


def write_pauses(writer: Writer, at: Literal["start", "end"]) -> None:
    """Write the pauses of the loop at the start of a step, before the model, or at its end."""
    if fault := writer.pause("late_host", at):
        writer.add(Work(0 if writer.is_ideal("python") else fault.cost_ns))
    for kind, category in _STATES:
        if fault := writer.pause(kind, at):
            with writer.span(category, category):
                writer.add(Work(0 if kind == "blocked" and writer.is_ideal("blocked") else fault.cost_ns))
    if fault := writer.pause("gc", at):
        with writer.span("gc/generation 2", "gc"):
            writer.add(Work(0 if writer.is_ideal("gc") else fault.cost_ns))
    if fault := writer.pause("profiler_cost", at):
        with writer.span("kinetoscope/drain", "kinetoscope"):
            writer.add(Work(fault.cost_ns))
    if fault := writer.pause("recompilation", at):
        fields = '"function": "forward", "guard": "tensor \'x\' size mismatch at index 0"'
        with writer.span("compile/forward", "compile", fields):
            writer.add(Work(0 if writer.is_ideal("compile") else fault.cost_ns))


def write_small_kernels(writer: Writer) -> None:
    fault = writer.fault("small_kernels")
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
    tiny = Kernel(name, "kernel", "compute", 1_000, gap_ns=500)
    python_ns = 0 if writer.is_ideal("python") else PYTHON_NS
    for _ in range(fault.count if fault else 0):
        writer.add(Work(python_ns), Open("aten::add_", phase="forward"), Work(BEFORE_NS))
        writer.add(
            Launch("cudaLaunchKernel", COMPUTE, (writer.overlap(tiny),), writer.launch_ns, LATENCY_NS),
            Work(AFTER_NS),
            Close(),
        )


def write_leak(writer: Writer) -> None:
    if (fault := writer.fault("leak")) and writer.settings.has_memory:
        with writer.frame("train.py(36): remember"), writer.span("aten::clone", phase="forward"):
            writer.add(Work(1_000), Allocate(f"leak {writer.step}", fault.num_bytes), Work(1_000))


def write_items(writer: Writer, count: int) -> None:
    """Calls of ``.item()``: a small copy, and a wait for all that came before it."""
    copy = Kernel("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", "copy", 1_500, num_bytes=4)
    for _ in range(count):
        with writer.span("aten::item", phase="forward"), writer.span("aten::_local_scalar_dense"):
            writer.add(Work(1_000))
            if writer.settings.has_device:
                writer.add(Launch("cudaMemcpyAsync", COMPUTE, (copy,), writer.launch_ns, LATENCY_NS))
                waits = not writer.is_ideal("sync")
                writer.add(Synchronize("cudaStreamSynchronize", SYNC_NS, stream=COMPUTE, waits=waits))
            writer.add(Work(500))
        writer.python(1_500)


def _write_pageable_copy(writer: Writer, fault: Fault) -> None:
    copy_ns = 0 if writer.is_ideal("copy") else fault.cost_ns
    copy = Kernel("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", "copy", copy_ns, num_bytes=1_000_000)
    if writer.is_ideal("sync"):
        writer.add(Launch("cudaMemcpyAsync", COMPUTE, (copy,), writer.launch_ns, LATENCY_NS))
    else:
        writer.add(BlockingCopy(COMPUTE, copy, writer.launch_ns, LATENCY_NS))
