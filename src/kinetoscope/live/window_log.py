"""live: the log of windows in a live folder, ``windows.jsonl``. What happens to each window flows in; which windows
are not saved flows out, for `recover`.

One JSON object per line, appended by the writer thread of the folder's process.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.formats.own_json import append_line
from kinetoscope.training.run_folder import RunFolder

_LOG = "windows.jsonl"
_MOST_LOG_BYTES = 256 << 10  # then the lines of windows that are saved go
Fields = dict[str, int | float]
"""The fields of a timestamp, as `timestamp_fields` gives them."""


Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class WindowOpened(msgspec.Struct, frozen=True, tag="opened"):
    """A window has opened: the recorder's number for it, its cycle's, and where the run was. ``began_ns`` is on the
    monotonic clock."""

    window: Number
    cycle: Number
    began_ns: Nanoseconds
    timestamp: Fields


class EpochBegan(msgspec.Struct, frozen=True, tag="epoch"):
    """Another epoch has begun in a window, on the monotonic clock: the one of that number."""

    window: Number
    began_ns: Nanoseconds
    epoch: Number


class WindowClosed(msgspec.Struct, frozen=True, tag="closed"):
    """A window has closed, and is yet to be saved."""

    window: Number
    closed_ns: Nanoseconds
    timestamp: Fields


class WindowSaved(msgspec.Struct, frozen=True, tag="saved"):
    """Every handler has what was recorded in a window: `recover` leaves it out."""

    window: Number


Event = WindowOpened | EpochBegan | WindowClosed | WindowSaved

_DECODER = msgspec.json.Decoder(Event)


class WindowLog:
    """Writes the log of one live folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._lines: list[tuple[int, bytes]] = []
        self._last_saved = 0
        self._num_bytes = 0

    def append(self, event: Event) -> None:
        """Writes down what has happened to a window. Raises OSError if it cannot be written."""
        line = msgspec.json.encode(event)
        if isinstance(event, WindowSaved):
            self._lines = [it for it in self._lines if it[0] != self._last_saved]
            self._last_saved = event.window
        self._lines.append((event.window, line))
        if self._num_bytes > _MOST_LOG_BYTES:
            self._write_anew()
        else:
            append_line(self._folder, _LOG, line)
            self._num_bytes += len(line) + 1

    def _write_anew(self) -> None:
        """Whole or not at all: a kill may come at any moment."""
        content = b"".join(line + b"\n" for _, line in self._lines)
        self._folder.write(_LOG, content)
        self._num_bytes = len(content)


@dataclass(slots=True)
class LiveWindow:
    """What the log says of one window; None for what it does not, or not yet."""

    number: int
    cycle: int | None = None
    began_ns: int | None = None
    timestamp: Fields | None = None
    closed_ns: int | None = None
    end_timestamp: Fields | None = None
    is_saved: bool = False
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        """Takes in one more line about this window."""
        match event:
            case WindowOpened():
                self.cycle, self.began_ns, self.timestamp = event.cycle, event.began_ns, event.timestamp
            case EpochBegan():
                self.epochs.append((event.began_ns, event.epoch))
            case WindowClosed():
                self.closed_ns, self.end_timestamp = event.closed_ns, event.timestamp
            case WindowSaved():
                self.is_saved = True


def read_windows(folder: Path) -> tuple[list[LiveWindow], list[str]]:
    """The windows in a folder's log by number, and a sentence for each of its lines that cannot be read.

    Windows that were saved long ago are left out. A last line that was not finished is passed over.
    """
    windows: dict[int, LiveWindow] = {}
    damages: list[str] = []
    for number, line in _lines(RunFolder(folder), damages):
        try:
            event = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            damages.append(f"{_LOG}: line {number} is left out, it cannot be read: {error}.")
        else:
            windows.setdefault(event.window, LiveWindow(event.window)).apply(event)
    return [windows[number] for number in sorted(windows)], damages


class SavedWindows:
    """Tells what was recorded in windows that are saved; ``windows`` are those of `read_windows`."""

    def __init__(self, windows: list[LiveWindow]) -> None:
        known = [(window.began_ns, window.is_saved) for window in windows if window.began_ns is not None]
        self._began_ns = [began_ns for began_ns, _ in known]
        self._are_saved = [is_saved for _, is_saved in known]

    def hold(self, begin_ns: int) -> bool:
        """Whether what began at this moment, on the monotonic clock, is saved. What began before all that are known
        was saved long ago."""
        place = bisect_right(self._began_ns, begin_ns) - 1
        return self._are_saved[place] if place >= 0 else bool(self._began_ns)


def _lines(folder: RunFolder, damages: list[str]) -> Iterator[tuple[int, bytes]]:
    """The finished lines with their numbers, which count from 1."""
    try:
        content = folder.read(_LOG)
    except FileNotFoundError:
        return
    except OSError as error:
        damages.append(f"{_LOG} is left out: {(error.strerror or str(error)).rstrip('.')}.")
        return
    yield from enumerate(content.split(b"\n")[:-1], 1)
