"""handlers: the windows that a killed process had not saved. Its log of windows and its own records flow in; when each
of these windows began and ended flows out.

The writer thread writes the log, and may have been behind when the process was killed. What the log does not say is
taken from the window before, and from the process's own records, which stand beside the number of their window.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kinetoscope.live.contents import LivePart, LiveProcess
from kinetoscope.live.record import RECORD_BYTES, Kind, record_columns, unpack_records
from kinetoscope.live.window_log import LiveWindow
from kinetoscope.training.timestamp import Timestamp, timestamp_from_fields


@dataclass(frozen=True, slots=True)
class UnsavedWindow:
    """A window that was opened and not saved: when it began and closed, and where the run was then. No two overlap.
    ``epochs`` are as `Cycle` has them.

    One that was still open has None as its ``end``, and ends with the last thing that is known.
    """

    number: int
    cycle: int
    began_ns: int
    closed_ns: int
    begin: Timestamp
    end: Timestamp | None
    epochs: Sequence[tuple[int, int]] = ()


def find_unsaved_windows(log: Iterable[LiveWindow], owner: LiveProcess | None, last_ns: int) -> list[UnsavedWindow]:
    """The windows that were not saved, by number.

    ``owner`` is what is left of the process that opened them, and ``last_ns`` the latest moment that is known.
    """
    windows = _all_windows(log, owner)
    found: list[UnsavedWindow] = []
    for window in windows:
        found.append(_complete(window, found[-1] if found else None, owner, last_ns))
    limits_ns = [following.began_ns - 1 for following in found[1:]] + [last_ns]
    return [
        replace(complete, closed_ns=min(complete.closed_ns, limit_ns))
        for window, complete, limit_ns in zip(windows, found, limits_ns, strict=True)
        if not window.is_saved
    ]


def _all_windows(log: Iterable[LiveWindow], owner: LiveProcess | None) -> list[LiveWindow]:
    """Those in the log, and those that were opened after its last line. One that is not in it and has a lower number
    was saved long ago."""
    known = {window.number: window for window in log}
    newest = max(known, default=0)
    tracks = owner.tracks if owner is not None else []
    numbers = {part.window for track in tracks for part in track.parts}
    numbers |= {span.series for track in tracks for span in track.open_spans}
    known |= {number: LiveWindow(number) for number in numbers if number > newest}
    return [known[number] for number in sorted(known)]


def _complete(
    window: LiveWindow, before: UnsavedWindow | None, owner: LiveProcess | None, last_ns: int
) -> UnsavedWindow:
    """A window with what the log does not say of it: ``before`` is the window before it."""
    cycle, began_ns = window.number - 1, 0
    if before is not None:
        cycle = before.cycle + window.number - before.number
        is_closed = before.end is not None
        began_ns = before.closed_ns + 1 if is_closed else _first_moment(owner, window.number, last_ns)
        began_ns = max(began_ns, before.began_ns + 1)
    return UnsavedWindow(
        number=window.number,
        cycle=cycle if window.cycle is None else window.cycle,
        began_ns=began_ns if window.began_ns is None else window.began_ns,
        closed_ns=last_ns if window.closed_ns is None else window.closed_ns,
        begin=_timestamp(window.timestamp) or (before and (before.end or before.begin)) or Timestamp(),
        end=_timestamp(window.end_timestamp),
        epochs=sorted(window.epochs),
    )


def _timestamp(fields: dict[str, int | float] | None) -> Timestamp | None:
    return timestamp_from_fields(fields) if fields is not None else None


def _first_moment(owner: LiveProcess | None, window: int, last_ns: int) -> int:
    """When the first thing began that a process recorded in a window: after all that it recorded in the ones before,
    whatever a damaged record says."""
    tracks = owner.tracks if owner is not None else []
    parts = [part for track in tracks for part in track.parts if len(part)]
    begins = [min(record_columns(part.read()).begin) for part in parts if part.window == window]
    begins += [span.begin for track in tracks for span in track.open_spans if span.series == window]
    before_ns = max((_end_of(part) for part in parts if part.window < window), default=-1)
    return max(min(begins, default=last_ns), before_ns + 1)


def _end_of(part: LivePart) -> int:
    """Records stand in the order in which they ended."""
    (last,) = unpack_records(part.read()[-RECORD_BYTES:])
    return int(last.end) if last.kind == Kind.SPAN else last.begin
