"""Table that ``key_averages()`` returns: events summed by operator, from columns."""

# torch declares floats as int, and attributes that are properties here.
# pyright: reportIncompatibleVariableOverride=false, reportAttributeAccessIssue=false

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg
from torch.profiler import DeviceType

from kinetoscope.torch.event_columns import EventColumns, get_event_method
from kinetoscope.torch.stacks import recorded_stacks

_COLUMNS = [
    "key",
    "count",
    "cpu_time_total",
    "self_cpu_time_total",
    "device_time_total",
    "self_device_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "flops",
    "overload_name",
    "input_shapes",
    "is_user_annotation",
]

_torch_parameters = inspect.signature(EventList.key_averages).parameters
INCLUDES_PYTHON_FUNCTIONS: bool = (
    _torch_parameters["include_python_functions"].default if "include_python_functions" in _torch_parameters else True
)
"""True if torch's tables include Python frames by default, as they do up to 2.13."""

FindEvent = Callable[[int], FunctionEvent]
"""Function that makes the event object of an index; it may make all of torch's objects, so call it on demand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grouping:
    """Properties by which events are grouped, in addition to their names."""

    by_input_shape: bool = False
    by_stack_n: int = 0
    by_overload_name: bool = False
    include_python_functions: bool = INCLUDES_PYTHON_FUNCTIONS


class EventAverage(FunctionEventAvg):
    """Row of `key_averages` that looks up the parent and children of its first event on demand."""

    def __init__(self, find_first: Callable[[], FunctionEvent]) -> None:
        super().__init__()
        self._find_first = find_first

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy as torch's class, with parent and children."""
        attributes = {name: value for name, value in vars(self).items() if name != "_find_first"}
        events = {"cpu_parent": self.cpu_parent, "cpu_children": self.cpu_children}
        return object.__new__, (FunctionEventAvg,), attributes | events

    @property
    def cpu_parent(self) -> FunctionEvent | None:
        """Parent of the first event."""
        return self._find_first().cpu_parent

    @cpu_parent.setter
    def cpu_parent(self, event: FunctionEvent | None) -> None:
        """Ignore the None that torch's constructor sets."""

    @property
    def cpu_children(self) -> list[FunctionEvent]:
        """Children of the first event."""
        return self._find_first().cpu_children

    @cpu_children.setter
    def cpu_children(self, events: list[FunctionEvent] | None) -> None:
        """Ignore the None that torch's constructor sets."""


class AverageList(EventList):
    """List that `key_averages` returns: torch's list with its ``table`` method, and `to_polars`."""

    def to_polars(self) -> Any:
        """Return the rows as a polars DataFrame, times in microseconds."""
        import polars  # not in a process that only trains

        as_text = {"input_shapes", "overload_name"}
        return polars.DataFrame(
            {
                name: [str(value) if name in as_text else value for value in map(attrgetter(name), self)]
                for name in _COLUMNS
            }
        )


def average_events(
    windows: list[tuple[EventColumns, FindEvent]], grouping: Grouping, *, profile_memory: bool, with_flops: bool
) -> AverageList:
    """Return the events of all ``windows``, summed by name and ``grouping``."""
    groups: dict[tuple[Any, ...], EventAverage] = {}
    for columns, find_event in windows:
        _WindowSummer(columns, find_event, grouping, with_flops).add_to(groups)
    rows = list(groups.values())
    for row in rows:
        row.stack = row.stack[: grouping.by_stack_n] if row.stack else []
        row.input_shapes = row.input_shapes if grouping.by_input_shape else ""
        row.overload_name = getattr(row, "overload_name", "") if grouping.by_overload_name else ""
    use_device = windows[0][0].use_device if windows else None
    return AverageList(rows, use_device=use_device, profile_memory=profile_memory, with_flops=with_flops)


class _WindowSummer:
    """Adds the events of one window to the rows of their groups."""

    def __init__(self, columns: EventColumns, find_event: FindEvent, grouping: Grouping, with_flops: bool) -> None:
        self._columns = columns
        self._find_event = find_event
        self._grouping = grouping
        self._stacks = recorded_stacks(columns) if grouping.by_stack_n > 0 else None
        self._are_annotations = columns.call_on_events("is_user_annotation", False)
        cpu_us, device_us = columns.cpu_us(), columns.device_us()
        self._summed: dict[str, Sequence[float]] = {
            "cpu_time_total": cpu_us,
            "device_time_total": device_us,
            "self_cpu_time_total": columns.self_values(cpu_us),
            "self_device_time_total": columns.self_values(device_us, with_devices=True),
            "cpu_memory_usage": columns.cpu_bytes,
            "device_memory_usage": columns.device_bytes,
            "self_cpu_memory_usage": columns.self_values(columns.cpu_bytes),
            "self_device_memory_usage": columns.self_values(columns.device_bytes),
            "flops": columns.call_on_events("flops", 0) if with_flops else (),
        }

    def add_to(self, groups: dict[tuple[Any, ...], EventAverage]) -> None:
        """Add the events of each key to its row of ``groups``, which is made if it is new."""
        members: dict[tuple[Any, ...], list[int]] = {}
        for index, key in enumerate(self._keys()):
            if index not in self._columns.removed and key is not None:
                members.setdefault(key, []).append(index)
        for key, indexes in members.items():
            row = groups.get(key)
            if row is None:
                row = groups[key] = self._new_row(indexes[0])
            row.count += len(indexes)
        for name, values in self._summed.items():
            if any(values):
                for key, indexes in members.items():
                    setattr(groups[key], name, _add_in_order(getattr(groups[key], name), values, indexes))

    def _keys(self) -> Iterable[tuple[Any, ...] | None]:
        """Return the key of each event's row; None for an event without a row."""
        columns, grouping = self._columns, self._grouping
        parts: list[Iterable[Any]] = [columns.names, columns.devices, self._are_annotations]
        if grouping.by_overload_name:
            parts.append(columns.call_on_events("overload_name", ""))
        if grouping.by_input_shape:
            parts.append(map(str, columns.call_on_events("shapes", [])))
        if self._stacks is not None:
            parts.append(tuple(stack[: grouping.by_stack_n]) for stack in self._stacks)
        keys = zip(*parts, strict=True)
        if grouping.include_python_functions:
            return keys
        are_frames = columns.call_on_events("is_python_function", False)
        return (None if is_frame else key for key, is_frame in zip(keys, are_frames, strict=True))

    def _new_row(self, index: int) -> EventAverage:
        columns, find_event = self._columns, self._find_event
        event = None if index in columns.memory_only else columns.kineto_events[index]
        row = EventAverage(lambda: find_event(index))
        row.key = columns.names[index]
        row.node_id = -1
        row.is_async = columns.is_async[index]
        row.use_device = columns.use_device
        row.overload_name = get_event_method("overload_name")(event) if event else ""
        row.input_shapes = event.shapes() if event else []
        row.stack = self._stacks[index] if self._stacks is not None else []
        row.scope = event.scope() if event else 0
        row.device_type = event.device_type() if event else DeviceType.CPU
        row.is_user_annotation = self._are_annotations[index]
        return row


def _add_in_order(total: float, values: Sequence[float], indexes: Iterable[int]) -> float:
    """Add one value after the other, as torch does; since Python 3.12, `sum` rounds differently."""
    for index in indexes:
        total += values[index]
    return total
