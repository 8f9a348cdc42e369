"""Kineto's events as columns, with the tree of operators, without a Python object per event.

Selection of events, parents and attribution of memory follow `torch.autograd.profiler`, so that tables have torch's
numbers to the last bit. That is why times are floats of microseconds here.
"""

import inspect
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress
from typing import Any, cast

import torch
from torch.autograd.profiler_util import MemRecordsAcc
from torch.profiler import DeviceType

import kinetoscope.torch.private_names as private_names
from kinetoscope.formats.trace_names import STEP
from kinetoscope.torch.python_frames import PROFILER_PREFIXES, ProfilerFrames

TORCH_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
# Methods that events of torch 2.6 or later may lack, with default results.
_DEFAULTS: dict[str, Any] = {
    "activity_type": None,
    "external_id": 0,
    "extra_meta": None,
    "flow_id": None,
    "flow_start": None,
    "flow_type": None,
    "is_hidden_event": False,
    "is_python_function": False,
    "metadata_json": None,
    "overload_name": "",
    "python_id": -1,
    "python_module_id": -1,
    "python_parent_id": -1,
    "structured_input_shapes": None,
    "structured_input_strides": None,
    "typed_metadata": None,
}


def get_event_method(method: str) -> Callable[[Any], Any]:
    """Return a function that calls ``method`` on an event; it returns a default where this torch lacks the method."""
    default = _DEFAULTS.get(method)
    if private_names.KinetoEvent is None:
        return lambda event: getattr(event, method, lambda: default)()
    return getattr(private_names.KinetoEvent, method, lambda event: default)


def has_frame_events() -> bool:
    """Return whether Python frames are events, as they are since torch 2.12."""
    return private_names.KinetoEvent is None or hasattr(private_names.KinetoEvent, "is_python_function")


def read_name(event: Any) -> str:
    """Return an event's name, decoded leniently: the name of freed code may be arbitrary bytes."""
    try:
        return event.name()
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "replace")


def read_names(events: Sequence[Any]) -> list[str]:
    """Return the names of all events, which are of one class."""
    # Through the class: looking up the method on each object takes longer than the call.
    try:
        return list(map(type(events[0]).name, events)) if events else []
    except UnicodeDecodeError:
        return [read_name(event) for event in events]


def call_each(events: Sequence[Any], method: str) -> list[Any]:
    """Return the results of ``method`` for each event."""
    return list(map(get_event_method(method), events))


MEMORY = "[memory]"
OUT_OF_MEMORY = "[OutOfMemory]"
_HIDDEN_NAMES = {
    MEMORY,
    OUT_OF_MEMORY,
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
}
_CPU = DeviceType.CPU.value
_CPU_MEMORY_TYPES = {_CPU, DeviceType.MKLDNN.value, DeviceType.IDEEP.value}
_DEVICE_MEMORY_TYPES = {
    device.value for device in (DeviceType.CUDA, DeviceType.PrivateUse1, DeviceType.HIP, DeviceType.XPU)
}
_KERNEL_DEVICES = {device.value for device in (DeviceType.CUDA, DeviceType.PrivateUse1, DeviceType.XPU)}
# torch up to about 2.9 rounds the ends of intervals to float microseconds before it compares.
_ROUNDS_ENDS = "start_us" in inspect.signature(MemRecordsAcc.in_interval).parameters
_STEP_NAME = "ProfilerStep*"


@dataclass(slots=True)
class EventColumns:
    """Events of one window in order of their start; an index means the same event in every list.

    Attributes:
        kineto_events: Kineto's objects, for attributes that few events need.
        begins_us: Start times in microseconds since the window's base.
        parents: Index of the enclosing event, or -1.
        children: Events directly inside each event.
        kernels: Kernels that each operator launched.
        memory_only: Events for allocations outside any other event, numbered in order.
        removed: Events that only repeat their parent.
        profiler_frames: Kinetoscope's Python frames, which are not among the events.
    """

    use_device: str | None
    kineto_events: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    begins_us: list[float] = field(default_factory=list)
    ends_us: list[float] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    is_async: list[bool] = field(default_factory=list)
    cpu_bytes: list[int] = field(default_factory=list)
    device_bytes: list[int] = field(default_factory=list)
    memory_only: dict[int, int] = field(default_factory=dict)
    kernels: dict[int, list[int]] = field(default_factory=dict)
    parents: list[int] = field(default_factory=list)
    children: dict[int, list[int]] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    profiler_frames: ProfilerFrames = field(default_factory=ProfilerFrames)

    def __len__(self) -> int:
        return len(self.names)

    def shown_indexes(self) -> Iterable[int]:
        """Return the indexes of the events that are not removed."""
        return (index for index in range(len(self)) if index not in self.removed)

    def call_on_events(self, method: str, for_memory: Any) -> list[Any]:
        """Return the results of ``method`` for each of Kineto's objects; ``for_memory`` for memory-only events."""
        if not self.memory_only:
            return call_each(self.kineto_events, method)
        call = get_event_method(method)
        return [
            for_memory if index in self.memory_only else call(source) for index, source in enumerate(self.kineto_events)
        ]

    def is_in_tree(self, index: int) -> bool:
        """Return whether an event can have a parent and children: a CPU event that starts and ends on one thread."""
        return self.devices[index] == _CPU and not self.is_async[index]

    def cpu_us(self) -> list[float]:
        """Return the CPU time of each event in microseconds; 0 for device events."""
        triples = zip(self.begins_us, self.ends_us, self.devices, strict=True)
        return [end - begin if device == _CPU else 0 for begin, end, device in triples]

    def device_us(self) -> list[float]:
        """Return the device time of each event and those inside it, in microseconds."""
        totals: list[float] = [0] * len(self)
        for index in reversed(range(len(self))) if self.use_device else ():
            if self.is_async[index]:
                continue
            if self.devices[index] == _CPU:
                children_us = sum(totals[child] for child in self.children.get(index, ()))
                kernels_us = sum(
                    self.ends_us[kernel] - self.begins_us[kernel] for kernel in self.kernels.get(index, ())
                )
                totals[index] = kernels_us + children_us
            else:
                totals[index] = self.ends_us[index] - self.begins_us[index]
        return totals

    def self_values(self, totals: Sequence[float], *, with_devices: bool = False) -> list[float]:
        """Return each event's total without those of its children.

        Args:
            totals: A value per event.
            with_devices: Whether events outside the tree, such as kernels, keep their total; otherwise they have 0.
        """
        remaining = [total if with_devices or self.is_in_tree(index) else 0 for index, total in enumerate(totals)]
        for parent, child_indexes in self.children.items():
            if parent not in self.removed:
                remaining[parent] = totals[parent] - sum(totals[child] for child in child_indexes)
        return remaining


def read_columns(kineto_results: Any, use_device: str | None) -> EventColumns:
    """Return the events of one window in order, each with its parent, kernels and memory."""
    events = kineto_results.events()
    base_ns = kineto_results.trace_start_ns()
    raw_names = read_names(events)
    columns = EventColumns(use_device)
    if any(name.startswith(PROFILER_PREFIXES) for name in set(raw_names)):
        events = _drop_profiler_frames(events, raw_names, columns.profiler_frames)
        raw_names = read_names(events)  # read again, because names that torch has lost differ at each read
    names = {name: _display_name(name) for name in set(raw_names)}
    _fill_columns(columns, events, [names[name] for name in raw_names], base_ns)
    _add_memory(columns, _select_named(MEMORY, events, raw_names), base_ns)
    for event in _select_named(OUT_OF_MEMORY, events, raw_names):
        _append_memory_event(columns, event, base_ns)
    if use_device or any(device != _CPU for device in columns.devices):
        _link_kernels(columns)
    _sort_by_start(columns)
    _find_parents(columns)
    _remove_repeated(columns)
    return columns


def _drop_profiler_frames(events: list[Any], names: list[str], known_frames: ProfilerFrames) -> list[Any]:
    """Return the events without Kinetoscope's frames, which are registered in ``known_frames``."""
    frames = zip(
        names,
        call_each(events, "python_id"),
        call_each(events, "python_parent_id"),
        call_each(events, "is_python_function"),
        strict=True,
    )
    is_profiler_frame = [
        is_frame and known_frames.add_if_profiler_frame(name, number, parent)
        for name, number, parent, is_frame in frames
    ]
    return [
        event for event, is_frame_of_profiler in zip(events, is_profiler_frame, strict=True) if not is_frame_of_profiler
    ]


def _select_named(name: str, events: Sequence[Any], names: Sequence[str]) -> list[Any]:
    return [events[index] for index, other in enumerate(names) if other == name]


def _display_name(name: str) -> str | None:
    """Return the name for tables; None for events that torch hides."""
    if name in _HIDDEN_NAMES:
        return None
    readable = readable_name(name)
    return _STEP_NAME if readable.startswith(STEP) else readable


def readable_name(name: str) -> str:
    """Return the name, demangled if it is a C++ symbol."""
    return private_names.demangle(name) if len(name) > 1 else name


def _fill_columns(columns: EventColumns, events: list[Any], names: list[str | None], base_ns: int) -> None:
    """Fill the columns with the shown events; names that are None are left out."""
    are_hidden = call_each(events, "is_hidden_event")
    kept = [name is not None and not is_hidden for name, is_hidden in zip(names, are_hidden, strict=True)]
    events = list(compress(events, kept))
    columns.kineto_events = events
    columns.names = cast("list[str]", list(compress(names, kept)))
    columns.begins_us = [(begin_ns - base_ns) / 1000 for begin_ns in call_each(events, "start_ns")]
    columns.ends_us = [(end_ns - base_ns) / 1000 for end_ns in call_each(events, "end_ns")]
    columns.threads = call_each(events, "start_thread_id")
    columns.devices = list(map(int, call_each(events, "device_type")))
    ends = zip(call_each(events, "is_async"), columns.threads, call_each(events, "end_thread_id"), strict=True)
    columns.is_async = [is_async or begin != end for is_async, begin, end in ends]
    columns.cpu_bytes = [0] * len(events)
    columns.device_bytes = [0] * len(events)


def _add_memory(columns: EventColumns, records: list[Any], base_ns: int) -> None:
    """Add to each CPU event the bytes allocated and freed while it ran, on any thread as in torch."""
    if not records:
        return
    records = sorted(records, key=lambda record: record.start_ns())
    moments = [record.start_ns() for record in records]
    cpu = [0, *accumulate(_bytes_on(record, _CPU_MEMORY_TYPES) for record in records)]
    device = [0, *accumulate(_bytes_on(record, _DEVICE_MEMORY_TYPES) for record in records)]
    covered = [0] * (len(records) + 1)
    for index, event in enumerate(columns.kineto_events):
        if columns.devices[index] == _CPU:
            first = bisect_left(moments, _round_as_torch(event.start_ns()))
            last = bisect_right(moments, _round_as_torch(event.end_ns()))
            columns.cpu_bytes[index] = cpu[last] - cpu[first]
            columns.device_bytes[index] = device[last] - device[first]
            covered[first] += 1
            covered[last] -= 1
    for record, depth in zip(records, accumulate(covered), strict=False):
        if not depth:
            _append_memory_event(columns, record, base_ns)


def _round_as_torch(moment_ns: int) -> float:
    """Return a time as torch compares it, rounded to float microseconds in older versions."""
    return moment_ns / 1000 * 1000 if _ROUNDS_ENDS else moment_ns


def _bytes_on(record: Any, devices: set[int]) -> int:
    return record.nbytes() if int(record.device_type()) in devices else 0


def _append_memory_event(columns: EventColumns, record: Any, base_ns: int) -> None:
    """Append an event for an allocation outside any other event."""
    columns.memory_only[len(columns.kineto_events)] = len(columns.memory_only)
    columns.kineto_events.append(record)
    columns.names.append(read_name(record))
    columns.begins_us.append((record.start_ns() - base_ns) / 1000)
    columns.ends_us.append(columns.begins_us[-1])
    columns.threads.append(record.start_thread_id())
    columns.devices.append(_CPU)
    columns.is_async.append(False)
    columns.cpu_bytes.append(_bytes_on(record, _CPU_MEMORY_TYPES))
    columns.device_bytes.append(_bytes_on(record, _DEVICE_MEMORY_TYPES))


def _link_kernels(columns: EventColumns) -> None:
    """Assign kernels to the operators that launched them, and launches to the threads of their operators."""
    linked: dict[int, list[int]] = {}
    operators: list[int] = []
    for index, event in enumerate(columns.kineto_events):
        if index in columns.memory_only:
            continue
        if correlation := event.linked_correlation_id():
            linked.setdefault(correlation, []).append(index)
        elif columns.is_in_tree(index) and _may_launch(event):
            operators.append(index)
    for operator in operators:
        for index in linked.get(columns.kineto_events[operator].correlation_id(), ()):
            if columns.devices[index] in _KERNEL_DEVICES:
                columns.kernels.setdefault(operator, []).append(index)
            elif columns.devices[index] == _CPU:
                columns.threads[index] = columns.threads[operator]


def _may_launch(event: Any) -> bool:
    """Return whether torch looks for kernels launched by the event; from 2.14 on, only operators have any."""
    if TORCH_VERSION < (2, 14):
        return True
    return event.activity_type() != "overhead" if TORCH_VERSION == (2, 14) else event.external_id() != 0


def _sort_by_start(columns: EventColumns) -> None:
    begins, ends = columns.begins_us, columns.ends_us
    order = sorted(range(len(begins)), key=lambda index: (begins[index], -ends[index]))
    if order == list(range(len(begins))):
        return
    for name in ("kineto_events", "names", "begins_us", "ends_us", "threads", "devices", "is_async"):
        setattr(columns, name, [getattr(columns, name)[index] for index in order])
    columns.cpu_bytes = [columns.cpu_bytes[index] for index in order]
    columns.device_bytes = [columns.device_bytes[index] for index in order]
    position = {index: new for new, index in enumerate(order)} if columns.memory_only or columns.kernels else {}
    columns.memory_only = {position[index]: number for index, number in columns.memory_only.items()}
    columns.kernels = {
        position[index]: [position[kernel] for kernel in launched] for index, launched in columns.kernels.items()
    }


def _find_parents(columns: EventColumns) -> None:
    """Make each event a child of the innermost event on its thread that contains it."""
    columns.parents = [-1] * len(columns)
    open_by_thread: dict[int, list[int]] = {}
    begins, ends = columns.begins_us, columns.ends_us
    for index in range(len(columns)):
        if not columns.is_in_tree(index):
            continue
        still_open = open_by_thread.setdefault(columns.threads[index], [])
        begin, end = begins[index], ends[index]
        while still_open and (begin >= ends[still_open[-1]] or end > ends[still_open[-1]]):
            still_open.pop()
        if still_open:
            columns.parents[index] = still_open[-1]
            columns.children.setdefault(still_open[-1], []).append(index)
        still_open.append(index)


def _remove_repeated(columns: EventColumns) -> None:
    """Remove each only child with its parent's name; the parent inherits its children and kernels."""
    for index, parent in enumerate(columns.parents):
        if parent < 0 or columns.names[index] != columns.names[parent] or len(columns.children[parent]) != 1:
            continue
        inherited = columns.children.get(index, [])
        columns.children[parent] = inherited
        columns.kernels[parent] = columns.kernels.get(index, [])
        for child in inherited:
            columns.parents[child] = parent
        columns.removed.add(index)
