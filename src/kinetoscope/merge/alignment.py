"""Alignment of files on one clock: the shift of each file's times, and the correction of their drift."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kinetoscope.core.clock.file_clock import DriftCorrection, FileClock
from kinetoscope.core.text.wording import format_ranks
from kinetoscope.errors import MergeError

_MAX_NAMED_SHIFTS = 8


class Alignable(Protocol):
    """A file as `align` reads it, and ``shift_ns`` and ``drift``, which it sets."""

    path: str
    has_clock: bool
    aligned_at_ns: int | None
    shift_ns: int
    drift: DriftCorrection | None

    @property
    def rank(self) -> int:
        """The rank of the file."""
        ...

    def common_ns(self, time_ns: int) -> int:
        """Return a moment of the file on the common clock."""
        ...

    @property
    def sync_us(self) -> int | None:
        """The moment, on the file's clock in us, that all ranks of a Composer run recorded together."""
        ...

    @property
    def clock(self) -> FileClock | None:
        """The clock of the file; None if it has none."""
        ...


def align(files: Sequence[Alignable], align_on: str | None, *, align_all: bool = False) -> None:
    """Put all files on one clock.

    It is rank 0's unix time where the clocks were compared during the run, else each file's own unix time.

    Files without a clock are moved so that the span ``align_on`` begins where it begins in the files with a clock, or
    else in the first file; ``align_all`` moves all files so. A file without that span moves with the other files of its
    rank, since the cycles of one rank share a clock. A single file needs no clock. ``files`` are in order of rank.
    Raises `MergeError` for a file that cannot be aligned.
    """
    if align_on is None and len(files) > 1 and not _align_on_sync(files):
        _require_clocks(files)
    placed = [file for file in files if file.has_clock and not align_all]
    _align_to_rank_0(placed)
    if align_on is not None:
        _align_on_span([file for file in files if file not in placed], placed, align_on)


def describe_alignment(files: Sequence[Alignable], align_on: str | None, *, align_all: bool = False) -> list[str]:
    """Return sentences on files that were aligned on a span, and on files without a clock."""
    if align_on is None:
        names = [Path(file.path).name for file in files if not file.has_clock and file.sync_us is None]
        return [f"{name} has no clock: its times count from an unknown moment." for name in names]
    if not align_all and all(file.has_clock for file in files):
        return [
            f"All files have a clock, so none was aligned on {align_on!r}. Pass align_all to align them all the same."
        ]
    lost = [file for file in files if file.shift_ns and (align_all or not file.has_clock)]
    shifts = list(dict.fromkeys(f"rank {file.rank} by {file.shift_ns / 1e9:+,.9f} s" for file in lost))
    more = f" and {len(shifts) - _MAX_NAMED_SHIFTS:,} more" if len(shifts) > _MAX_NAMED_SHIFTS else ""
    named = ", ".join(shifts[:_MAX_NAMED_SHIFTS])
    return [f"Moved so that {align_on!r} begins at the same time: {named}{more}."] if shifts else []


def describe_clocks(files: Sequence[Alignable]) -> list[dict[str, Any]]:
    """Return the clock relative to rank 0's of each rank with another clock, for a merged trace's header."""
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


def describe_clock_problems(files: Sequence[Alignable]) -> list[str]:
    """Return sentences on ranks whose times are uncertain."""
    clocks = [(file.rank, file.clock) for file in files if file.clock is not None]
    some_were_compared = any(clock.relation for _, clock in clocks)
    alone, once = set[int](), set[int]()
    for rank, clock in clocks:
        if clock.relation is None and clock.world_size > 1 and some_were_compared:
            alone.add(rank)
        elif clock.relation is not None and clock.relation.drift_ppm is None:
            once.add(rank)
    sentences = {
        "The times of {} are by the clock of the rank's own host, which was not compared with rank 0's.": alone,
        "The drift of the clock of {} is unknown: it was compared with rank 0's only once.": once,
    }
    return [sentence.format(format_ranks(sorted(ranks))) for sentence, ranks in sentences.items() if ranks]


def _align_to_rank_0(files: Sequence[Alignable]) -> None:
    lines = [file.clock.line for file in files if file.rank == 0 and file.clock is not None]
    for file in files:
        if file.clock is not None:
            file.shift_ns, file.drift = file.clock.shift_to_rank_0(lines)


def _align_on_sync(files: Sequence[Alignable]) -> bool:
    """Put files without unix time on the first one's clock by a common moment, as Composer's have."""
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


def _align_on_span(unaligned: Sequence[Alignable], aligned: Sequence[Alignable], align_on: str) -> None:
    """Move the ``unaligned`` files so that the span begins where it begins in the ``aligned`` ones."""
    if not unaligned:
        return
    reference_ns = _reference_ns(aligned or unaligned, align_on)
    shifts: dict[int, int] = {}
    for file in unaligned:
        if file.aligned_at_ns is not None:
            shifts.setdefault(file.rank, reference_ns - file.aligned_at_ns)
    for file in unaligned:
        if file.rank not in shifts:
            raise MergeError(
                f"Cannot merge: rank {file.rank} has no span {align_on!r} to align on. File: {file.path}. "
                "Choose a span that every rank recorded, such as one of its ProfilerStep#N."
            )
        own = file.aligned_at_ns
        file.shift_ns = shifts[file.rank] if own is None else reference_ns - own


def _reference_ns(files: Sequence[Alignable], align_on: str) -> int:
    """Return the start of the span in the first file that has it, on the common clock."""
    found = next((file.common_ns(file.aligned_at_ns) for file in files if file.aligned_at_ns is not None), None)
    if found is None:
        raise MergeError(
            f"Cannot merge: no file has a span {align_on!r} to align on. First file: {files[0].path}. "
            "Choose a span that every rank recorded, such as one of its ProfilerStep#N."
        )
    return found
