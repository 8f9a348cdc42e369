"""Log ``windows.jsonl`` in a spool folder, with the start and the end of each window, and whether it is saved.

The writer thread of the folder's process appends one JSON object per line. `recover` reads it.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.core.job.ranks import Number
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.header import Moment, describe_validation_error
from kinetoscope.formats.journal import append_line, read_journal

_LOG = "windows.jsonl"
_MAX_LOG_BYTES = 256 << 10  # beyond this, the file is written anew without the windows that are saved
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class WindowOpened(msgspec.Struct, frozen=True, tag="opened"):
    """A window has opened.

    ``window`` is the recorder's number for it, ``cycle`` the number of its cycle, ``timestamp`` the position
    of training, and ``began_ns`` its start on the monotonic clock.
    """

    window: Number
    cycle: Number
    began_ns: Nanoseconds
    timestamp: Moment


class EpochBegan(msgspec.Struct, frozen=True, tag="epoch"):
    """The epoch with that number has begun in a window, at ``began_ns`` on the monotonic clock."""

    window: Number
    began_ns: Nanoseconds
    epoch: Number


class WindowActive(msgspec.Struct, frozen=True, tag="active"):
    """The batches of a window were warm-ups before this one, which is counted in the run."""

    window: Number
    batch: Nanoseconds


class WindowClosed(msgspec.Struct, frozen=True, tag="closed"):
    """A window has closed and is not saved yet. Its process has written ``num_records``, None if that is unknown."""

    window: Number
    closed_ns: Nanoseconds
    timestamp: Moment
    num_records: Nanoseconds | None = None


class WindowSaved(msgspec.Struct, frozen=True, tag="saved"):
    """Every handler has accepted the records of a window, so `recover` skips it."""

    window: Number


Event = WindowOpened | EpochBegan | WindowActive | WindowClosed | WindowSaved


class WindowLog:
    """A writer of the log of one spool folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._lines: list[tuple[int, bytes]] = []
        self._last_saved = 0
        self._num_bytes = 0
        self._lacks_lines = False

    def append(self, event: Event) -> None:
        """Append an event of a window. Raises OSError if it cannot be written.

        An event that was not written is written with the next one, if possible.
        """
        line = msgspec.json.encode(event)
        if isinstance(event, WindowSaved):
            self._lines = [(window, text) for window, text in self._lines if window != self._last_saved]
            self._last_saved = event.window
        self._lines.append((event.window, line))
        if self._lacks_lines or self._num_bytes > _MAX_LOG_BYTES:
            self._write_anew()
        else:
            self._lacks_lines = True
            append_line(self._folder, _LOG, line)
            self._num_bytes += len(line) + 1
        self._lacks_lines = False

    def _write_anew(self) -> None:
        """Replace the file completely or not at all, even if the process is killed meanwhile."""
        content = b"".join(line + b"\n" for _, line in self._lines)
        self._folder.write(_LOG, content)
        self._num_bytes = len(content)


@dataclass(slots=True)
class LoggedWindow:
    """The entries of the log about one window; None for missing ones."""

    number: int
    cycle: int | None = None
    began_ns: int | None = None
    timestamp: Moment | None = None
    closed_ns: int | None = None
    end_timestamp: Moment | None = None
    is_saved: bool = False
    epochs: list[tuple[int, int]] = field(default_factory=list)
    first_active: int | None = None
    num_records: int | None = None

    def apply(self, event: Event) -> None:
        """Add the entry of one more line about this window."""
        match event:
            case WindowOpened():
                self.cycle, self.began_ns, self.timestamp = event.cycle, event.began_ns, event.timestamp
            case EpochBegan():
                self.epochs.append((event.began_ns, event.epoch))
            case WindowActive():
                self.first_active = event.batch
            case WindowClosed():
                self.closed_ns, self.end_timestamp = event.closed_ns, event.timestamp
                self.num_records = event.num_records
            case WindowSaved():
                self.is_saved = True


def has_log(folder: Path) -> bool:
    """Return whether a spool folder has a log, which exists before the first record."""
    status = RunFolder(folder).status(_LOG)
    return status is not None and status.st_size > 0


def read_windows(folder: Path) -> tuple[list[LoggedWindow], list[str]]:
    """Return the windows in a folder's log, ordered by number, and a sentence for each unreadable line.

    Windows that were saved long ago are missing. An unfinished last line is ignored.
    """
    windows: dict[int, LoggedWindow] = {}
    damages: list[str] = []

    def add_damage(number: int, error: Exception) -> None:
        reason = (
            f": {describe_validation_error(error)}"
            if isinstance(error, msgspec.ValidationError)
            else f", it cannot be read: {error}"
        )
        damages.append(f"{_LOG}: line {number} is left out{reason}.")

    try:
        for event in read_journal(RunFolder(folder), _LOG, Event, add_damage):
            windows.setdefault(event.window, LoggedWindow(event.window)).apply(event)
    except FileNotFoundError:
        pass
    except OSError as error:
        damages.append(f"{_LOG} is left out: {(error.strerror or str(error)).rstrip('.')}.")
    return [windows[number] for number in sorted(windows)], damages


class SavedWindows:
    """The saved windows among those of `read_windows`."""

    def __init__(self, windows: list[LoggedWindow]) -> None:
        known = [(window.began_ns, window.is_saved) for window in windows if window.began_ns is not None]
        self._began_ns = [began_ns for began_ns, _ in known]
        self._are_saved = [is_saved for _, is_saved in known]

    def contains(self, begin_ns: int) -> bool:
        """Return whether a record that began at this moment, on the monotonic clock, is saved.

        Records from before the first known window were saved long ago.
        """
        place = bisect_right(self._began_ns, begin_ns) - 1
        return self._are_saved[place] if place >= 0 else bool(self._began_ns)
