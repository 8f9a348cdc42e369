"""Reading of a run's pulses, while it runs or later, in whatever way it ended."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kinetoscope.core.clock.clock import ClockLine
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, RunFolder
from kinetoscope.errors import TraceFileError
from kinetoscope.pulse.header import PulseHeader
from kinetoscope.pulse.layout import (
    BLOCK,
    COARSE_AT,
    COARSE_SLOTS,
    FINE_AT,
    FINE_SLOTS,
    FOLDER,
    HEADER_BYTES,
    MAX_NS,
    NUM_EXACT,
    STEP,
    STEPS_AT,
    SUFFIX,
    PulseNow,
)
from kinetoscope.pulse.node_copier import COPY_SUFFIX
from kinetoscope.pulse.pulse_file import PulseFile, PulseStart, find_pulse_files

_TRIES = 5


class StepsRow(NamedTuple):
    """A step, or a block of them; times in nanoseconds, ``begin_ns`` in unix time.

    ``duration_ns`` and the items of ``by_phase`` are sums over ``num_steps``; a phase that was not watched in all of
    them is None. ``squares`` is the sum of the squares of the durations.
    """

    step: int
    num_steps: int
    epoch: int
    begin_ns: int
    duration_ns: int
    by_phase: tuple[int | None, ...]
    min_duration_ns: int
    max_duration_ns: int
    slowest_step: int
    squares: float


@dataclass(frozen=True)
class Pulse:
    """The log of one process: its ``header`` and all its steps as ``rows``, the oldest first.

    ``notes`` are sentences on unreadable parts.
    """

    header: PulseHeader
    rows: list[StepsRow]
    notes: list[str]


def find_pulses(run_folder: Path) -> dict[int, list[Pulse]]:
    """Return the pulses in a run's folder by the number of the attempt: of each rank that of its last start.

    An unreadable one is left out.
    """
    found: dict[int, dict[int, Pulse]] = {}
    for pulse in _all_pulses(run_folder):
        of_attempt = found.setdefault(pulse.header.process.attempt.restart, {})
        rank = pulse.header.process.ranks.rank
        if rank not in of_attempt or of_attempt[rank].header.age < pulse.header.age:
            of_attempt[rank] = pulse
    return {attempt: [of_ranks[rank] for rank in sorted(of_ranks)] for attempt, of_ranks in sorted(found.items())}


def _all_pulses(run_folder: Path) -> Iterator[Pulse]:
    if not HAS_RUN_FOLDERS:
        return
    run = RunFolder(run_folder)
    try:
        names = run.names(FOLDER)
    except OSError:
        return
    for name in names:
        if name.endswith((SUFFIX, COPY_SUFFIX)):
            with suppress(TraceFileError, OSError), run.open(f"{FOLDER}/{name}") as stream:
                for file in find_pulse_files(stream.fileno(), run.path / FOLDER / name):
                    with suppress(TraceFileError):
                        yield _read(file)


def read_pulse(folder: RunFolder, name: str) -> Pulse:
    """Return the pulse in a file of ``folder``.

    Raises `TraceFileError` for a file that is none of this version, OSError if it cannot be read.
    """
    path = folder.path / name
    with folder.open(name) as stream:
        for file in find_pulse_files(stream.fileno(), path):
            return _read(file)
    raise TraceFileError(f"{path} is no pulse of a run.")


def find_pulse(run_folder: Path, start: str) -> Pulse | None:
    """Return the pulse of the process with this start name, also from a copy; None if there is none to read."""
    if not HAS_RUN_FOLDERS:
        return None
    run = RunFolder(run_folder)
    with suppress(TraceFileError, OSError):
        return read_pulse(run, f"{FOLDER}/{start}{SUFFIX}")
    with suppress(TraceFileError, OSError):
        for name in run.names(FOLDER):
            if name.endswith(COPY_SUFFIX):
                with run.open(f"{FOLDER}/{name}") as stream:
                    for file in find_pulse_files(stream.fileno(), run.path / FOLDER / name):
                        if file.read_start(HEADER_BYTES).header.process.attempt.start == start:
                            return _read(file)
    return None


def group_rows(rows: Iterable[StepsRow], num_steps: int) -> list[list[StepsRow]]:
    """Group consecutive rows: each group but the last has at least ``num_steps`` steps."""
    groups: list[list[StepsRow]] = []
    for row in rows:
        if groups and sum(one.num_steps for one in groups[-1]) < num_steps:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _read(file: PulseFile) -> Pulse:
    start, coarse, is_one = _read_once(file)
    for _ in range(_TRIES):
        if is_one:
            break
        start, coarse, is_one = _read_once(file)
    is_torn = not (is_one and start.is_whole)
    rows, notes = _rows_of(start.content + coarse, start.now, start.header.clock, is_torn=is_torn)
    return Pulse(start.header, rows, notes)


def _read_once(file: PulseFile) -> tuple[PulseStart, bytes, bool]:
    """Return the start of a pulse and its coarse blocks, and whether these belong together.

    Coarse blocks, which are most of a pulse, seldom change.
    """
    start = file.read_start(COARSE_AT)
    coarse = file.read(_coarse_end(start.now) - COARSE_AT, COARSE_AT)
    return start, coarse, file.read_now().first_fine == start.now.first_fine


def _coarse_end(now: PulseNow) -> int:
    """Return where the last coarse block ends, of those that may be there."""
    return COARSE_AT + (min(max(now.num_coarse, 0), COARSE_SLOTS - 1) + 1) * BLOCK.size


# -- its steps --


def _rows_of(content: bytes, now: PulseNow, line: ClockLine, *, is_torn: bool) -> tuple[list[StepsRow], list[str]]:
    """Return the rows that follow one another, and sentences on gaps and damage."""
    num_exact = min(now.num_steps, NUM_EXACT)
    first_exact = now.num_steps - num_exact
    if is_torn and first_exact:
        first_exact += 1  # its place may be the one that was written to
    fine = range(now.first_fine, now.num_fine + 1)
    blocks = [COARSE_AT + number * BLOCK.size for number in range(now.num_coarse + 1)]
    blocks += [FINE_AT + number % FINE_SLOTS * BLOCK.size for number in fine]
    rows = [_block_row(BLOCK.unpack_from(content, at), line) for at in blocks if at + BLOCK.size <= len(content)]
    steps = (STEPS_AT + number % NUM_EXACT * STEP.size for number in range(first_exact, now.num_steps))
    rows += [_step_row(STEP.unpack_from(content, at), line) for at in steps]
    kept: list[StepsRow] = []
    for row in rows:
        if _is_possible(row) and (not kept or row.begin_ns >= kept[-1].begin_ns):
            kept.append(row)
    missing = now.num_steps - sum(row.num_steps for row in kept)
    notes = [f"Of {now.num_steps:,} steps, {abs(missing):,} cannot be read."] if missing else []
    if is_torn:
        notes.append("It was being written when it was read, or when its process was killed.")
    return kept, notes


def _is_possible(row: StepsRow) -> bool:
    """Return whether a writer can have written the row, and a table can hold it."""
    times = (row.begin_ns, row.duration_ns, row.min_duration_ns, row.max_duration_ns)
    return row.num_steps > 0 and all(0 <= time_ns < MAX_NS for time_ns in times)


def _step_row(values: tuple[int, ...], line: ClockLine) -> StepsRow:
    step, begin, duration, *by_phase, epoch, known = values
    return StepsRow(
        step,
        1,
        epoch,
        line.unix_ns(begin),
        duration,
        _phase_times(by_phase, known),
        duration,
        duration,
        step,
        float(duration) ** 2,
    )


def _block_row(values: tuple[int, ...], line: ClockLine) -> StepsRow:
    step, begin, slowest, count, epoch, known, _, duration, squares, minimum, maximum, *sums = values
    by_phase = _phase_times(sums[::4], known)
    begin_ns = line.unix_ns(begin)
    return StepsRow(
        step, count, epoch, begin_ns, duration, by_phase, _round_ns(minimum), _round_ns(maximum), slowest, squares
    )


def _round_ns(number: float) -> int:
    return round(number) if math.isfinite(number) else -1  # which no time is


def _phase_times(times: Sequence[int], known: int) -> tuple[int | None, ...]:
    return tuple(time_ns if known >> phase & 1 else None for phase, time_ns in enumerate(times))
