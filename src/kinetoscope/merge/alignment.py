"""merge: one clock. What was found out about each file flows in; how far each has to be shifted flows out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kinetoscope.clock.clock import Anchor, ClockLine
from kinetoscope.clock.relation import ClockRelation, relation_from_fields
from kinetoscope.errors import MergeError

_MOST_SHIFTS_NAMED = 8


@dataclass(frozen=True, slots=True)
class FileClock:
    """What a file says of its clock: how it ran beside unix time, and beside rank 0's clock if that is known."""

    line: ClockLine
    relation: ClockRelation | None
    world_size: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A clock's drift taken out: after ``over_ns`` from ``begin_ns`` on, times are ``gain_ns`` later."""

    begin_ns: int
    gain_ns: int
    over_ns: int

    def apply(self, event: dict[str, Any]) -> None:
        """Moves an event, ``ts`` and ``dur`` in nanoseconds; spans that nest still do."""
        if "ts" in event:
            begin_ns = self.moved(event["ts"])
            if "dur" in event:
                event["dur"] = self.moved(event["ts"] + event["dur"]) - begin_ns
            event["ts"] = begin_ns

    def moved(self, time_ns: int) -> int:
        """A moment with the drift taken out."""
        return time_ns + (time_ns - self.begin_ns) * self.gain_ns // self.over_ns

    def unmoved(self, time_ns: int) -> int:
        """The moment that `moved` moves there, to the nanosecond or so."""
        return self.begin_ns + (time_ns - self.begin_ns) * self.over_ns // (self.over_ns + self.gain_ns)


class Alignable(Protocol):
    """What `align` needs to know of a file, and ``shift_ns`` and ``stretch``, which it sets."""

    path: str
    has_clock: bool
    aligned_at_ns: int | None
    shift_ns: int
    stretch: Stretch | None

    @property
    def rank(self) -> int: ...
    def common_ns(self, time_ns: int) -> int: ...
    @property
    def sync_us(self) -> int | None: ...
    @property
    def clock(self) -> FileClock | None: ...


def align(files: Sequence[Alignable], align_on: str | None, *, align_all: bool = False) -> None:
    """Puts all files on one clock: rank 0's unix time, as far as clocks were compared while the run went on, else their
    own unix time.

    ``align_on`` puts files without a clock where that span begins in those that have one, or else in the first file;
    ``align_all`` does so with all files. A file without that span moves with the others of its rank: the cycles of one
    rank are on one clock. One file alone needs no clock. ``files`` are in order of rank. Raises `MergeError` for a file
    that cannot be placed.
    """
    if align_on is None and len(files) > 1 and not _align_on_sync(files):
        _require_clocks(files)
    placed = [file for file in files if file.has_clock and not align_all]
    _put_beside_rank_0(placed)
    if align_on is not None:
        _align_on_span([file for file in files if file not in placed], placed, align_on)


def notes_on_alignment(files: Sequence[Alignable], align_on: str | None, *, align_all: bool = False) -> list[str]:
    """Sentences on files that were moved to where a span begins, and on those without a clock."""
    if align_on is None:
        names = [Path(file.path).name for file in files if not file.has_clock and file.sync_us is None]
        return [f"{name} has no clock: its times count from a moment that nobody knows." for name in names]
    if not align_all and all(file.has_clock for file in files):
        return [
            f"All files have a clock, so nothing was aligned on {align_on!r}. Pass align_all to do it all the same."
        ]
    lost = [file for file in files if file.shift_ns and (align_all or not file.has_clock)]
    shifts = list(dict.fromkeys(f"rank {file.rank} by {file.shift_ns / 1e9:+,.9f} s" for file in lost))
    more = f" and {len(shifts) - _MOST_SHIFTS_NAMED:,} more" if len(shifts) > _MOST_SHIFTS_NAMED else ""
    named = ", ".join(shifts[:_MOST_SHIFTS_NAMED])
    return [f"Moved so that {align_on!r} begins together: {named}{more}."] if shifts else []


def file_clock(own_header: dict[str, Any]) -> FileClock | None:
    """What a trace's own header says of its clock; None if it says nothing that can be used."""
    try:
        clock = own_header["clock"]
        begin, end = (Anchor(it["monotonic_ns"], it["unix_ns"], it["bound_ns"]) for it in clock["anchors"])
        beside = clock.get("beside_rank0")
        relation = relation_from_fields(beside) if beside else None
        return FileClock(ClockLine(begin, end), relation, int(own_header.get("world_size", 1)))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def describe_clocks(files: Sequence[Alignable]) -> list[dict[str, Any]]:
    """For a merged trace's header: each rank with a clock of its own, how it ran beside rank 0's, and within what."""
    clocks: dict[int, dict[str, Any]] = {}
    for file in files:
        relation = file.clock.relation if file.clock else None
        if file.clock is None or relation is None or relation.is_same:
            continue
        line = file.clock.line
        found = relation.description(line.start.monotonic_ns, line.end.monotonic_ns)
        known = clocks.setdefault(file.rank, {"rank": file.rank, "bound_ns": 0})
        known |= {key: found[key] for key in ("offset_ns", "drift_ppm")}
        known["bound_ns"] = max(known["bound_ns"], found["bound_ns"])
    return list(clocks.values())


def notes_on_clocks(files: Sequence[Alignable]) -> list[str]:
    """Sentences on ranks whose times are less sure than they look."""
    clocks = [(file.rank, file.clock) for file in files if file.clock is not None]
    some_were_compared = any(clock.relation for _, clock in clocks)
    notes = {}
    for rank, clock in clocks:
        if clock.relation is None and clock.world_size > 1 and some_were_compared:
            notes[rank] = f"Rank {rank}'s clock was not compared with rank 0's: its times are its own host's."
        elif clock.relation is not None and clock.relation.drift_ppm is None:
            notes[rank] = f"The drift of rank {rank}'s clock is not known: it was compared with rank 0's only once."
    return list(notes.values())


def _put_beside_rank_0(files: Sequence[Alignable]) -> None:
    lines = [file.clock.line for file in files if file.rank == 0 and file.clock is not None]
    for file in files:
        clock = file.clock
        if clock is None or clock.relation is None or clock.relation.is_same:
            continue
        begin_ns, end_ns = clock.line.start.monotonic_ns, clock.line.end.monotonic_ns
        file.shift_ns = _shift_at(begin_ns, clock.line, clock.relation, lines)
        gain_ns = _shift_at(end_ns, clock.line, clock.relation, lines) - file.shift_ns
        if gain_ns and end_ns > begin_ns:
            file.stretch = Stretch(clock.line.unix_ns(begin_ns), gain_ns, end_ns - begin_ns)


def _shift_at(monotonic_ns: int, line: ClockLine, relation: ClockRelation, rank0_lines: list[ClockLine]) -> int:
    """How far rank 0's unix time is ahead of this rank's, when this rank's clock shows ``monotonic_ns``."""
    on_rank_0_ns = monotonic_ns + relation.offset_ns(monotonic_ns)
    reference = ClockLine(relation.reference, relation.reference)
    rank0_line = min(rank0_lines, key=lambda it: abs(it.start.monotonic_ns - on_rank_0_ns), default=reference)
    return rank0_line.unix_ns(on_rank_0_ns) - line.unix_ns(monotonic_ns)


def _align_on_sync(files: Sequence[Alignable]) -> bool:
    """Files without unix time whose ranks noted a common moment, as Composer's do, are put on the first one's clock."""
    if all(file.has_clock for file in files) or any(file.sync_us is None for file in files):
        return False
    reference_us = files[0].sync_us or 0
    for file in files:
        file.shift_ns = (reference_us - (file.sync_us or 0)) * 1000
    return True


def _require_clocks(files: Sequence[Alignable]) -> None:
    for file in files:
        if not file.has_clock:
            raise MergeError(
                f"Cannot merge: rank {file.rank} has no clock anchor. File: {file.path}. It was written without "
                'Profiler, so its clock cannot be compared. Pass align_on="ProfilerStep#100" (on the command line: '
                "--align-on 'ProfilerStep#100') to align on a common span."
            )


def _align_on_span(lost: Sequence[Alignable], placed: Sequence[Alignable], align_on: str) -> None:
    """Moves the ``lost`` files to where the span begins in those that are ``placed``."""
    if not lost:
        return
    reference_ns = _reference_ns(placed or lost, align_on)
    shifts: dict[int, int] = {}
    for file in lost:
        if file.aligned_at_ns is not None:
            shifts.setdefault(file.rank, reference_ns - file.aligned_at_ns)
    for file in lost:
        if file.rank not in shifts:
            raise MergeError(
                f"Cannot merge: rank {file.rank} has no span {align_on!r} to align on. File: {file.path}. "
                "Choose a span that every rank recorded, such as one of its ProfilerStep#N."
            )
        own = file.aligned_at_ns
        file.shift_ns = shifts[file.rank] if own is None else reference_ns - own


def _reference_ns(files: Sequence[Alignable], align_on: str) -> int:
    """Where the span begins in the first of the files that has it, on the common clock."""
    found = next((file.common_ns(file.aligned_at_ns) for file in files if file.aligned_at_ns is not None), None)
    if found is None:
        raise MergeError(
            f"Cannot merge: no file has a span {align_on!r} to align on. First file: {files[0].path}. "
            "Choose a span that every rank recorded, such as one of its ProfilerStep#N."
        )
    return found
