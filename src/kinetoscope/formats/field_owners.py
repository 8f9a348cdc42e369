"""Owners of the strings in each field of a trace: Kinetoscope, torch with its profiler, or the user.

Redaction has no other vocabulary: a string stays where its field is ours, or where its field is torch's and it is
one of torch's names. docs/privacy.md lists the fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kinetoscope.formats import known_names
from kinetoscope.formats.chrome_scan import ARGUMENTS
from kinetoscope.formats.known_names import Vocabulary
from kinetoscope.formats.torch_names import is_kernel


class Owner(StrEnum):
    """The owner of the strings in a field."""

    OURS = "ours"
    TORCH = "torch's"
    USER = "the user's"


@dataclass(frozen=True)
class Field:
    """A field with strings.

    A string that ``is_known`` stays. Another one becomes ``noun`` and a number; a frame or a kernel keeps its form, and
    a sentence of ours keeps all but its values, and a dotted name the numbers in it.
    """

    owner: Owner
    noun: str = "name"
    is_known: Vocabulary = lambda text: False
    is_sentence: bool = False
    is_path: bool = False
    is_dotted: bool = False


def _torch_field(is_known: Vocabulary, noun: str = "name") -> Field:
    return Field(Owner.TORCH, noun, is_known)


def _kinetoscope_field(is_known: Vocabulary) -> Field:
    return Field(Owner.OURS, is_known=is_known)


USERS = Field(Owner.USER)
_FILES = Field(Owner.USER, "file", is_path=True)
_SENTENCES = Field(Owner.OURS, is_sentence=True)
_NUMBERS = _torch_field(known_names.is_number)
_ANY = _torch_field(known_names.is_name_of_torch)

_BY_FIELD: dict[Field, tuple[str, ...]] = {
    _torch_field(known_names.is_call_of_torch): ("cpu_op", "Operator", "user_annotation", "gpu_user_annotation"),
    _torch_field(is_kernel, "kernel"): ("kernel", "Kernel", "concurrent_kernel"),
    _torch_field(known_names.is_frame, "function"): ("python_function",),
    _torch_field(known_names.is_call): (
        *("gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync", "cuda_event", "overhead"),
        *("Memcpy", "Memset", "Runtime", "GCU_MEMCPY", "GCU_MEMSET", "gcu_runtime", "gcu_driver", "mtia_runtime"),
        *("xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver", "cuda_profiler_range"),
    ),
    _torch_field(known_names.is_flow): ("ac2g", "fwdbwd", "async_cpu_to_gpu", "forward_backward"),
    _torch_field(lambda text: text == "[memory]"): ("cpu_instant_event",),
    _torch_field(known_names.is_annotation): ("Trace",),
    _ANY: (
        *("collective_comm", "glow_runtime", "hpu_op", "mtia_ccp_events", "mtia_counters", "mtia_insight"),
        *("mtia_workloadd",),
    ),
}
COUNTERS = _kinetoscope_field(known_names.is_counter)

RECORDED_CATEGORIES: dict[str, Field] = {
    **dict.fromkeys(
        ("batch", "epoch", "kinetoscope", "watched_phase"), _kinetoscope_field(known_names.is_kinetoscope_span)
    ),
    **dict.fromkeys(("dataloader", "step", "evaluation"), _kinetoscope_field(known_names.is_kinetoscope_span)),
    "marker": USERS,
    "module": Field(Owner.USER, "module", is_dotted=True),
    "system": COUNTERS,
    "gc": _kinetoscope_field(known_names.is_collection),
    "compile": _kinetoscope_field(lambda text: text == "compile/graph"),
    "loader": _kinetoscope_field(lambda text: text == "DataLoader"),
    "memory_holder": _kinetoscope_field(
        lambda text: text in ("memory holders were scanned", "memory holders were looked for")  # the older name
    ),
    "float64": USERS,
    "processors": _kinetoscope_field(lambda text: text == "processors"),
    **dict.fromkeys(("stack_sample", "library"), _torch_field(known_names.is_frame, "function")),
    "state": _kinetoscope_field(known_names.is_state),
}
"""The categories of our own events. Of a user's event they are words that a user chose."""

TORCH_CATEGORIES: dict[str, Field] = {category: field for field, names in _BY_FIELD.items() for category in names}
"""The categories of torch's profiler, with the field that the names of their events are."""

KNOWN_CATEGORIES = frozenset(RECORDED_CATEGORIES | TORCH_CATEGORIES)
"""Categories that are not passed to a user's function, since analyses find events by them."""

OTHER_NAMES = _ANY
"""The names of events in other categories, as in traces of other profilers."""

TRACKS = _torch_field(known_names.is_track, "track")

_TYPES = _torch_field(known_names.is_type)
_BACKENDS = _torch_field(known_names.is_backend)
_WORDS = _torch_field(known_names.is_builtin_kind)
_TEXT_KEYS: dict[str, Field] = {
    **dict.fromkeys(("Input type", "dtype", "Concrete Inputs", "Concrete Args"), _TYPES),
    "Collective name": _torch_field(known_names.is_collective),
    **dict.fromkeys(("backend", "kernel backend"), _BACKENDS),
    **dict.fromkeys(
        ("Process Group Name", "Process Group Description", "pg_name", "pg_desc"),
        Field(Owner.TORCH, "group", known_names.is_group),
    ),
    "Call stack": _torch_field(known_names.is_frame, "function"),
    "kernel file": _FILES,
    "cuda_sync_kind": _torch_field(known_names.is_call),
    **dict.fromkeys(("name", "origin"), TRACKS),
    "labels": _torch_field(known_names.is_track, "device"),
    **dict.fromkeys(("kinetoscope", "cut", "notes", "repaired", "repairs"), _SENTENCES),
    "line": _FILES,
    "library": _torch_field(known_names.is_frame, "function"),
    "class": Field(Owner.USER, "class"),
    **dict.fromkeys(("function", "guard", "dataset", "holder", "location", "Module Hierarchy"), USERS),
    "kind": _WORDS,
    "run_name": Field(Owner.USER, "run"),
    **dict.fromkeys(("host", "host_name", "hosts"), Field(Owner.USER, "host")),
    "start": _kinetoscope_field(known_names.is_start),
    **dict.fromkeys(("version", "nccl_version"), _kinetoscope_field(known_names.is_version)),
    "sources": USERS,
    "path": _FILES,
    "traceName": _FILES,
    "trace_id": USERS,
}
"""The owners of the strings of arguments and of header fields that may have strings other than numbers."""

_NUMBER_KEYS = frozenset(
    (
        *(key for keys in ARGUMENTS.values() for key in keys),
        *("Input Strides", "Kwinputs", "Ev Idx", "Record function id", "Trace name", "Trace iteration", "Op count"),
        *("Ev count", "Python thread", "Src Rank", "Dst Rank", "Is asynchronized op", "Process Group Ranks"),
        *("Group Ranks", "Global rank start", "Global rank stride", "Out split size", "In split size", "Comms Id"),
        *("Rank", "grid", "block", "queued", "context", "cbid", "priority", "graph id", "graph node id", "finished"),
        *("registers per thread", "shared memory", "blocks per SM", "warps per SM", "est. achieved occupancy %"),
        *("memory bandwidth (GB/s)", "kernel kwargs", "kernel hash", "num_stages", "num_warps", "wait_on_stream"),
        *("wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id", "Wait on Stream", "event_id", "flow_id"),
        *("fromDevice", "inDevice", "toDevice", "Overflow", "flops", "sort_index", "overlap", "overlap_of", "open"),
        *(
            "epoch",
            "begin_ns",
            "end_ns",
            "microbatch",
            "depth",
            "not_finite",
            "generation",
            "collected",
            "uncollectable",
        ),
        *("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "steps", "tensors"),
        *("graphs", "bytes", "holders", "objects", "functions", "complete", "wall_ns", "own_ns", "busy_ns"),
        *("command_ns", "steal_ns", "throttled_ns", "num_throttled", "cores", "threads"),
        *("schemaVersion", "displayTimeUnit"),
        *("baseTimeNanoseconds", "record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"),
        *("deviceProperties", "id", "totalGlobalMem", "distributedInfo", "rank", "world_size", "pg_count"),
        *("pg_config", "pg_size", "ranks"),
    )
)
_HEADER_KEYS = frozenset(
    (
        *("merged", "live", "recovered", "files", "header", "clock", "clocks", "anchors", "monotonic_ns", "unix_ns"),
        *("bound_ns", "stepped", "beside_rank0", "measurements", "reference", "same_clock", "offset_ns", "drift_ppm"),
        *("local_rank", "node_rank", "cycle", "dropped", "lost_cycles", "lost_records", "pid", "begin", "end"),
        *("batch_in_epoch", "sample", "sample_in_epoch", "token", "token_in_epoch", "total_wct", "epoch_wct"),
        *("batch_wct", "warmup_batches", "slow_step", "num_ranks", "num_files", "computeMajor", "computeMinor"),
        *("maxThreadsPerBlock", "maxThreadsPerMultiprocessor", "regsPerBlock", "warpSize", "sharedMemPerBlock"),
        *("numSms", "regsPerMultiprocessor", "sharedMemPerBlockOptin", "sharedMemPerMultiprocessor"),
        *("cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    )
)
KNOWN_KEYS = _NUMBER_KEYS | frozenset(_TEXT_KEYS)
"""Names of arguments and header fields that are not passed to a user's function: analyses need them."""

DEVICES = _torch_field(known_names.is_device, "device")

_KEPT = _kinetoscope_field(lambda text: True)
STRUCT_TEXTS: dict[str, dict[str, Field]] = {
    "Attempt": {"run_id": Field(Owner.USER, "run"), "start": _KEPT, "host": Field(Owner.USER, "host")},
    "AttemptAgreed": {"attempt": Field(Owner.USER, "run"), "start": _KEPT},
    "ConcurrentRanks": {"starts": _KEPT, "start": _KEPT},
    "TraceFinished": {"path": _FILES, "start": _KEPT},
    "TraceExpired": {"path": _FILES, "start": _KEPT},
    "RankClosed": {"start": _KEPT},
    "AppliedVariant": {"name": Field(Owner.USER, "name")},
    "ExperimentRow": {
        "reason": _SENTENCES,
        "code": Field(Owner.USER, "name"),
        "kinds": _KEPT,
        "findings": _KEPT,
        "results_reason": _SENTENCES,
    },
    "Experiment": {"version": _KEPT, "notes": _SENTENCES},
    "NothingRecorded": {"why": _SENTENCES, "start": _KEPT},
    "SlowStep": {"start": _KEPT, "line": _FILES, "path": _FILES},
    "PulseProcess": {"pid_space": _KEPT},
    "TrainingFacts": {"optimizer": USERS, "command": _KEPT},
    "ThreadStack": {"name": TRACKS, "frames": _torch_field(known_names.is_frame, "function")},
    "GroupState": {"name": _TEXT_KEYS["pg_name"], "collective": _torch_field(known_names.is_collective)},
    "StalledPhase": {"phase": _KEPT, "location": _FILES},
    "TraceRecipe": dict.fromkeys(("folder", "filename", "merged", "remote", "merged_remote"), _FILES),
    "SpoolOwner": {"run_name": Field(Owner.USER, "run"), "token": _KEPT},
    "Upload": {"path": _FILES, "url": _FILES},
    "ConfirmedUpload": {"path": _FILES, "url": _FILES, "md5": _KEPT},
}
"""The owners of the strings in files next to the traces: manifests, pulses, slow steps, the spool folder, uploads."""


def is_known_key(key: str) -> bool:
    """Return whether the name of an argument or a header field is torch's or Kinetoscope's."""
    return key in KNOWN_KEYS or key in _HEADER_KEYS


def field_of_value(key: str) -> Field:
    """Return the field of a string in an argument, or in a field of the header."""
    return _TEXT_KEYS.get(key) or (_NUMBERS if is_known_key(key) else USERS)


def field_of_name(phase: str, categories: Sequence[str]) -> Field:
    """Return the field of the name of an event: that of the last category which is known."""
    known = RECORDED_CATEGORIES | TORCH_CATEGORIES
    fields = [known[category] for category in reversed(categories) if category in known]
    field = next((field for field in fields if field is not USERS), USERS if fields else OTHER_NAMES)
    return (field if field is COUNTERS else USERS) if phase == "C" else field


def describe_fields() -> list[tuple[str, str, str]]:
    """Return the rows of the table in docs/privacy.md: the location of a string, its owner, and its replacement."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    parts = (
        ("names of events in category", RECORDED_CATEGORIES | TORCH_CATEGORIES),
        ("values of argument or header field", _TEXT_KEYS),
    )
    for part, fields in parts:
        for key, field in fields.items():
            rows.setdefault((part, field.owner, _describe(field)), []).append(f"`{key}`")
    for struct, fields in STRUCT_TEXTS.items():
        for key, field in fields.items():
            rows.setdefault(("files next to traces:", field.owner, _describe(field)), []).append(f"`{struct}.{key}`")
    others = [
        ("other categories; ours on events whose names are not ours", Owner.USER, "`category 1`"),
        ("names of events in other categories", Owner.TORCH, _describe(OTHER_NAMES)),
        ("names of other arguments, header fields and series of counters", Owner.USER, "`argument 1`"),
        ("values of other arguments and header fields", Owner.USER, _describe(USERS)),
        ("values of all other arguments that torch and we define", Owner.TORCH, _describe(_NUMBERS)),
        ("names of devices in `deviceProperties`", Owner.TORCH, _describe(DEVICES)),
    ]
    listed = [(f"{part} {', '.join(keys)}", owner, instead) for (part, owner, instead), keys in rows.items()]
    return [*listed, *((where, str(owner), instead) for where, owner, instead in others)]


def _describe(field: Field) -> str:
    if field.is_sentence:
        return "a sentence of ours stays, with … for each value but numbers; any other is left out"
    if field.is_path:
        return "`file 1`, or a path below `torch/`"
    if field.owner is Owner.USER:
        return f"`{field.noun} 1`"
    if field is _KEPT:
        return "kept"
    return f"a known name stays; else `{field.noun} 1`"
