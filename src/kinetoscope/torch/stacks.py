"""torch: stacks for flame graphs. Columns of events flow in; lines of frames and microseconds flow out."""

from collections.abc import Iterator
from typing import Any

from torch._C._profiler import _EventType

from kinetoscope.errors import SettingsError
from kinetoscope.torch.event_columns import EventColumns, stacks_of
from kinetoscope.torch.key_averages import is_frame, recorded_stacks
from kinetoscope.torch.kineto_event import frames_are_events
from kinetoscope.torch.own_frames import without_own

_HOST, _DEVICES = "self_cpu_time_total", ("cuda", "xpu", "privateuse1")
_METRICS = (_HOST, *(f"self_{device}_time_total" for device in _DEVICES))
_SEPARATORS = str.maketrans(" ;\t\n", "____")


def stack_lines(columns: EventColumns, metric: str, kineto_results: Any) -> Iterator[bytes]:
    """A line for each event that has a stack and a whole microsecond of ``metric``: frames, outermost first.

    Raises `SettingsError` for a metric that torch does not know.
    """
    if metric not in _METRICS:
        raise SettingsError(f"There is no metric {metric!r}. Take one of {', '.join(_METRICS)}.")
    is_host = metric == _HOST
    own_us = columns.own(columns.host_us() if is_host else columns.device_us(), elsewhere=not is_host)
    stacks = _stacks(columns, kineto_results)
    for index in columns.shown():
        if stacks[index] and own_us[index] >= 1:
            frames = (frame.translate(_SEPARATORS) for frame in reversed(stacks[index]))
            yield f"{';'.join(frames)} {int(own_us[index])}\n".encode(errors="backslashreplace")


def _stacks(columns: EventColumns, kineto_results: Any) -> list[list[str]]:
    """torch's stacks, which are there if its configuration is ``verbose``; else the frames around each event."""
    stacks = recorded_stacks(columns)
    if any(stacks):
        return stacks
    frames = _frames_around(columns) if frames_are_events() else _frames_in_tree(columns, kineto_results)
    return stacks_of(columns, frames)


def _frames_around(columns: EventColumns) -> list[list[str]]:
    stacks: list[list[str]] = []
    are_python = columns.of_sources("is_python_function", False)
    for index, parent in enumerate(columns.parents):
        around = stacks[parent] if parent >= 0 else []
        stacks.append(
            [columns.names[index], *around] if are_python[index] and is_frame(columns.names[index]) else around
        )
    return stacks


def _frames_in_tree(columns: EventColumns, kineto_results: Any) -> list[list[str]]:
    """The same of a torch whose events are operators alone: its tree has their frames."""
    by_number: dict[int, list[str]] = {}
    to_visit: list[tuple[Any, list[str]]] = [(root, []) for root in kineto_results.experimental_event_tree()]
    while to_visit:
        node, around = to_visit.pop()
        if node.tag in (_EventType.PyCall, _EventType.PyCCall):
            around = [node.name, *around]
        elif node.correlation_id:
            by_number[node.correlation_id] = [frame for frame in without_own(around) if is_frame(frame)]
        to_visit.extend((child, around) for child in node.children)
    return [
        [] if index in columns.memory_only else by_number.get(event.correlation_id(), [])
        for index, event in enumerate(columns.sources)
    ]
