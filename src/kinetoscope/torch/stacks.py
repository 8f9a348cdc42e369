"""torch: stacks for flame graphs. Columns of events flow in; lines of frames and microseconds flow out."""

from collections.abc import Iterator

from kinetoscope.errors import SettingsError
from kinetoscope.torch.event_columns import EventColumns, stacks_of
from kinetoscope.torch.key_averages import is_frame, recorded_stacks

_HOST, _DEVICES = "self_cpu_time_total", ("cuda", "xpu", "privateuse1")
_METRICS = (_HOST, *(f"self_{device}_time_total" for device in _DEVICES))
_SEPARATORS = str.maketrans(" ;\t\n", "____")


def stack_lines(columns: EventColumns, metric: str) -> Iterator[bytes]:
    """A line for each event that has a stack and a whole microsecond of ``metric``: frames, outermost first.

    Raises `SettingsError` for a metric that torch does not know.
    """
    if metric not in _METRICS:
        raise SettingsError(f"There is no metric {metric!r}. Take one of {', '.join(_METRICS)}.")
    is_host = metric == _HOST
    own_us = columns.own(columns.host_us() if is_host else columns.device_us(), elsewhere=not is_host)
    stacks = _stacks(columns)
    for index in columns.shown():
        if stacks[index] and own_us[index] >= 1:
            frames = (frame.translate(_SEPARATORS) for frame in reversed(stacks[index]))
            yield f"{';'.join(frames)} {int(own_us[index])}\n".encode(errors="backslashreplace")


def _stacks(columns: EventColumns) -> list[list[str]]:
    """torch's stacks, which are there if its configuration is ``verbose``; else the frames around each event."""
    stacks = recorded_stacks(columns)
    return stacks if any(stacks) else stacks_of(columns, _frames_around(columns))


def _frames_around(columns: EventColumns) -> list[list[str]]:
    stacks: list[list[str]] = []
    are_python = columns.of_sources("is_python_function", False)
    for index, parent in enumerate(columns.parents):
        around = stacks[parent] if parent >= 0 else []
        stacks.append(
            [columns.names[index], *around] if are_python[index] and is_frame(columns.names[index]) else around
        )
    return stacks
