"""Snapshots of the pulses of many ranks at once, from their headers and last steps only.

Each takes tenths of a millisecond. Files are opened, listed and read, and never changed.
"""

import os
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from pathlib import Path
from statistics import median

from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, RunFolder
from kinetoscope.errors import TraceFileError, UnsafePathError
from kinetoscope.pulse.header import PulseHeader
from kinetoscope.pulse.layout import (
    COARSE_AT,
    FINE_AT,
    FOLDER,
    HEADER_BYTES,
    MAX_NS,
    NUM_EXACT,
    STEP,
    STEPS_AT,
    SUFFIX,
    Phase,
    PulseNow,
)
from kinetoscope.pulse.node_copier import COPY_SUFFIX
from kinetoscope.pulse.pulse_file import PulseFile, find_pulse_files

NUM_LAST = 32
"""A step takes now what the median of so many last ones took."""

MAX_FILES = 16_384
"""The limit of files read from a folder: those that started last."""

_FLAGS = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
_DURATION, _FIRST_PHASE = 2, 3  # of the fields of a step
_BEGIN = struct.Struct("<qq")  # of a step and of a block: its number, and when it began


@dataclass(frozen=True)
class RankSnapshot:
    """The current state of a process, at ``read_ns`` in unix time.

    ``step`` is the number of its last complete step, ``step_ns`` the current time per step, ``run_step_ns`` the average
    since the first one began; None before the first is complete. ``last_steps`` are the fields of `layout.STEP`.
    """

    header: PulseHeader
    read_ns: int
    step: int | None
    step_ns: float | None
    run_step_ns: float | None
    last_steps: Sequence[tuple[int, ...]] = field(default=(), repr=False)

    @property
    def phases_ns(self) -> tuple[float | None, ...]:
        """The mean time of each phase in the last steps; None for one that was not watched in all of them."""
        if not self.last_steps:
            return (None,) * len(Phase)
        *columns, known_phases = zip(*self.last_steps, strict=True)
        known = reduce(and_, known_phases)
        times_ns = (sum(columns[_FIRST_PHASE + phase]) / len(self.last_steps) for phase in Phase)
        return tuple(time_ns if known >> phase & 1 else None for phase, time_ns in zip(Phase, times_ns, strict=True))


@dataclass(frozen=True)
class RunSnapshot:
    """The ``last`` start of each rank in a run's last attempt, by rank, and sentences on what could not be read."""

    last: list[RankSnapshot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_run_snapshot(run_folder: Path) -> RunSnapshot:
    """Return the current state of the ranks of a run; never raise, with any content of the folder."""
    if not HAS_RUN_FOLDERS:
        return RunSnapshot(notes=["This system cannot open the folder of a run."])
    run = RunFolder(run_folder)
    try:
        with run.open_folder(FOLDER) as folder:
            return _read_all(folder, run.path / FOLDER)
    except FileNotFoundError:
        return RunSnapshot()
    except (OSError, UnsafePathError) as error:
        return RunSnapshot(notes=[f"Cannot read {run.path / FOLDER}: {_reason(error)}."])


def _read_all(folder: int, path: Path) -> RunSnapshot:
    names = [name for name in os.listdir(folder) if name.endswith((SUFFIX, COPY_SUFFIX))]
    names.sort(key=lambda name: (name.endswith(COPY_SUFFIX), name), reverse=True)
    found: list[RankSnapshot] = []
    notes: list[str] = []
    if len(names) > MAX_FILES:
        notes.append(f"There are {len(names):,} pulses in {path}: only the last {MAX_FILES:,} were looked at.")
    for name in names[:MAX_FILES]:
        try:
            found += _read_file(folder, name, path / name)
        except FileNotFoundError:
            continue  # its rank, or node, has just ended
        except (OSError, TraceFileError, UnsafePathError) as error:
            notes.append(_sentence(path / name, error))
    return RunSnapshot(select_last_launch(found), notes)


def _sentence(path: Path, error: Exception) -> str:
    return f"{error}" if isinstance(error, TraceFileError) else f"Cannot read {path}: {_reason(error)}."


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{error}".rstrip(".")


def _read_file(folder: int, name: str, path: Path) -> Iterator[RankSnapshot]:
    """Return the pulse in a file, or those in a copy of several.

    All of a copy are of the moment when it was written.
    """
    descriptor = os.open(name, _FLAGS, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TraceFileError(f"{path} is no pulse of a run: it is no file.")
        is_copy = name.endswith(COPY_SUFFIX)
        for file in find_pulse_files(descriptor, path):
            with suppress(TraceFileError) if is_copy else nullcontext():
                yield _build_snapshot(file, status.st_mtime_ns if is_copy else time.time_ns())
    finally:
        os.close(descriptor)


def _build_snapshot(file: PulseFile, read_ns: int) -> RankSnapshot:
    _, header, now, _ = file.read_start(HEADER_BYTES)
    steps = _last_steps(file, now.num_steps)
    if not steps:
        return RankSnapshot(header, read_ns, None, None, None)
    number, began_ns, duration_ns, *_ = steps[-1]
    elapsed_ns = began_ns + duration_ns - _first_step_begin_ns(file, now)
    run_step_ns = elapsed_ns / now.num_steps if 0 <= elapsed_ns < MAX_NS else None
    step_ns = median(step[_DURATION] for step in steps)
    return RankSnapshot(header, read_ns, number, step_ns, run_step_ns, steps)


def _last_steps(file: PulseFile, num_steps: int) -> list[tuple[int, ...]]:
    """Return the fields of `layout.STEP` of each of the last steps.

    None of them can have been replaced meanwhile: their slots are used again after thousands of steps.
    """
    first = max(0, num_steps - NUM_LAST)
    begin, end = first % NUM_EXACT, first % NUM_EXACT + num_steps - first
    content = file.read((min(end, NUM_EXACT) - begin) * STEP.size, STEPS_AT + begin * STEP.size)
    if end > NUM_EXACT:
        content += file.read((end - NUM_EXACT) * STEP.size, STEPS_AT)
    return [step for step in STEP.iter_unpack(content) if all(0 <= value < MAX_NS for value in step)]


def _first_step_begin_ns(file: PulseFile, now: PulseNow) -> int:
    """Return the start of the first step on the monotonic clock; it is in the oldest block."""
    at = STEPS_AT if now.num_steps <= NUM_EXACT else COARSE_AT if now.first_fine else FINE_AT
    _, began_ns = _BEGIN.unpack(file.read(_BEGIN.size, at))
    return began_ns


def select_last_launch(snapshots: Sequence[RankSnapshot]) -> list[RankSnapshot]:
    """Return of each rank its last start in the last attempt, by rank.

    In a folder that was used again, pulses of the launch before may be left, of ranks that the last launch does not
    have, or has not started yet. These have no heartbeat since the youngest process began, and lived at the same time
    as an earlier process of its rank.
    """
    last_attempt = max((_attempt(snapshot) for snapshot in snapshots), default=0)
    newest: dict[str, RankSnapshot] = {}
    for snapshot in snapshots:
        start = snapshot.header.process.attempt.start
        if _attempt(snapshot) == last_attempt and (
            start not in newest or newest[start].header.age < snapshot.header.age
        ):
            newest[start] = snapshot
    by_rank = {_rank(snapshot): snapshot for _, snapshot in sorted(newest.items())}
    if not by_rank:
        return []
    youngest = max(by_rank.values(), key=_start_ns)
    before_ns = [
        snapshot.header.heartbeat_ns
        for snapshot in newest.values()
        if _rank(snapshot) == _rank(youngest) and snapshot is not youngest
    ]
    return [
        snapshot
        for rank, snapshot in sorted(by_rank.items())
        if rank < youngest.header.process.ranks.world_size
        and not (
            _start_ns(snapshot) <= max(before_ns, default=-1) and snapshot.header.heartbeat_ns < _start_ns(youngest)
        )
    ]


def _attempt(snapshot: RankSnapshot) -> int:
    return snapshot.header.process.attempt.restart


def _rank(snapshot: RankSnapshot) -> int:
    return snapshot.header.process.ranks.rank


def _start_ns(snapshot: RankSnapshot) -> int:
    return snapshot.header.process.unix_ns
