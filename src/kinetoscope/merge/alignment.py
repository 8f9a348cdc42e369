"""merge: one clock. What was found out about each file flows in; how far each has to be shifted flows out."""

from collections.abc import Sequence
from typing import Protocol

from kinetoscope.errors import MergeError


class Alignable(Protocol):
    """What `align` needs to know of a file, and ``shift_ns``, which it sets."""

    path: str
    has_clock: bool
    sync_us: int | None
    aligned_at_ns: int | None
    shift_ns: int

    @property
    def rank(self) -> int: ...


def align(files: Sequence[Alignable], align_on: str | None) -> None:
    """Puts all files on one clock: their own unix time, or that of the first file in which a span was found.

    ``files`` are in order of rank. With ``align_on``, a file without that span moves with the others of its rank:
    the cycles of one rank are on one clock. Raises `MergeError` for a file that cannot be placed.
    """
    if align_on is None:
        if not _align_on_sync(files):
            _require_clocks(files)
        return
    shifts = _shifts_by_rank(files, align_on)
    for file in files:
        if file.rank not in shifts:
            raise MergeError(
                f"Cannot merge: rank {file.rank} has no span {align_on!r} to align on. File: {file.path}. "
                "Choose a span that every rank recorded, such as one of its ProfilerStep#N."
            )
        own = file.aligned_at_ns
        file.shift_ns = shifts[file.rank] if own is None else _reference_ns(files, align_on) - own


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


def _shifts_by_rank(files: Sequence[Alignable], align_on: str) -> dict[int, int]:
    reference_ns = _reference_ns(files, align_on)
    shifts: dict[int, int] = {}
    for file in files:
        if file.aligned_at_ns is not None:
            shifts.setdefault(file.rank, reference_ns - file.aligned_at_ns)
    return shifts


def _reference_ns(files: Sequence[Alignable], align_on: str) -> int:
    found = next((file.aligned_at_ns for file in files if file.aligned_at_ns is not None), None)
    if found is None:
        raise MergeError(
            f"Cannot merge: no file has a span {align_on!r} to align on. First file: {files[0].path}. "
            "Choose a span that every rank recorded, such as one of its ProfilerStep#N."
        )
    return found
