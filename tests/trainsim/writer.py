"""Writer of programs: operators, launches and collectives of one rank, with their durations."""

import itertools
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from statistics import fmean
from typing import Literal

from trainsim.actions import (
    Allocate,
    Close,
    Launch,
    Open,
    RecordEvent,
    StartRecording,
    Submit,
    Synchronize,
    WaitForEvent,
    Work,
)
from trainsim.engine import USUAL_GAP_NS, Action, CallKey, Kernel
from trainsim.groups import POINT_TO_POINT, TWO_SHOT_KERNEL, TWO_SHOT_OPERATOR, Collective, Group
from trainsim.settings import Fault, FaultKind, Ideal, Phase, Settings

COMPUTE, BESIDE = "7", "9"
GLOO = ("gloo", "gloo2")
"""The threads of collectives on the CPU, in turn."""


PYTHON_NS = 3_000
"""Time that Python takes between two operators."""
BEFORE_NS, AFTER_NS = 1_500, 700
"""CPU time of an operator around its work."""
LAUNCH_NS, LATENCY_NS = 3_800, 4_700
EVENT_NS = 900
SYNC_NS = 2_500
SUBMIT_NS = 20_000

_TYPES = {"bfloat16": "c10::BFloat16", "float32": "float", "float64": "double"}
_NUM_BYTES = {"bfloat16": 2, "float32": 4, "float64": 8}
_PRODUCTS = {
    "bfloat16": "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn",
    "float32": "ampere_sgemm_128x64_tn",
    "float64": "ampere_dgemm_128x64_tn",
}
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 2ul>>(int)"


@lru_cache(maxsize=1_000)
def _shapes_text(shapes: tuple[tuple[int, ...], ...], dtype: str) -> str:
    return f'"Input Dims": {json.dumps(shapes)}, "Input type": {json.dumps([dtype] * len(shapes))}'


class _Closing:
    """Closes a span where its `with` ends."""

    def __init__(self, actions: list[Action]) -> None:
        self._actions = actions

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._actions.append(Close())


class Writer:
    """Writes the actions of one rank, step by step. What is drawn by chance is the same with and without a fault."""

    def __init__(self, settings: Settings, rank: int, groups: list[Group]) -> None:
        self.settings, self.rank = settings, rank
        self.world, *others = groups
        self.groups = [group for group in others if rank in group.ranks]
        self.actions: list[Action] = []
        self.calls_to_miss = 0
        """Number of collectives before the recording starts, where it starts late."""
        self._closing = _Closing(self.actions)
        self._sequences: dict[str, int] = {}
        self._autograd: dict[str, int] = {}
        self._num_differentiable = 0
        self._pairs: dict[tuple[int, int], int] = {}
        self.begin_step(0)

    def begin_step(self, step: int) -> None:
        """From here on, durations and faults are this step's."""
        settings = self.settings
        self.step = step
        self._draw = random.Random((settings.seed * 100_003 + self.rank) * 100_003 + step)
        self._shared = random.Random(settings.seed * 100_003 + step)
        # Of its own, so that the other draws of a run are the same with and without overlap.
        self._overlap_draw = random.Random((settings.seed * 100_003 + self.rank) * 100_003 - step)
        self._faults = {fault.kind: fault for fault in settings.faults_at(self.rank, step)}
        self._faster = dict(settings.faster) if settings.is_recorded(step) else {}
        self.layer: int | None = None
        self.hiccup_ns = self.cost_ns("network_hiccup")
        self.extra_compute_ns = self._share_of_uneven("unequal_batches", step)

    @contextmanager
    def in_layer(self, layer: int) -> Iterator[None]:
        """Write what a layer does, while the `with` lasts."""
        self.layer = layer
        yield
        self.layer = None

    def fault(self, kind: FaultKind) -> Fault | None:
        """Return the fault of this kind that strikes this rank in this step, in this layer or outside of all."""
        fault = self._faults.get(kind)
        return fault if fault and fault.layer == self.layer else None

    def _fault_around(self, kind: FaultKind) -> Fault | None:
        """Return the fault of this kind that strikes this rank here in this step, also if it strikes everywhere."""
        fault = self._faults.get(kind)
        return fault if fault and fault.layer in (None, self.layer) else None

    def cost_ns(self, kind: FaultKind) -> int:
        """Return the cost of the fault of this kind, where it strikes; else 0."""
        fault = self._fault_around(kind)
        return fault.cost_ns if fault else 0

    def pause(self, kind: FaultKind, at: Literal["start", "end"]) -> Fault | None:
        """Return the fault of this kind that pauses the loop here in this step."""
        fault = self.fault(kind)
        return fault if fault and fault.at == at else None

    @property
    def _dtype(self) -> str:
        wider = next((kind for kind in ("float64", "float32") if self._fault_around(kind)), None)
        return wider or ("bfloat16" if self.settings.has_device else "float32")

    @property
    def is_reducing(self) -> bool:
        """Return whether this step reduces gradients and runs the optimizer."""
        return (self.step + 1) % self.settings.optimizes_every == 0

    def expert_ns(self, layer: int) -> int:
        """Return the compute time that uneven loads of a layer's experts add on this rank."""
        layers = 2 * self.settings.layers  # forward and backward
        return self._share_of_uneven("unbalanced_experts", self.step * layers + layer) // layers

    def _share_of_uneven(self, kind: FaultKind, turn: int) -> int:
        """Return this rank's share of work that is uneven among ranks in this step; without the fault, an even share.

        The one that has most changes from turn to turn.
        """
        fault = next((fault for fault in self.settings.faults if fault.kind == kind), None)
        if fault is None:
            return 0
        draw = random.Random(self.settings.seed * 100_003 + turn)
        shares = [draw.random() ** 2 for _ in self.world.ranks]
        shares = [share / max(shares) for share in shares]
        is_uneven = kind in self._faults
        return int(fault.cost_ns * (shares[self.rank] if is_uneven else fmean(shares)))

    def is_ideal(self, what: Ideal) -> bool:
        return self.settings.is_ideal(what, self.step)

    @property
    def launch_ns(self) -> int:
        """Return the duration of an ordinary call that puts something on a stream."""
        return 0 if self.is_ideal("launch") else LAUNCH_NS

    def vary(self, duration_ns: float) -> int:
        """A duration as it is this time."""
        return int(duration_ns * (1 + self.settings.noise * (2 * self._draw.random() - 1)))

    # -- on the host

    def add(self, *actions: Action) -> None:
        self.actions.extend(actions)

    def span(self, name: str, category: str = "cpu_op", args: str = "", phase: str | None = None) -> _Closing:
        """Return a span, for as long as the `with` lasts."""
        self.add(Open(name, category, args, phase))
        return self._closing

    def marker(self, phase: Phase) -> _Closing:
        """A marker around a phase, where the loop has one."""
        return self.span(phase, "marker") if phase in self.settings.markers else _Closing([])

    def module(self, name: str, class_name: str) -> _Closing:
        """Return the call of a module, where these are recorded."""
        if not self.settings.has_modules:
            return _Closing([])
        depth = name.count(".")
        return self.span(name, "module", f'"epoch": 0, "batch": {self.step}, "class": "{class_name}", "depth": {depth}')

    def sequence(self, key: str, *, is_backward: bool = False) -> str:
        """Return the args with autograd's number of an operator, a new one in forward, where these are recorded."""
        if not self.settings.has_modules:
            return ""
        if not is_backward:
            self._autograd[key] = self._num_differentiable = self._num_differentiable + 1
        return f'"Sequence number": {self._autograd[key]}, "Fwd thread id": {int(is_backward)}'

    def frame(self, name: str) -> _Closing:
        """A Python function, where stacks are recorded."""
        return self.span(name, "python_function") if self.settings.has_stacks else _Closing([])

    def python(self, duration_ns: int | None = None) -> None:
        """Run the loop's Python to its next operator, or for the given time."""
        if duration_ns is None:
            duration_ns = self.vary(PYTHON_NS) + self.cost_ns("slow_python")
        self.add(Work(0 if self.is_ideal("python") else duration_ns))

    def operator(self, *names: str, kernel: Kernel, phase: str | None = None, args: str = "", keeps: str = "") -> None:
        """Write nested operators; the innermost does the work: on the device, else by itself.

        Operators inside of a faster or slower one are so, too; of two, the inner one counts. ``keeps`` is a name for
        the memory that it takes.
        """
        speeds = [1.0] * len(names)
        if self._faster:
            speeds = list(itertools.accumulate(names, lambda speed, name: self._faster.get(name, speed), initial=1.0))
            speeds = speeds[1:]
        for name, speed in zip(names, speeds, strict=True):
            before_ns = int(self.vary(BEFORE_NS) / speed)
            self.add(Open(name, "cpu_op", args, phase if name is names[0] else None), Work(before_ns))
        if keeps and self.settings.has_memory:
            self.add(Allocate(keeps, 8_000_000))
        speed = self._faster.get(kernel.name, speeds[-1])
        if speed != 1:
            kernel = kernel._replace(duration_ns=int(kernel.duration_ns / speed))
        if self.settings.has_device:
            self.launch("cudaLaunchKernel", kernel, speed=speeds[-1])
        else:
            self.add(Work(kernel.duration_ns))
        for speed in reversed(speeds):
            self.add(Work(int(AFTER_NS / speed)), Close())

    def shapes(self, *shapes: tuple[int, ...]) -> str:
        """Return the shapes of an operator's arguments, as Kineto shows them, where they are recorded."""
        return _shapes_text(shapes, _TYPES[self._dtype]) if self.settings.has_shapes else ""

    # -- on the device

    def product(self, duration_ns: float, *factors: tuple[int, int], module: str = "") -> Kernel:
        """Return a product of two matrices. What a slow device takes more is spread over all products of a step."""
        late_ns = self.cost_ns("late_device") // (3 * self.settings.layers)
        extra_ns = self.cost_ns("float32") + self.cost_ns("float64") + late_ns
        extra_ns += self.extra_compute_ns // (3 * self.settings.layers * self.settings.num_accumulated)
        name = _PRODUCTS[self._dtype]
        if self.settings.matmul_kernel and self._dtype == "bfloat16":
            name = self.settings.matmul_kernel
        kernel = Kernel(name, "kernel", "compute", self.vary(duration_ns) + extra_ns, module=module)
        if factors and self.settings.has_shapes:
            (rows, inner), (_, columns) = factors
            size = rows * inner + inner * columns + rows * columns
            kernel = kernel._replace(flops=2 * rows * inner * columns, least_bytes=size * _NUM_BYTES[self._dtype])
        gap_ns = self.cost_ns("idle_gaps")
        return kernel._replace(gap_ns=kernel.gap_ns + gap_ns) if gap_ns else kernel

    def elementwise(self, what: str, duration_ns: float, module: str = "") -> Kernel:
        """Return a kernel that does the same to each element."""
        return Kernel(_ELEMENTWISE.format(what), "kernel", "compute", self.vary(duration_ns), module=module)

    def launch(self, name: str, *kernels: Kernel, stream: str = COMPUTE, speed: float = 1.0) -> None:
        duration_ns = int((self.vary(LAUNCH_NS) + self.cost_ns("slow_launches")) / speed)
        latency_ns = self.vary(LATENCY_NS)
        kernels = tuple(map(self.overlap, kernels)) if stream == COMPUTE else kernels
        self.add(Launch(name, stream, kernels, 0 if self.is_ideal("launch") else duration_ns, latency_ns))

    def overlap(self, kernel: Kernel) -> Kernel:
        """Let a kernel start as soon after the previous one of its stream as this run's do, or before that has ended.

        A kernel with a longer gap before it has a reason for that.
        """
        settings, draw = self.settings, self._overlap_draw
        if kernel.gap_ns > USUAL_GAP_NS or kernel.kind != "compute":
            return kernel
        share, overlap_ns = draw.random(), draw.randint(1, max(1, settings.overlap_ns))
        if settings.overlap_ns and share < settings.overlap_share:
            return kernel._replace(gap_ns=-overlap_ns)
        return kernel if kernel.gap_ns <= settings.kernel_gap_ns else kernel._replace(gap_ns=settings.kernel_gap_ns)

    # -- between streams and ranks

    def wait_for(self, group: Group) -> None:
        """Later compute waits for the work that the group has so far."""
        if self.settings.communicates_by == "symmetric memory":  # it is on the same stream
            return
        self.wait_for_event(self.event_of(group))

    def event_of(self, group: Group) -> str:
        """Return the event that stands for all that the group has been given so far."""
        self.add(RecordEvent(f"group {group.name}", group.stream, EVENT_NS))
        return f"group {group.name}"

    def wait_for_event(self, event: str, stream: str = COMPUTE) -> None:
        self.add(WaitForEvent(event, stream, EVENT_NS))

    def collective(self, collective: Collective, group: Group, size: int, phase: str | None = None) -> None:
        """This rank's part in a call of a group; it waits for what the compute stream has been given so far."""
        num_elements = 1_000_000 * (size + 1)
        kernel = self._part(collective, group, num_elements)
        if self._is_on_symmetric_memory(collective):
            with self.span(TWO_SHOT_OPERATOR, phase=phase):
                self.add(Work(BEFORE_NS))
                self.launch("cudaLaunchKernel", kernel._replace(name=TWO_SHOT_KERNEL))
                self.add(Work(AFTER_NS))
            return
        if not self.settings.has_device:
            with self.span(collective.operator, args=self.shapes((num_elements,)), phase=phase):
                self.add(Work(BEFORE_NS), Submit(self._gloo_thread(kernel), kernel, SUBMIT_NS), Work(AFTER_NS))
            return
        sequence = kernel.call.sequence if kernel.call and self.settings.has_sequence else None
        fields = group.args(collective, self.rank, num_elements, sequence)
        with self.span(collective.operator, phase=phase), self.span("record_param_comms", args=fields):
            with self.span(collective.annotation, "user_annotation", self.shapes((num_elements,))):
                self.add(RecordEvent("compute", COMPUTE, EVENT_NS))
                self.wait_for_event("compute", group.stream)
                shown = fields if self.settings.has_kernel_args else ""
                self.launch("cudaLaunchKernelExC", kernel._replace(args=shown), stream=group.stream)
                self.add(Work(AFTER_NS))
            self._miss_call()

    def send_or_receive(self, collective: Collective, group: Group, source: int, destination: int) -> str:
        """Write this rank's part in a call of two ranks of a group; return the event of its end.

        Calls of each pair and direction have a stream of their own.
        """
        sequence = self._sequences[group.name] = self._sequences.get(group.name, 0) + 1
        pair = group.ranks.index(source), group.ranks.index(destination)
        number = self._pairs[pair] = self._pairs.get(pair, 0) + 1
        num_elements = 1_000_000
        fields = group.args(collective, self.rank, num_elements, sequence if self.settings.has_sequence else None)
        fields += f', "Src Rank": {pair[0]}, "Dst Rank": {pair[1]}'
        key = f"{group.name}:{pair[0]}->{pair[1]}"
        call = CallKey(key, number, "send", group.num_bytes(collective, num_elements), (source, destination))
        kernel = Kernel(collective.kernel, "kernel", "communication", self._transfer_ns(), args=fields, call=call)
        stream = str(int(group.stream) + 2 * (destination < source) + (self.rank == source))
        arrow = f"{pair[1]}<-{pair[0]}" if self.rank == destination else f"{pair[0]}->{pair[1]}"
        with self.span(collective.operator, phase="forward"), self.span("record_param_comms", args=fields):
            with self.span(f"{collective.annotation} {arrow}", "user_annotation"):
                self.add(RecordEvent("compute", COMPUTE, EVENT_NS))
                if self.rank == source:  # a receive waits for nothing but its peer
                    self.wait_for_event("compute", stream)
                self.launch("cudaLaunchKernelExC", kernel, stream=stream)
                self.add(Work(AFTER_NS))
        self.add(RecordEvent(key, stream, EVENT_NS))
        return key

    def _is_on_symmetric_memory(self, collective: Collective) -> bool:
        return self.settings.communicates_by == "symmetric memory" and collective.name == "allreduce"

    def _gloo_thread(self, kernel: Kernel) -> str:
        assert kernel.call is not None
        return GLOO[kernel.call.sequence % self.settings.num_gloo_threads]

    def _part(self, collective: Collective, group: Group, num_elements: int) -> Kernel:
        settings = self.settings
        sequence = self._sequences[group.name] = self._sequences.get(group.name, 0) + 1
        name = "send" if collective.name in POINT_TO_POINT else collective.name
        transfer_ns, jitter_ns = self._transfer_ns(), self._draw.randint(0, settings.jitter_ns)
        if settings.has_device:
            call = CallKey(group.name, sequence, name, group.num_bytes(collective, num_elements), group.ranks)
            return Kernel(collective.kernel, "kernel", "communication", transfer_ns, call=call, jitter_ns=jitter_ns)
        element_bytes = 8 if self._dtype == "float64" else 4
        call = CallKey(group.name, sequence, name, element_bytes * num_elements, group.ranks)
        annotation, args = collective.annotation.replace("nccl", "gloo"), self.shapes((num_elements,))
        return Kernel(annotation, "user_annotation", "gloo", transfer_ns, args=args, call=call, jitter_ns=jitter_ns)

    def _transfer_ns(self) -> int:
        """Return the duration of a call once all ranks have arrived: the same for all ranks, since their draws are the
        same."""
        # The stages of a pipeline make different calls, and so would draw differently.
        varied = 1.0 if self.settings.layout == "pipeline" else 0.5 + self._shared.random()
        transfer_ns = (
            int(self.settings.step_ns * self.settings.transfer_share * varied)
            + self.cost_ns("slow_network")
            + self.hiccup_ns
        )
        self.hiccup_ns = 0
        return 0 if self.is_ideal("transfer") else transfer_ns

    def _miss_call(self) -> None:
        """Where the recording starts late, it starts after this call has ended, if it is the last one to be missed."""
        if self.calls_to_miss:
            self.calls_to_miss -= 1
            if not self.calls_to_miss:
                self.add(Synchronize("cudaDeviceSynchronize", SYNC_NS), StartRecording())
