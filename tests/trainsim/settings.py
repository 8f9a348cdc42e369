"""Settings of a simulated run: its size and shape, its faults, and removed costs."""

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal[
    "slow_loader",
    "late_host",
    "late_device",
    "items",
    "pageable_copies",
    "small_kernels",
    "slow_launches",
    "slow_network",
    "gc",
    "leak",
    "slow_python",
    "recompilation",
    "float32",
    "float64",
    "idle_gaps",
    "profiler_cost",
    "blocked",
    "preempted",
    "network_hiccup",
    "slow_copies",
    "unequal_batches",
    "unbalanced_experts",
    "cpu_optimizer",
]
Phase = Literal["forward", "backward", "optimizer"]
Layout = Literal["data", "sharded", "fsdp", "tensor", "experts", "pipeline"]
StepSpans = Literal["ProfilerStep", "event/batch", "both"]
Ideal = Literal["data", "sync", "launch", "transfer", "copy", "python", "blocked", "gc", "compile"]

FINDINGS: dict[FaultKind, str] = {
    "slow_loader": "input_bound",
    "late_host": "straggler",
    "late_device": "straggler",
    "items": "synchronisation",
    "pageable_copies": "exposed_copy",
    "small_kernels": "small_kernels",
    "slow_launches": "host_bound",
    "slow_network": "exposed_communication",
    "gc": "garbage_collection",
    "leak": "memory_growth",
    "slow_python": "python_overhead",
    "recompilation": "recompilation",
    "float32": "float32_matmul",
    "float64": "float64",
    "idle_gaps": "idle_gaps",
    "profiler_cost": "profiler_cost",
    "blocked": "blocked",
    "preempted": "processor_contention",
}

SCENARIO_FINDINGS: dict[FaultKind, str] = {
    "network_hiccup": "exposed_communication",
    "slow_copies": "exposed_copy",
    "unequal_batches": "straggler",
    "unbalanced_experts": "straggler",
    "cpu_optimizer": "host_bound",
}
"""Those that need settings of their own, which only scenarios of the score draw."""

_CAUSES: dict[FaultKind, str] = {"slow_loader": "data", "late_device": "device"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is wrong with a run, in every ``every``-th step of some ranks, or of all if none are named.
    ``first`` is which of these it begins with: faults of two ranks can alternate. It strikes from step ``since`` on. A
    pause of the loop (a late host, a GC pause, a blocked or preempted thread, the profiler, a recompilation) comes
    ``at`` the start of a step, before the forward pass, or at its end, after the loss was read.

    ``cost_ns`` is what it takes where it strikes: of a slow loader more for one batch; of a late rank more in one step;
    of a copy, a pause, a blocked or preempted thread, or the profiler its length; of slow launches more for each; of
    slow Python more between two operators; of a slow network more for each collective; of float32 and float64 more for
    each matrix product; of idle gaps the time before each product in which the device does nothing, for no reason that
    a trace shows; of a network hiccup more for the first collective of a step; of slow copies their length; of unequal
    batches and unbalanced experts the compute time by which ranks differ in a step, at most; of an optimizer on the CPU
    its length. With a ``layer``, it strikes only there: pauses, leaks, copies, tiny kernels and ``.item()`` in its
    forward pass, slow Python, slow launches and wider matrix products wherever it computes. ``count`` is how many calls
    of ``.item()`` or tiny kernels there are in a step, ``num_bytes`` what a step leaks.
    """

    kind: FaultKind
    cost_ns: int = 0
    ranks: tuple[int, ...] = ()
    every: int = 1
    first: int = 0
    since: int = 0
    at: Literal["start", "end"] = "start"
    count: int = 1
    num_bytes: int = 0
    layer: int | None = None

    def strikes(self, rank: int, step: int) -> bool:
        return step >= self.since and step % self.every == self.first and (not self.ranks or rank in self.ranks)

    @property
    def finding(self) -> str:
        """The kind of finding that names it."""
        return "straggler" if self.cause else (FINDINGS | SCENARIO_FINDINGS)[self.kind]

    @property
    def cause(self) -> str | None:
        """Why its ranks are late; None where it is all ranks' fault."""
        return _CAUSES.get(self.kind, "host") if self.ranks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One simulated run. The same settings give the same run, to the byte."""

    seed: int = 0
    num_ranks: int = 2
    num_steps: int = 10
    """Recorded in each cycle."""
    num_cycles: int = 1
    num_warmup_steps: int = 3
    """Before each cycle, not recorded: what they left on the device is in flight when the recording starts."""
    step_ns: int = 3_000_000
    """About how long a step without a fault takes."""
    num_layers: int | None = None
    """From the length of a step, if not given."""
    has_device: bool = True
    num_gloo_threads: int = 1
    """Without a device: so many collectives are under way at the same time, as torch has two; 1 or 2."""
    layout: Layout = "data"
    step_spans: StepSpans = "ProfilerStep"
    communicates_by: Literal["NCCL", "symmetric memory"] = "NCCL"
    """Kernels that reduce gradients. NCCL's have a stream of their own and carry arguments. PyTorch's kernels on
    symmetric memory are on the compute stream, and only their names identify them."""
    transfer_share: float = 0.015
    """The share of a step that a collective takes once all its ranks have come to it, on average."""
    num_microbatches: int = 3
    """Microbatches of a pipeline."""
    pipeline: Literal["GPipe", "1F1B"] = "GPipe"
    """The schedule of a pipeline. In 1F1B all stages are in one group, and calls name their source and destination."""
    num_accumulated: int = 1
    """Batches whose gradients a step adds up before it reduces them; each is fetched within the step."""
    optimizes_every: int = 1
    """Steps from one that reduces gradients and runs the optimizer to the next; the others only add up gradients."""
    expert_share: float = 0.0
    """The share of compute that experts do between two all-to-alls of each layer; 0: no experts, and one all-to-all."""
    has_recomputation: bool = False
    """Activations are recomputed in backward (activation checkpointing)."""
    has_modules: bool = False
    """Calls of modules are recorded, ``Model`` and a ``Layer`` for each layer, and autograd's sequence numbers."""
    matmul_kernel: str | None = None
    """The name of bfloat16 matmul kernels, if another than usual."""
    num_workers: int = 2
    """Workers of each rank's loader; 0: the loop builds its batches itself."""
    fetch_ns: int = 15_000
    """Duration of the fetch of a batch that is ready."""
    loader_noise: float = 0.0
    """Maximal deviation of slow batches from their fault's cost, as a share of it."""
    num_ahead: int = 2
    """Batches that each worker prefetches."""
    evaluates_every: int = 0
    """Steps from one evaluation to the next; only with steps that are ``event/batch``."""
    evaluates: Literal["between steps", "within a step"] = "between steps"
    evaluates_on_device: bool = False
    """An evaluation launches kernels, and does not wait for them."""
    reads_loss: Literal["never", "each step", "a step late"] = "a step late"
    reads_loss_every: int = 1
    """Steps from one that reads a loss to the next."""
    max_launches: int = 0
    """Launches that a device queues before the CPU has to wait for one of them; 0: no limit."""
    has_copies_beside: bool = False
    """Batches are copied to the device on a stream of their own, and nothing waits for it."""
    has_prefetched_copies: bool = False
    """A stream of its own copies each batch to the device during the step before, and compute waits for it."""
    has_cuda_graph: bool = False
    has_eager_head: bool = False
    """A small matmul comes after the CUDA graph, launched by an operator of its own."""
    num_closure_calls: int = 0
    """Calls of the optimizer's closure with forward and backward per step; 0: forward and backward come before it."""
    markers: tuple[Phase, ...] = ()
    """The phases around which the loop has a marker."""
    has_torch: bool = True
    """torch recorded; without it a trace has only our own spans."""
    kernel_gap_ns: int = 1_000
    """The time between two compute kernels of a stream, at least."""
    overlap_ns: int = 0
    """Maximal overlap of a compute kernel with the next one of its stream, as with programmatic dependent launch; 0:
    kernels of a stream never overlap."""
    overlap_share: float = 1.0
    """The share of compute kernels that start before the previous one has ended."""
    noise: float = 0.03
    """Maximal deviation of durations, as a share of them."""
    jitter_ns: int = 0
    """Maximal difference between the ends of one collective."""
    ranks_per_host: int = 8
    offset_ns: int = 0
    """Maximal offset of the clocks of ranks from rank 0's."""
    drift_ppm: float = 0.0
    missing_ranks: tuple[int, ...] = ()
    """Ranks whose trace is lost."""
    truncated: tuple[tuple[int, float], ...] = ()
    """Ranks whose trace files are cut off, each with the share of the file that is there."""
    late_ranks: tuple[int, ...] = ()
    """Ranks whose recording began in the middle of the first step, after ``num_missed_calls`` collectives."""
    num_missed_calls: int = 1
    has_sequence: bool = True
    """Collectives carry `Seq`."""
    has_kernel_args: bool = True
    """Kernels of collectives name their collective."""
    has_shapes: bool = True
    has_memory: bool = True
    has_stacks: bool = False
    has_sync_events: bool = False
    """There are events of category ``cuda_sync``, which are no device work."""
    has_states: bool = False
    """A sampler recorded the states of the loop's thread: its samples, and its counter."""
    contention_by: Literal["this job", "other programs"] = "this job"
    """Who uses the cores while a loop is preempted."""
    workers_do: Literal["nothing", "compute", "wait"] = "nothing"
    """Samples of workers while they build batches; ``nothing`` if they are not sampled."""
    faults: tuple[Fault, ...] = ()
    removed: tuple[int, ...] = ()
    """Which of the faults are gone in recorded steps."""
    ideal: tuple[Ideal, ...] = ()
    """Parts that take no time in recorded steps."""
    faster: tuple[tuple[str, float], ...] = ()
    """Operators and kernels, by name, that are so many times as fast in recorded steps; below 1, slower."""

    def __post_init__(self) -> None:
        if self.layout in ("tensor", "pipeline") and self.num_ranks % 2:
            raise ValueError(f"The layout {self.layout} needs an even number of ranks, not {self.num_ranks}.")
        if self.evaluates_every and self.step_spans == "ProfilerStep":
            raise ValueError("An evaluation between steps needs steps that are event/batch.")
        if self.communicates_by == "symmetric memory" and (
            not self.has_device or self.layout not in ("data", "tensor")
        ):
            raise ValueError("Symmetric memory needs a device, and the layout data or tensor.")
        if not self.has_device and (self.layout != "data" or self.has_cuda_graph):
            raise ValueError("A run without a device has the layout data, and no CUDA graph.")

        if self.num_accumulated > 1 and (self.step_spans != "ProfilerStep" or self.layout == "pipeline"):
            raise ValueError("Gradients add up within a step that is a ProfilerStep, and not of a pipeline.")
        if self.optimizes_every > 1 and self.has_memory:
            raise ValueError("Memory is not simulated where gradients add up over steps.")
        if self.num_closure_calls and (self.layout == "pipeline" or self.has_cuda_graph):
            raise ValueError("A closure has one forward and backward pass, which a pipeline and a CUDA graph have not.")
        if not self.has_torch and (self.has_device or self.step_spans != "event/batch"):
            raise ValueError("Without torch there are no devices, and steps are event/batch.")

    @property
    def layers(self) -> int:
        return self.num_layers or max(2, min(6, self.step_ns // 600_000))

    @property
    def first_step(self) -> int:
        """The first recorded step."""
        return self.num_warmup_steps

    def is_recorded(self, step: int) -> bool:
        return self.recorded_cycle(step) is not None

    def recorded_cycle(self, step: int) -> int | None:
        """Which cycle records a step, or None."""
        cycle, place = divmod(step, self.num_warmup_steps + self.num_steps)
        return cycle if place >= self.num_warmup_steps else None

    @property
    def total_steps(self) -> int:
        return self.num_cycles * (self.num_warmup_steps + self.num_steps)

    def faults_at(self, rank: int, step: int) -> list[Fault]:
        """Return the faults of a rank in a step."""
        gone = self.removed if self.is_recorded(step) else ()
        return [fault for index, fault in enumerate(self.faults) if index not in gone and fault.strikes(rank, step)]

    def is_ideal(self, what: Ideal, step: int) -> bool:
        return what in self.ideal and self.is_recorded(step)
