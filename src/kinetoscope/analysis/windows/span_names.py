"""Names and categories of spans by their meaning: tables of those that torch and its trainers write into traces."""

from typing import NamedTuple

# -- categories, as Kineto writes them

OPERATORS = ("cpu_op", "Operator")
RUNTIME_CALLS = (
    *("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime", "glow_runtime"),
    *("privateuse1_runtime", "privateuse1_driver", "gcu_runtime", "gcu_driver"),
)
ANNOTATIONS = ("user_annotation",)
ANNOTATIONS_OF_DEVICES = ("gpu_user_annotation",)
SYNCHRONISATIONS = ("cuda_sync",)
PYTHON_FUNCTION = "python_function"
UNKNOWN_DEVICE_CATEGORIES = ("hpu_op", "mtia_insight", "mtia_workloadd", "collective_comm")
"""Categories of other accelerators. The part that is work of the device is unknown."""

THREAD_CATEGORIES_WITH_STREAM = (
    *OPERATORS,
    *ANNOTATIONS,
    "cuda_event",
    "cuda_profiler_range",
    "overhead",
    PYTHON_FUNCTION,
)
"""Categories of spans of threads that may have a stream in their args."""

# -- names; each is a regular expression

NUMBER = r"[ #_]?(\d{1,18})$"
"""The number at the end of a span's name, as of ``ProfilerStep#7``."""

FETCH = r"^(event/dataloader$|enumerate\(DataLoader\)#)"
"""Spans in which a loop waits for its next batch."""

FETCH_WITHOUT_WORKERS = r"^enumerate\(DataLoader\)#_SingleProcess"
FETCH_FROM_WORKERS = "MultiProcessing"
WORKER_TRACK = r"^DataLoader worker (\d+)(?:$|: )"
"""The name of the track of a DataLoader's worker."""

EPOCH, EVALUATION = r"^event/epoch$", r"^event/eval$"
BACKWARD_FUNCTIONS = r"^(event/backward$|autograd::engine::evaluate_function: )"
OLD_BACKWARD_FUNCTIONS = r"(Backward\d*$|^torch::autograd::AccumulateGrad$|^AccumulateGrad$)"
"""Functions of the backward pass in traces before torch had spans of its engine."""

OPTIMIZER_STEP = r"^Optimizer\.step#"
MODULE = r"^nn\.Module: "
COMPILER = r" \(dynamo_timed\)$"
"""Spans that torch records of its compiler."""

RECORDING = r"^PyTorch Profiler \(\d+\)$"
COMMUNICATION_CALLS = r"^(c10d::|_?c10d_functional::|record_param_comms|(nccl|gloo|mpi|ucc|xccl):)"
"""Spans of threads in which a collective is called, or waited for."""

DEVICE_COLLECTIVES = r"^(record_param_comms$|nccl:|rccl:)"
"""Spans with the arguments of a collective, around the launch of its kernels."""

C10D_CALLS = r"^c10d::"
CPU_COLLECTIVES = r"^gloo:"
"""Spans of collectives on the CPU, which have separate threads."""

LAUNCHES = r"LaunchKernel|Memcpy|Memset|GraphLaunch"
"""Runtime calls that start work of a device."""

GRAPH_LAUNCH = "GraphLaunch"


class PhaseNames(NamedTuple):
    """The names that a library gives to the phases of a step; None for a phase without a name.

    A ``word`` matches in any case and in a frame, as in ``## Forward ##``.
    """

    library: str
    forward: str | None = None
    backward: str | None = None
    optimizer: str | None = None
    data: str | None = None
    is_word: bool = False


PHASE_NAMES = (
    PhaseNames(
        "names that people choose",
        forward=r"forward|forward[ _.-]?pass",
        backward=r"backward|backward[ _.-]?pass",
        optimizer=r"optimizer|optim|optimizer[ _.-]?step|opt[ _.]step",
        data=r"data|dataloader|data[ _-]?load(?:ing|er)?|load[ _-]data|next[ _]batch|get[ _]batch",
        is_word=True,
    ),
    PhaseNames("Megatron-LM's timers", forward="forward-compute", backward="backward-compute", is_word=True),
    PhaseNames("DeepSpeed's timers", forward="fwd", backward="bwd", is_word=True),
    PhaseNames(
        "Lightning's actions",
        forward=r"\[Strategy\]\w+\.training_step$",
        backward=r"\[Strategy\]\w+\.backward$",
        optimizer=r"\[LightningModule\]\w+\.optimizer_step$",
        data=r"\[_TrainingEpochLoop\]\.train_dataloader_next$",
    ),
    PhaseNames("accelerate", backward=r"^Accelerator\.backward$", optimizer=r"^AcceleratedOptimizer\.step$"),
    PhaseNames("Composer and our markers", forward=r"^event/forward$", backward=r"^event/backward$"),
)
NAMED_PHASES = ("forward", "backward", "optimizer")


def _phase_pattern(phase: str) -> str:
    """Return the regular expression of all names of a phase."""
    rows = [(getattr(row, phase), row.is_word) for row in PHASE_NAMES]
    words = "|".join(name for name, is_word in rows if name is not None and is_word)
    others = [name for name, is_word in rows if name is not None and not is_word]
    return "|".join([rf"(?i)^[\s#=*_-]*(?:{words})[\s#=*_-]*$", *others])


PHASE_PATTERNS = {phase: _phase_pattern(phase) for phase in (*NAMED_PHASES, "data")}
PATTERNS = (
    *(FETCH, FETCH_WITHOUT_WORKERS, EPOCH, EVALUATION, BACKWARD_FUNCTIONS, OLD_BACKWARD_FUNCTIONS, OPTIMIZER_STEP),
    *(MODULE, COMPILER, RECORDING, COMMUNICATION_CALLS, DEVICE_COLLECTIVES, C10D_CALLS, CPU_COLLECTIVES),
    *PHASE_PATTERNS.values(),
)
"""All patterns by which spans of threads are selected: a window compares its names with all of them at once."""
