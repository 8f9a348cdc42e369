"""The program of one rank: its training loop, from the first step to the last."""

from trainsim.actions import (
    Allocate,
    BlockingCopy,
    Close,
    CloseStep,
    Fetch,
    Launch,
    Open,
    OpenStep,
    RecordEvent,
    StartRecording,
    StopRecording,
    Synchronize,
    WaitForEvent,
    Work,
)
from trainsim.engine import CLOSURE, Action, Kernel
from trainsim.faults import write_items, write_leak, write_pauses, write_small_kernels
from trainsim.groups import Group
from trainsim.model import compute_ns, write_evaluation, write_model, write_zero_grad
from trainsim.settings import Settings
from trainsim.writer import (
    AFTER_NS,
    BEFORE_NS,
    BESIDE,
    COMPUTE,
    EVENT_NS,
    LATENCY_NS,
    PYTHON_NS,
    SYNC_NS,
    Writer,
)

_LOOP_NS = 2_000
"""Time that the loop takes around its fetches and evaluations."""


def build_program(settings: Settings, rank: int, groups: list[Group]) -> list[Action]:
    """Return the whole program: cycles of steps, the first ones of each not recorded."""
    writer = Writer(settings, rank, groups)
    if settings.has_memory:
        writer.add(Allocate("parameters", 400_000_000))
    for step in range(settings.total_steps):
        writer.begin_step(step)
        cycle = settings.recorded_cycle(step)
        if cycle is not None and settings.recorded_cycle(step - 1) != cycle:
            _start_recording(writer)
        _step(writer)
        if cycle is not None and settings.recorded_cycle(step + 1) != cycle:
            _stop_recording(writer)
    return writer.actions


def _start_recording(writer: Writer) -> None:
    settings = writer.settings
    if writer.rank in settings.late_ranks and writer.step == settings.first_step:
        writer.calls_to_miss = settings.num_missed_calls
    else:
        writer.add(StartRecording(), Work(PYTHON_NS))


def _stop_recording(writer: Writer) -> None:
    """Kineto waits for the device; where our own spans are recorded, one says so."""
    has_event_spans = writer.settings.step_spans != "ProfilerStep"
    if has_event_spans:
        writer.add(Open("kinetoscope/stop", "kinetoscope"))
    if writer.settings.has_device:
        writer.add(Synchronize("cudaDeviceSynchronize", SYNC_NS))
    if has_event_spans:
        writer.add(Close())
    writer.add(StopRecording())


def _step(writer: Writer) -> None:
    spans, name = writer.settings.step_spans, f"ProfilerStep#{writer.step}"
    if spans == "ProfilerStep":
        writer.add(OpenStep(name, "user_annotation", writer.step))
        writer.python(_LOOP_NS)
        _fetch(writer)
        _body(writer)
        writer.add(CloseStep())
    elif spans == "both":
        with writer.span(name, "user_annotation"):
            _batch(writer)
    else:
        _batch(writer)
    if writer.calls_to_miss:  # a step without collectives
        writer.calls_to_miss = 0
        writer.add(StartRecording())
    writer.python()


def _batch(writer: Writer) -> None:
    """A batch as our own spans show it: the fetch is before it, an evaluation may follow."""
    settings, fields = writer.settings, f'"epoch": 0, "batch": {writer.step}'
    writer.python(_LOOP_NS)
    with writer.span("event/dataloader", "dataloader", fields, phase="data"):
        _fetch(writer)
    writer.python()
    writer.add(OpenStep("event/batch", "batch", writer.step, fields))
    _body(writer)
    evaluates = settings.evaluates_every and writer.step % settings.evaluates_every == 0
    if evaluates and settings.evaluates == "within a step":
        _evaluation(writer, fields)
    writer.add(CloseStep())
    if evaluates and settings.evaluates == "between steps":
        _evaluation(writer, fields)


def _evaluation(writer: Writer, fields: str) -> None:
    writer.python(_LOOP_NS)
    with writer.span("event/eval", "eval", fields):
        if writer.settings.evaluates_on_device:
            write_evaluation(writer)
        else:
            writer.add(Work(writer.settings.step_ns // 2))


def _fetch(writer: Writer, number: int = 0) -> None:
    kind = "MultiProcessing" if writer.settings.num_workers else "SingleProcess"
    with writer.frame("train.py(20): next_batch"):
        name = f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"
        batch = writer.step * writer.settings.num_accumulated + number
        writer.add(Fetch(name, batch, writer.settings.fetch_ns, waits=not writer.is_ideal("data")))


def _body(writer: Writer) -> None:
    writer.python()
    write_pauses(writer, "start")
    _copy_batch(writer)
    write_small_kernels(writer)
    if not writer.settings.num_closure_calls:
        write_model(writer)
    for number in range(1, writer.settings.num_accumulated):
        _fetch(writer, number)
        _copy_batch(writer)
        write_model(writer, number)
    if writer.is_reducing:
        _optimizer(writer)
    write_leak(writer)
    _read_loss(writer)
    write_pauses(writer, "end")
    writer.python()


def _copy_batch(writer: Writer) -> None:
    """The batch goes to the device: in the background from pinned memory, else while the call waits."""
    if not writer.settings.has_device:
        return
    is_free, num_bytes = writer.is_ideal("copy"), 19_267_584
    duration_ns = writer.vary(writer.settings.step_ns // 100) + writer.cost_ns("slow_copies")
    fault = writer.fault("pageable_copies")
    name = f"Memcpy HtoD ({'Pageable' if fault else 'Pinned'} -> Device)"
    copy_ns = 0 if is_free else fault.cost_ns if fault else duration_ns
    copy = Kernel(name, "gpu_memcpy", "copy", copy_ns, num_bytes=num_bytes)
    writer.python()
    if writer.settings.has_prefetched_copies and writer.step:  # the step before copied this step's batch
        writer.add(WaitForEvent("copied", COMPUTE, EVENT_NS))
    with writer.span("aten::to", phase="forward"), writer.span("aten::_to_copy"), writer.span("aten::copy_"):
        writer.add(Work(BEFORE_NS))
        if fault and not writer.is_ideal("sync"):
            writer.add(BlockingCopy(COMPUTE, copy, writer.launch_ns, LATENCY_NS))
        else:
            stream = BESIDE if writer.settings.has_copies_beside or writer.settings.has_prefetched_copies else COMPUTE
            writer.add(Launch("cudaMemcpyAsync", stream, (copy,), writer.launch_ns, LATENCY_NS))
        writer.add(Work(AFTER_NS))
    if writer.settings.has_prefetched_copies:
        writer.add(RecordEvent("copied", BESIDE, EVENT_NS))


def _optimizer(writer: Writer) -> None:
    writer.python()
    with (
        writer.frame("train.py(30): optimizer_step"),
        writer.marker("optimizer"),
        writer.span("Optimizer.step#SGD.step", "user_annotation", phase="optimizer"),
    ):
        for call in range(writer.settings.num_closure_calls):
            _call_closure(writer, call)
        if fault := writer.fault("cpu_optimizer"):
            _optimize_on_cpu(writer, fault.cost_ns)
            return
        for name in ("aten::_foreach_mul_", "aten::_foreach_add_"):
            writer.python()
            kernel = writer.elementwise(f"multi_tensor_apply<{name}>", 0.01 * compute_ns(writer))
            writer.operator(name, kernel=kernel, keeps=f"{name} of {writer.step}" if writer.step == 1 else "")
        writer.python()
    write_zero_grad(writer)


def _optimize_on_cpu(writer: Writer, duration_ns: int) -> None:
    """Copy gradients to the host, update the weights there, and copy these back."""
    copy_ns, num_bytes = writer.settings.step_ns // 40, 30_000_000
    gradients = Kernel("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", "copy", copy_ns, num_bytes=num_bytes)
    weights = Kernel("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", "copy", copy_ns, num_bytes=num_bytes)
    writer.python()
    with writer.span("aten::copy_"):
        writer.add(Work(BEFORE_NS), Launch("cudaMemcpyAsync", COMPUTE, (gradients,), writer.launch_ns, LATENCY_NS))
        writer.add(Synchronize("cudaStreamSynchronize", SYNC_NS, stream=COMPUTE, waits=not writer.is_ideal("sync")))
    writer.python()
    with writer.span("aten::_fused_adamw_"):
        writer.add(Work(duration_ns))
    writer.python()
    with writer.span("aten::copy_"):
        writer.add(Work(BEFORE_NS), Launch("cudaMemcpyAsync", COMPUTE, (weights,), writer.launch_ns, LATENCY_NS))


def _call_closure(writer: Writer, call: int) -> None:
    """The optimizer calls the user's closure; before another call it computes something itself."""
    if call:
        writer.operator("aten::dot", kernel=writer.elementwise("dot_kernel", 0.01 * compute_ns(writer)))
        write_zero_grad(writer)
    with writer.span("closure", CLOSURE):
        write_model(writer)


def _read_loss(writer: Writer) -> None:
    """Reading the loss of this step stops the loop until the device is done; of the step before, hardly ever."""
    settings = writer.settings
    writer.python()
    if writer.step % settings.reads_loss_every:
        return
    with writer.frame("train.py(33): read_loss"):
        if settings.reads_loss == "each step":
            write_items(writer, 1)
        elif settings.reads_loss == "a step late" and settings.has_device:
            writer.add(RecordEvent(f"loss {writer.step}", COMPUTE, EVENT_NS), Work(1_000))
            event, waits = f"loss {writer.step - settings.reads_loss_every}", not writer.is_ideal("sync")
            writer.add(Synchronize("cudaEventSynchronize", SYNC_NS, event=event, waits=waits))
