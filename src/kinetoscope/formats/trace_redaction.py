"""Redacts the texts of a trace: each name and each text in its events and its header is replaced.

Not replaced is what only says how to read the trace: phases, times, numbers, the categories and the argument names that
torch and we define.
"""

import re
from collections.abc import Callable
from itertools import count
from typing import Any, BinaryIO

import msgspec

from kinetoscope.formats.chrome import ChromeTrace, ChromeWriter, Event, encode_line
from kinetoscope.formats.chrome_scan import ARGUMENTS

Ask = Callable[[str], str]
"""What may be written instead of a text."""

KNOWN_CATEGORIES = frozenset(
    (
        *("marker", "kinetoscope", "system", "gc", "compile", "dataloader"),
        *("loader", "memory_holder", "float64", "stack_sample", "library", "state", "processors"),
        *("cpu_op", "user_annotation", "gpu_user_annotation", "python_function", "cpu_instant_event", "Trace"),
        *("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync", "cuda_event", "overhead"),
        *("ac2g", "fwdbwd", "collective_comm", "concurrent_kernel", "cuda_profiler_range", "glow_runtime", "hpu_op"),
        *("mtia_ccp_events", "mtia_counters", "mtia_insight", "mtia_runtime", "xpu_runtime", "xpu_driver"),
        *("privateuse1_runtime", "privateuse1_driver", "async_cpu_to_gpu", "forward_backward", "Operator", "Kernel"),
        *("Memcpy", "Memset", "Runtime", "mtia_workloadd", "GCU_MEMCPY", "GCU_MEMSET", "gcu_runtime", "gcu_driver"),
    )
)
"""Categories that are kept, since analyses find events by them."""

_KNOWN_KEYS = frozenset(key for keys in ARGUMENTS.values() for key in keys) | {
    *("name", "labels", "sort_index", "origin", "overlap", "overlap_of"),
    *("epoch", "cut", "begin_ns", "end_ns", "microbatch", "kinetoscope", "not_finite"),
    *("generation", "collected", "uncollectable", "line", "library", "function", "guard"),
    *("dataset", "batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers"),
    *("holder", "kind", "place", "steps", "tensors", "graphs", "bytes", "device"),
    *("holders", "objects", "functions", "complete"),
    *("wall_ns", "own_ns", "busy_ns", "steal_ns", "throttled_ns", "num_throttled", "cores", "threads"),
    *("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "traceName", "trace_id", "host_name"),
    *("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "Concrete Inputs"),
    *("deviceProperties", "id", "totalGlobalMem", "distributedInfo", "backend", "rank", "world_size"),
    *("pg_count", "pg_config", "pg_name", "pg_desc", "pg_size", "ranks", "nccl_version"),
}
_FIELDS = frozenset(("ph", "name", "cat", "args", "pid", "tid", "ts", "dur", "tts", "tdur", "id", "id2", "bind_id"))
_FIELDS |= {"bp", "s", "scope", "flow_in", "flow_out"}
_PLACES = frozenset(("pid", "tid", "id", "id2", "bind_id", "scope"))
_CODES = frozenset(("ph", "s", "bp"))  # one letter says what kind of event it is
_DESCRIPTIONS = frozenset(
    ("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index", "kinetoscope_header")
)
_DEVICE = re.compile(r"CPU|GPU \d+")
_NUMBER = re.compile(r"(stream )?-?\d+|0x[0-9A-Fa-f]+")
# Numbers with a fraction stay as they are written, with all their digits.
_DECODER = msgspec.json.Decoder(list[dict[str, Any]], float_hook=lambda digits: msgspec.Raw(digits.encode()))


class TraceRedactor:
    """Redacts the events and the header of one trace; ``ask`` is called with each text.

    Texts that tell tracks or flows apart stay different, even if ``ask`` gives the same answer for them.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._places: dict[str, str] = {}
        self._taken: dict[str, Any] = {}

    def header(self, header: dict[str, Any]) -> dict[str, Any]:
        """The header with all texts redacted."""
        redacted = self._object(header)
        if "displayTimeUnit" in header:
            redacted["displayTimeUnit"] = "ns" if header["displayTimeUnit"] == "ns" else "ms"
        return redacted

    def event(self, event: Event) -> Event:
        """The event with all texts redacted."""
        redacted: Event = {}
        for key, value in event.items():
            name = key if key in _FIELDS else unused_name(self._ask(key), redacted)
            redacted[name] = value if type(value) is int else self._field(event, key, value)
        return redacted

    def lines(self, lines: bytes) -> bytes:
        """Events as text, with commas between them, in the same form."""
        events = _DECODER.decode(b"[" + lines + b"]")
        return b",\n".join([encode_line(self.event(event)) for event in events])

    def _field(self, event: Event, key: str, value: Any) -> Any:
        if key in _PLACES:
            return self._place(value)
        if key in _CODES and isinstance(value, str) and len(value) == 1:
            return value
        if key == "cat" and isinstance(value, str):
            return redact_categories(value, self._ask)
        is_kept = event.get("ph") == "M" and _describes(event) and (key == "name" or _says_device(value))
        return value if is_kept else self._value(value)

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._ask(value)
        if kind is dict:
            return self._object(value)
        return [self._value(part) for part in value] if kind is list else value

    def _object(self, members: dict[str, Any]) -> dict[str, Any]:
        redacted: dict[str, Any] = {}
        for key, value in members.items():
            name = unused_name(key if key in _KNOWN_KEYS else self._ask(key), redacted)
            redacted[name] = value if type(value) is int else self._value(value)
        return redacted

    def _place(self, value: Any) -> Any:
        """What stands for a text by which tracks or flows are told apart."""
        if isinstance(value, dict):
            return {key: self._place(part) for key, part in value.items() if key in ("local", "global")}
        if not isinstance(value, str):
            return self._value(value)
        if _NUMBER.fullmatch(value):
            return value
        if value not in self._places:
            self._places[value] = place = unused_name(self._ask(value), self._taken)
            self._taken[place] = value
        return self._places[value]


def redact_categories(categories: str, ask: Ask) -> str:
    """The categories of an event, with commas between them; those that torch and we define are kept."""
    if categories in KNOWN_CATEGORIES:
        return categories
    return ",".join(part if part in KNOWN_CATEGORIES else ask(part) for part in categories.split(","))


def write_redacted(trace: ChromeTrace, stream: BinaryIO, ask: Ask) -> None:
    """Writes a trace that was read, with all texts redacted."""
    redactor = TraceRedactor(ask)
    with ChromeWriter(stream, base_ns=trace.base_ns, header=redactor.header(trace.header)) as writer:
        writer.write(map(redactor.event, trace.events))


def _describes(event: Event) -> bool:
    """Whether a metadata event names or orders processes and threads."""
    name = event.get("name")
    return isinstance(name, str) and name in _DESCRIPTIONS


def _says_device(args: Any) -> bool:
    """Whether the args of a description only say that a process stands for the CPU or a GPU."""
    return isinstance(args, dict) and len(args) == 1 and _DEVICE.fullmatch(str(args.get("labels"))) is not None


def unused_name(name: str, taken: dict[str, Any]) -> str:
    """``name``, or if it is taken, the name and a number."""
    if name not in taken:
        return name
    return next(other for number in count(len(taken) + 1) if (other := f"{name} ({number})") not in taken)
