"""List of torch's `FunctionEvent` objects that ``events()`` returns, made from columns.

torch takes 70 us to make a `FunctionEvent` with 46 attributes, although few of them are ever read. A `WindowEvent` has
its index in the columns, and makes each attribute when it is read.
"""

# torch declares attributes that are made on demand here.
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
from kinetoscope.torch.event_columns import EventColumns, get_event_method, read_name, readable_name
from kinetoscope.torch.stacks import recorded_stacks

_log = logging.getLogger("kinetoscope")


class WindowEvents:
    """Columns of one window, with the event objects that are in use.

    The objects refer to this one and are not kept alive by it: otherwise 4.5 MiB for 3,300 events would stay in memory
    until a garbage collection.
    """

    def __init__(self, columns: EventColumns) -> None:
        self.columns = columns
        self._live_events: WeakValueDictionary[int, WindowEvent] = WeakValueDictionary()

    def event(self, index: int) -> "WindowEvent":
        """Return the object of an event: always the same one while it is in use."""
        event = self._live_events.get(index)
        if event is None:
            event = self._live_events[index] = WindowEvent(self, index)
        return event

    @cached_property
    def stacks(self) -> list[list[str]]:
        """Stack of each event."""
        return recorded_stacks(self.columns)

    @cached_property
    def max_id(self) -> int:
        """Largest id that Kineto gave; memory-only events get the ids after it."""
        kineto_events = enumerate(self.columns.kineto_events)
        return max(
            (source.correlation_id() for index, source in kineto_events if not self.is_memory_only(index)), default=0
        )

    def is_memory_only(self, index: int) -> bool:
        """Return whether the event stands for an allocation outside any other event."""
        return index in self.columns.memory_only

    def kernels(self, index: int) -> list[Kernel]:
        """Return the kernels that the event launched."""
        columns = self.columns
        return [
            Kernel(
                columns.names[kernel],
                columns.kineto_events[kernel].device_index(),
                columns.ends_us[kernel] - columns.begins_us[kernel],
            )
            for kernel in columns.kernels.get(index, ())
        ]


class WindowEvent(FunctionEvent):
    """A `FunctionEvent` whose attributes are made when they are read; copies and pickles are of torch's class."""

    __slots__ = ("_events", "_index")

    def __init__(self, events: WindowEvents, index: int) -> None:  # torch's constructor takes all attributes
        self._events = events
        self._index = index

    def __getattr__(self, name: str) -> Any:
        make = _ATTRIBUTES.get(name) if name in _ATTRIBUTES_OF_TORCH else None
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = make(self._events, self._index)
        if name != "cpu_parent":  # a reference cycle with the parent's children
            setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ATTRIBUTES_OF_TORCH})

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (FunctionEvent,), {name: getattr(self, name) for name in _ATTRIBUTES_OF_TORCH}


def list_events(columns: EventColumns, **options: Any) -> tuple[WindowEvents, EventList]:
    """Return the events of one window, and torch's list of their objects; ``options`` go to `EventList`."""
    with pause_gc():
        events = WindowEvents(columns)
        listed = EventList(map(events.event, columns.shown_indexes()), **options)
    listed._tree_built = True
    return events, listed


@cache
def has_all_torch_attributes() -> bool:
    """Return whether `WindowEvent` has every attribute of this torch's events; the log names missing ones."""
    unknown = _ATTRIBUTES_OF_TORCH - _ATTRIBUTES.keys()
    if unknown:
        _log.info(
            "events() takes longer with torch %s: its events have attributes unknown to Kinetoscope (%s).",
            torch.__version__,
            ", ".join(sorted(unknown)),
        )
    return not unknown


_AttributeMaker = Callable[[WindowEvents, int], Any]


def _from_column(name: str) -> _AttributeMaker:
    return lambda events, index: getattr(events.columns, name)[index]


def _constant(value: Any) -> _AttributeMaker:
    return lambda events, index: value


def _from_kineto(method: str, for_memory: Callable[[], Any]) -> _AttributeMaker:
    """Return a maker that calls ``method`` on Kineto's event, or ``for_memory`` for a memory-only event."""
    call = get_event_method(method)

    def make(events: WindowEvents, index: int) -> Any:
        return for_memory() if events.is_memory_only(index) else call(events.columns.kineto_events[index])

    return make


def _return_none() -> None:
    return None


def _id(events: WindowEvents, index: int) -> int:
    if events.is_memory_only(index):
        return events.max_id + 1 + events.columns.memory_only[index]
    return events.columns.kineto_events[index].correlation_id()


def _forward_thread(events: WindowEvents, index: int) -> int:
    return (
        events.columns.threads[index]
        if events.is_memory_only(index)
        else events.columns.kineto_events[index].fwd_thread_id()
    )


def _device_resource(events: WindowEvents, index: int) -> int:
    resource = None if events.is_memory_only(index) else events.columns.kineto_events[index].device_resource_id()
    return events.columns.threads[index] if resource is None else resource


def _trace_name(events: WindowEvents, index: int) -> str | None:
    return None if events.is_memory_only(index) else readable_name(read_name(events.columns.kineto_events[index]))


def _parent(events: WindowEvents, index: int) -> WindowEvent | None:
    parent = events.columns.parents[index]
    return None if parent < 0 else events.event(parent)


def _children(events: WindowEvents, index: int) -> list[WindowEvent]:
    return list(map(events.event, events.columns.children.get(index, ())))


_python_parent_id = _from_kineto("python_parent_id", lambda: -1)


def _python_parent(events: WindowEvents, index: int) -> int:
    parent = _python_parent_id(events, index)
    return events.columns.profiler_frames.above.get(parent, parent)


_get_extra_metadata = get_event_method("extra_meta")


def _metadata(events: WindowEvents, index: int) -> Any:
    extra = None if events.is_memory_only(index) else _get_extra_metadata(events.columns.kineto_events[index])
    return private_names.build_metadata(extra) if extra else None


_get_typed_metadata = get_event_method("typed_metadata")


def _typed_metadata(events: WindowEvents, index: int) -> Any:
    return None if events.is_memory_only(index) else _get_typed_metadata(events.columns.kineto_events[index]) or None


_ATTRIBUTES_OF_TORCH = frozenset(vars(FunctionEvent(0, "", 0, 0, 0)))
"""Attributes of torch's events; versions differ."""

_ATTRIBUTES: dict[str, _AttributeMaker] = {
    "id": _id,
    "node_id": _constant(-1),
    "name": _from_column("names"),
    "overload_name": _from_kineto("overload_name", str),
    "trace_name": _trace_name,
    "time_range": lambda events, index: Interval(events.columns.begins_us[index], events.columns.ends_us[index]),
    "thread": _from_column("threads"),
    "fwd_thread": _forward_thread,
    "kernels": lambda events, index: events.kernels(index),
    "count": _constant(1),
    "cpu_children": _children,
    "cpu_parent": _parent,
    "input_shapes": _from_kineto("shapes", list),
    "concrete_inputs": _from_kineto("concrete_inputs", _return_none),
    "kwinputs": _from_kineto("kwinputs", _return_none),
    "stack": lambda events, index: events.stacks[index],
    "scope": _from_kineto("scope", int),
    "use_device": lambda events, index: events.columns.use_device,
    "cpu_memory_usage": _from_column("cpu_bytes"),
    "device_memory_usage": _from_column("device_bytes"),
    "is_async": _from_column("is_async"),
    "is_remote": _constant(False),
    "sequence_nr": _from_kineto("sequence_nr", lambda: -1),
    "device_type": _from_kineto("device_type", lambda: DeviceType.CPU),
    "device_index": _from_kineto("device_index", int),
    "device_resource_id": _device_resource,
    "is_legacy": _constant(False),
    "flops": _from_kineto("flops", _return_none),
    "is_user_annotation": _from_kineto("is_user_annotation", bool),
    "is_python_function": _from_kineto("is_python_function", bool),
    "activity_type": _from_kineto("activity_type", _return_none),
    "self_cpu_percent": _constant(-1),
    "total_cpu_percent": _constant(-1),
    "total_device_percent": _constant(-1),
    "_metadata_json": _from_kineto("metadata_json", _return_none),
    "metadata_json": _from_kineto("metadata_json", _return_none),
    "metadata": _typed_metadata,
    "flow_id": _from_kineto("flow_id", _return_none),
    "flow_type": _from_kineto("flow_type", _return_none),
    "flow_start": _from_kineto("flow_start", _return_none),
    "external_id": _from_kineto("external_id", int),
    "linked_correlation_id": _from_kineto("linked_correlation_id", int),
    "event_metadata": _metadata,
    "_event_metadata": _metadata,
    "structured_input_shapes": _from_kineto("structured_input_shapes", _return_none),
    "structured_input_strides": _from_kineto("structured_input_strides", _return_none),
    "input_dtypes": _from_kineto("dtypes", _return_none),
    "python_id": _from_kineto("python_id", lambda: -1),
    "python_parent_id": _python_parent,
    "python_module_id": _from_kineto("python_module_id", lambda: -1),
}
