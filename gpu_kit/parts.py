"""Parts of the kit in order of value, each with its tasks and time limits."""

from dataclasses import dataclass, field

TIME_LIMIT_S = 480.0
"""The time limit of the whole kit on a GPU."""


@dataclass(frozen=True)
class Task:
    """A process of its own: ``python -m MODULE FOLDER ARGUMENTS``, whose folder is kept when it ends.

    Attributes:
        cpu: whether the task runs with ``--cpu`` too.
    """

    name: str
    module: str
    limit_s: float
    arguments: tuple[str, ...] = ()
    cpu: bool = True


@dataclass(frozen=True)
class Part:
    """Tasks that share a time limit and an archive. Time that a part leaves is for the next ones."""

    name: str
    title: str
    limit_s: float
    tasks: tuple[Task, ...] = field(default=())


@dataclass(frozen=True)
class Fault:
    """A program of ``gpu_kit/faults`` and the finding that it should lead to.

    Attributes:
        kinds: the kinds of findings that name the fault, the expected one first; empty for a healthy program.
        cpu: whether the program runs without CUDA.
        has_saving: whether fixing the fault makes a step faster.
        limit_s: the time limit of its task, with both times and the recording.
    """

    program: str
    title: str
    kinds: tuple[str, ...] = ()
    cpu: bool = False
    has_saving: bool = True
    limit_s: float = 45


FAULTS = (
    Fault("launch_bound", "Launch-bound: a deep, narrow model in eager mode", ("host_bound", "small_kernels")),
    Fault("item_every_step", "`.item()` on each loss of a batch", ("synchronisation",)),
    Fault("pageable_copies", "Batches in pageable memory", ("exposed_copy", "synchronisation")),
    Fault("float64", "Samples and model in float64", ("float64",), cpu=True),
    Fault("float32_matmul", "float32 matmuls without tensor cores", ("float32_matmul",)),
    Fault("small_kernels", "An optimizer that updates one parameter at a time", ("small_kernels", "host_bound"), True),
    Fault("loader_bound", "A DataLoader without workers", ("input_bound",), cpu=True),
    Fault("graph_recapture", "A CUDA graph that is captured in every step", ("host_bound", "python_overhead")),
    Fault(
        "graph_breaks",
        "A compiled model with a graph break in each layer",
        ("synchronisation", "host_bound"),
        limit_s=70,  # it compiles several times
    ),
    Fault("growing_memory", "A list of losses that keeps their graphs", ("memory_growth",), True, has_saving=False),
    Fault("out_of_memory", "Kept outputs that fill the memory", ("memory_growth", "memory_limit"), has_saving=False),
    Fault("exposed_copies", "Pinned copies that no kernel overlaps", ("exposed_copy",)),
)
HEALTHY = (
    Fault("healthy_transformer", "A transformer in bfloat16, compute-bound", cpu=True),
    Fault("healthy_convnet", "A convolutional network in bfloat16, channels last"),
    Fault("healthy_loader", "A DataLoader with workers and pinned memory", cpu=True),
    Fault("healthy_graph", "A CUDA graph that is captured once"),
)
PROGRAMS = {fault.program: fault for fault in (*FAULTS, *HEALTHY)}

STEP_MS = (5, 20, 100)
"""Lengths of the steps in which overhead is measured."""

PARTS = (
    # The first import of torch on a new machine reads gigabytes.
    Part("environment", "Environment", 60, (Task("versions", "gpu_kit.tasks.environment", 60),)),
    Part("tests", "tests/gpu", 75, (Task("tests", "gpu_kit.tasks.gpu_tests", 75),)),
    Part(
        "hardware",
        "NVML and MFU",
        40,
        (
            Task("nvml", "gpu_kit.tasks.nvml", 20, cpu=False),
            Task("matmul", "gpu_kit.tasks.mfu", 20, ("matmul",)),
            Task("transformer", "gpu_kit.tasks.mfu", 20, ("transformer",)),
        ),
    ),
    Part(
        "faults",
        "Planted faults",
        180,
        tuple(Task(name, "gpu_kit.tasks.fault", fault.limit_s, (name,), fault.cpu) for name, fault in PROGRAMS.items()),
    ),
    Part(
        "overhead",
        "Overhead",
        70,
        (
            Task("first_window_kinetoscope", "gpu_kit.tasks.first_window", 15, ("kinetoscope",)),
            Task("first_window_torch", "gpu_kit.tasks.first_window", 15, ("torch",)),
            *(Task(f"step_{ms}_ms", "gpu_kit.tasks.overhead", 20, (str(ms),), cpu=ms == 5) for ms in STEP_MS),
        ),
    ),
    Part("traces", "Small traces", 20, (Task("traces", "gpu_kit.tasks.small_traces", 20),)),
    Part("ranks", "Two processes", 35, (Task("two_ranks", "gpu_kit.tasks.two_ranks", 35),)),
)
"""In order of value. The limits add up to `TIME_LIMIT_S`."""
