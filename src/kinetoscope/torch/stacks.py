"""Stacks of events, and the lines that ``export_stacks`` writes for flame graphs."""

from collections.abc import Iterator, Sequence
from typing import Any

import kinetoscope.torch.private_names as private_names
from kinetoscope.errors import SettingsError
from kinetoscope.torch.event_columns import EventColumns, has_frame_events
from kinetoscope.torch.python_frames import drop_from_stack

_BACKWARD = 1  # the scope of autograd's functions
# Frames that torch leaves out of stacks, because they only start the backward pass: part of the path, and function.
_HIDDEN_FRAMES = (
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"),
    ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
)
_CPU_METRIC, _DEVICES = "self_cpu_time_total", ("cuda", "xpu", "privateuse1")
_METRICS = (_CPU_METRIC, *(f"self_{device}_time_total" for device in _DEVICES))
_SEPARATORS = str.maketrans(" ;\t\n", "____")


def format_stack_lines(columns: EventColumns, metric: str, kineto_results: Any) -> Iterator[bytes]:
    """Yield a line for each event with a stack and at least 1 us of ``metric``: its frames, outermost first.

    Raises:
        SettingsError: torch has no such metric.
    """
    if metric not in _METRICS:
        raise SettingsError(f"There is no metric {metric!r}. Use one of {', '.join(_METRICS)}.")
    is_cpu = metric == _CPU_METRIC
    self_us = columns.self_values(columns.cpu_us() if is_cpu else columns.device_us(), with_devices=not is_cpu)
    stacks = _find_stacks(columns, kineto_results)
    for index in columns.shown_indexes():
        if stacks[index] and self_us[index] >= 1:
            frames = (frame.translate(_SEPARATORS) for frame in reversed(stacks[index]))
            yield f"{';'.join(frames)} {int(self_us[index])}\n".encode(errors="backslashreplace")


def _find_stacks(columns: EventColumns, kineto_results: Any) -> list[list[str]]:
    """Return the stacks that torch recorded, if its configuration is ``verbose``; else the frames around each event."""
    stacks = recorded_stacks(columns)
    if any(stacks):
        return stacks
    frames = _stacks_from_events(columns) if has_frame_events() else _stacks_from_tree(columns, kineto_results)
    return _add_forward_stacks(columns, frames)


def recorded_stacks(columns: EventColumns) -> list[list[str]]:
    """Return the stacks that torch recorded: empty unless its configuration is ``verbose``."""
    stacks = [
        [] if index in columns.memory_only else [frame for frame in drop_from_stack(event.stack()) if _is_frame(frame)]
        for index, event in enumerate(columns.kineto_events)
    ]
    return _add_forward_stacks(columns, stacks)


def _is_frame(entry: str) -> bool:
    """Return whether torch shows this frame in stacks."""
    return not any(file in entry and function in entry for file, function in _HIDDEN_FRAMES)


def _stacks_from_events(columns: EventColumns) -> list[list[str]]:
    """Return the Python frames around each event, where frames are events."""
    stacks: list[list[str]] = []
    are_python = columns.call_on_events("is_python_function", False)
    for index, parent in enumerate(columns.parents):
        around = stacks[parent] if parent >= 0 else []
        stacks.append(
            [columns.names[index], *around] if are_python[index] and _is_frame(columns.names[index]) else around
        )
    return stacks


def _stacks_from_tree(columns: EventColumns, kineto_results: Any) -> list[list[str]]:
    """Return the frames around each event from torch's event tree, for versions in which frames are not events."""
    by_number: dict[int, list[str]] = {}
    to_visit: list[tuple[Any, list[str]]] = [(root, []) for root in kineto_results.experimental_event_tree()]
    while to_visit:
        node, around = to_visit.pop()
        if node.tag in (private_names.EventType.PyCall, private_names.EventType.PyCCall):
            around = [node.name, *around]
        elif node.correlation_id:
            by_number[node.correlation_id] = [frame for frame in drop_from_stack(around) if _is_frame(frame)]
        to_visit.extend((child, around) for child in node.children)
    return [
        [] if index in columns.memory_only else by_number.get(event.correlation_id(), [])
        for index, event in enumerate(columns.kineto_events)
    ]


def _add_forward_stacks(columns: EventColumns, stacks: Sequence[list[str]]) -> list[list[str]]:
    """Return the stack of each event, innermost frame first; in the backward pass, that of the forward operator."""
    backward = _backward_functions(columns)
    forward: dict[tuple[int, int], list[str]] = {}
    for index in columns.shown_indexes():
        if backward[index] < 0:
            forward.setdefault((_sequence_number(columns, index), columns.threads[index]), stacks[index])
    return [
        stacks[index]
        if function < 0
        else forward.get((_sequence_number(columns, function), columns.kineto_events[function].fwd_thread_id()), [])
        for index, function in enumerate(backward)
    ]


def _sequence_number(columns: EventColumns, index: int) -> int:
    return -1 if index in columns.memory_only else columns.kineto_events[index].sequence_nr()


def _backward_functions(columns: EventColumns) -> list[int]:
    """Return the index of the innermost autograd function around each event, or -1."""
    functions: list[int] = []
    for index, parent in enumerate(columns.parents):
        is_function = index not in columns.memory_only and columns.kineto_events[index].scope() == _BACKWARD
        functions.append(index if is_function else functions[parent] if parent >= 0 else -1)
    return functions
