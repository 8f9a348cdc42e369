"""torch: the list that ``events()`` returns: torch's `FunctionEvent` objects, made from columns.

torch takes 70 us to make a `FunctionEvent` of 46 attributes, most of which nobody reads. Ours has its index in the
columns, and makes each attribute when it is read.
"""

# torch declares as attributes what we make on demand.
# pyright: reportAttributeAccessIssue=false

import logging
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.autograd.profiler_util import EventList, FunctionEvent, Interval, Kernel
from torch.profiler import DeviceType

import kinetoscope.torch.private_names as private_names
from kinetoscope.recording.window.gc_control import pause_gc
from kinetoscope.torch.event_columns import EventColumns, event_method, name_of, readable_name
from kinetoscope.torch.stacks import recorded_stacks

_log = logging.getLogger("kinetoscope")


class WindowEvents:
    """The events of one window: the columns, and the objects of events that are in use.

    It does not keep these objects, which refer to it: with the window, 4.5 MiB for 3,300 events would stay in memory
    until a garbage collection.
    """

    def __init__(self, columns: EventColumns) -> None:
        self.columns = columns
        self._in_use: WeakValueDictionary[int, WindowEvent] = WeakValueDictionary()

    def event(self, index: int) -> "WindowEvent":
        """Return the object of an event: always the same one while it is in use."""
        event = self._in_use.get(index)
        if event is None:
            event = self._in_use[index] = WindowEvent(self, index)
        return event

    @cached_property
    def stacks(self) -> list[list[str]]:
        """The stack of each event."""
        return recorded_stacks(self.columns)

    @cached_property
    def last_id(self) -> int:
        """The largest id that Kineto gave; memory-only events are numbered from there on."""
        sources = enumerate(self.columns.sources)
        return max((source.correlation_id() for index, source in sources if not self.is_memory(index)), default=0)

    def is_memory(self, index: int) -> bool:
        """Whether the event stands for an allocation outside any other event."""
        return index in self.columns.memory_only

    def kernels(self, index: int) -> list[Kernel]:
        """The kernels that the event launched."""
        columns = self.columns
        return [
            Kernel(
                columns.names[kernel],
                columns.sources[kernel].device_index(),
                columns.ends_us[kernel] - columns.begins_us[kernel],
            )
            for kernel in columns.kernels.get(index, ())
        ]


class WindowEvent(FunctionEvent):
    """A `FunctionEvent` whose attributes are made when they are read; a copy or pickle of it is torch's own class."""

    __slots__ = ("_events", "_index")

    def __init__(self, events: WindowEvents, index: int) -> None:  # torch's takes all attributes
        self._events = events
        self._index = index

    def __getattr__(self, name: str) -> Any:
        make = _ATTRIBUTES.get(name) if name in _ATTRIBUTES_OF_TORCH else None
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = make(self._events, self._index)
        if name != "cpu_parent":  # with the parent's children, a cycle
            setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ATTRIBUTES_OF_TORCH})

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (FunctionEvent,), {name: getattr(self, name) for name in _ATTRIBUTES_OF_TORCH}


def list_events(columns: EventColumns, **options: Any) -> tuple[WindowEvents, EventList]:
    """The events of one window, and torch's list of their objects; ``options`` are those of `EventList`."""
    with pause_gc():
        events = WindowEvents(columns)
        listed = EventList(map(events.event, columns.shown()), **options)
    listed._tree_built = True
    return events, listed


@cache
def torch_is_known() -> bool:
    """Whether our events have every attribute of this torch's; if not, a line in the log names those missing."""
    unknown = _ATTRIBUTES_OF_TORCH - _ATTRIBUTES.keys()
    if unknown:
        _log.info(
            "events() takes longer with torch %s: its events have attributes that Kinetoscope does not know (%s).",
            torch.__version__,
            ", ".join(sorted(unknown)),
        )
    return not unknown


_Make = Callable[[WindowEvents, int], Any]


def _column(name: str) -> _Make:
    return lambda events, index: getattr(events.columns, name)[index]


def _always(value: Any) -> _Make:
    return lambda events, index: value


def _from_source(method: str, for_memory: Callable[[], Any]) -> _Make:
    """What Kineto's event returns; for a memory-only event, torch's default."""
    call = event_method(method)

    def make(events: WindowEvents, index: int) -> Any:
        return for_memory() if events.is_memory(index) else call(events.columns.sources[index])

    return make


def _none() -> None:
    return None


def _id(events: WindowEvents, index: int) -> int:
    if events.is_memory(index):
        return events.last_id + 1 + events.columns.memory_only[index]
    return events.columns.sources[index].correlation_id()


def _forward_thread(events: WindowEvents, index: int) -> int:
    return events.columns.threads[index] if events.is_memory(index) else events.columns.sources[index].fwd_thread_id()


def _device_resource(events: WindowEvents, index: int) -> int:
    resource = None if events.is_memory(index) else events.columns.sources[index].device_resource_id()
    return events.columns.threads[index] if resource is None else resource


def _trace_name(events: WindowEvents, index: int) -> str | None:
    return None if events.is_memory(index) else readable_name(name_of(events.columns.sources[index]))


def _parent(events: WindowEvents, index: int) -> WindowEvent | None:
    parent = events.columns.parents[index]
    return None if parent < 0 else events.event(parent)


def _children(events: WindowEvents, index: int) -> list[WindowEvent]:
    return list(map(events.event, events.columns.children.get(index, ())))


_python_parent_id = _from_source("python_parent_id", lambda: -1)


def _python_parent(events: WindowEvents, index: int) -> int:
    parent = _python_parent_id(events, index)
    return events.columns.own_frames.above.get(parent, parent)


_extra_metadata_of = event_method("extra_meta")


def _metadata(events: WindowEvents, index: int) -> Any:
    extra = None if events.is_memory(index) else _extra_metadata_of(events.columns.sources[index])
    return private_names.build_metadata(extra) if extra else None


_typed_metadata_of = event_method("typed_metadata")


def _typed_metadata(events: WindowEvents, index: int) -> Any:
    return None if events.is_memory(index) else _typed_metadata_of(events.columns.sources[index]) or None


_ATTRIBUTES_OF_TORCH = frozenset(vars(FunctionEvent(0, "", 0, 0, 0)))
"""What torch's own events hold; versions differ."""

_ATTRIBUTES: dict[str, _Make] = {
    "id": _id,
    "node_id": _always(-1),
    "name": _column("names"),
    "overload_name": _from_source("overload_name", str),
    "trace_name": _trace_name,
    "time_range": lambda events, index: Interval(events.columns.begins_us[index], events.columns.ends_us[index]),
    "thread": _column("threads"),
    "fwd_thread": _forward_thread,
    "kernels": lambda events, index: events.kernels(index),
    "count": _always(1),
    "cpu_children": _children,
    "cpu_parent": _parent,
    "input_shapes": _from_source("shapes", list),
    "concrete_inputs": _from_source("concrete_inputs", _none),
    "kwinputs": _from_source("kwinputs", _none),
    "stack": lambda events, index: events.stacks[index],
    "scope": _from_source("scope", int),
    "use_device": lambda events, index: events.columns.use_device,
    "cpu_memory_usage": _column("host_bytes"),
    "device_memory_usage": _column("device_bytes"),
    "is_async": _column("is_async"),
    "is_remote": _always(False),
    "sequence_nr": _from_source("sequence_nr", lambda: -1),
    "device_type": _from_source("device_type", lambda: DeviceType.CPU),
    "device_index": _from_source("device_index", int),
    "device_resource_id": _device_resource,
    "is_legacy": _always(False),
    "flops": _from_source("flops", _none),
    "is_user_annotation": _from_source("is_user_annotation", bool),
    "is_python_function": _from_source("is_python_function", bool),
    "activity_type": _from_source("activity_type", _none),
    "self_cpu_percent": _always(-1),
    "total_cpu_percent": _always(-1),
    "total_device_percent": _always(-1),
    "_metadata_json": _from_source("metadata_json", _none),
    "metadata_json": _from_source("metadata_json", _none),
    "metadata": _typed_metadata,
    "flow_id": _from_source("flow_id", _none),
    "flow_type": _from_source("flow_type", _none),
    "flow_start": _from_source("flow_start", _none),
    "external_id": _from_source("external_id", int),
    "linked_correlation_id": _from_source("linked_correlation_id", int),
    "event_metadata": _metadata,
    "_event_metadata": _metadata,
    "structured_input_shapes": _from_source("structured_input_shapes", _none),
    "structured_input_strides": _from_source("structured_input_strides", _none),
    "input_dtypes": _from_source("dtypes", _none),
    "python_id": _from_source("python_id", lambda: -1),
    "python_parent_id": _python_parent,
    "python_module_id": _from_source("python_module_id", lambda: -1),
}
