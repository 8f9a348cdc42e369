"""Result of the first pass over a file to be merged, and the plan of where its events go.

Which counters never change, and which series is the only one of its subject, shows only in all files of a rank
together: `counter_tracks`.
"""

import os
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from kinetoscope.core.clock.file_clock import DriftCorrection, FileClock, parse_file_clock
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import Event
from kinetoscope.formats.header import rank_in_name, validate_header
from kinetoscope.formats.health import Health, count_overlapping
from kinetoscope.formats.perfetto import CounterTracks, counter_uuid
from kinetoscope.formats.trace_names import BATCH, STEP
from kinetoscope.formats.track_ids import RankTracks, plain_pid

_COMPOSER_EVENTS = ("clock_sync_timestamp_us", "global_rank")
_RANKS_KEY = "global_ranks"

FileState = tuple[int, int]
"""The size of a file in bytes, and its time of change by the clock of its file system; zeros for no file."""

Moment = tuple[int, int]
"""A start and an end, in nanoseconds."""
_FACT = struct.Struct("<QQdII")  # CounterFact in `src/native/rewrite/counters.h`
_MAX_SERIES = 1 << 16  # of a file or a rank; more are unreadable


class CounterSeries(NamedTuple):
    """One series of a counter in one file, with hashes of `kinetoscope.formats.perfetto`."""

    pid: Any
    hashed: int
    subject: int
    value: float | None
    """Its constant value; None if it changes."""


@dataclass(frozen=True, slots=True)
class SurveyOptions:
    """The facts to collect of files in addition to those that every merge needs."""

    align_on: str | None = None
    """When the first span of this name begins."""
    checks: bool = False
    """True to find what is wrong with the file."""
    compares_counters: bool = False
    """True to find the counters that never change their value."""


@dataclass(slots=True)
class InputFile:
    """A file to merge, after its first pass. Times are unix nanoseconds, before ``shift_ns``."""

    path: str
    position: int
    state: FileState
    header: dict[str, Any]
    base_ns: int
    has_clock: bool
    pids: list[Any]
    """The pids of all events; each at least once."""
    earliest_ns: int | None
    latest_ns: int | None
    aligned_at_ns: int | None
    batches: dict[Any, dict[int, Moment]]
    """When each batch was, by pid."""
    repairs: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    """The counts of a check: ``events``, and the names of the sentences in `kinetoscope.merge.check`."""
    health: Health = field(default_factory=Health)
    notes: dict[str, Any] = field(default_factory=dict)
    """The values of metadata events on the whole file, by name. Composer keeps its rank and its clock there."""
    counters: list[CounterSeries] | None = None
    """None if they were not requested, or are too many."""
    shift_ns: int = 0
    drift: DriftCorrection | None = None
    ranks: list[int] = field(init=False)
    """The ranks of a merged file, in order; else the file's one rank."""
    is_merged: bool = field(init=False)
    """True if its pids are ranks."""

    def __post_init__(self) -> None:
        validate_header(self.path, self.header)
        self.is_merged = bool(kinetoscope_header(self.header).get("merged"))
        if not self.is_merged and len(self.notes.get(_RANKS_KEY, ())) > 1:  # Composer merged it
            self.is_merged = True
            self.header.pop("kinetoscope", None)  # it belongs to one of the merged files
        of_pids = sorted({pid for pid in self.pids if _is_rank(pid)}) if self.is_merged else []
        self.ranks = of_pids or [self.position if self.is_merged else self._find_rank()]

    def require_unchanged(self) -> None:
        """Raise `TraceFileError` if the file has changed since the first pass."""
        if file_state(self.path) != self.state:
            raise self.changed_error()

    def changed_error(self) -> TraceFileError:
        """Return the error for a file that has changed since the first pass."""
        return TraceFileError(
            f"Cannot read the trace {self.path}: it changed during reading. Try again when no process writes to it."
        )

    @property
    def rank(self) -> int:
        """The lowest rank in the file: a merged file holds several."""
        return self.ranks[0]

    @property
    def is_kinetoscope(self) -> bool:
        """True if Kinetoscope wrote it, so that its spans nest and its names are kept."""
        return "kinetoscope" in self.header

    @property
    def host(self) -> str:
        """The machine on which it was written, if the file has it; else ""."""
        return str(kinetoscope_header(self.header).get("host") or self.header.get("host_name") or "")

    @property
    def clock(self) -> FileClock | None:
        """The clock of a file of Kinetoscope."""
        return parse_file_clock(kinetoscope_header(self.header))

    @property
    def sync_us(self) -> int | None:
        """The moment, on this file's clock in us, that all ranks of a Composer run recorded together."""
        return self._note("clock_sync_timestamp_us")

    def common_ns(self, time_ns: int) -> int:
        """Convert a moment from the file's clock to the common clock."""
        return (self.drift.apply(time_ns) if self.drift is not None else time_ns) + self.shift_ns

    def file_ns(self, time_ns: int) -> int:
        """Convert a moment from the common clock to the file's clock."""
        time_ns -= self.shift_ns
        return self.drift.revert(time_ns) if self.drift is not None else time_ns

    def rank_of(self, pid: Any) -> int:
        """Return the rank of an event with that pid."""
        return pid if self.is_merged and _is_rank(pid) else self.rank

    def batches_of(self, rank: int) -> dict[int, Moment]:
        """Return the interval of each batch of a rank, on the common clock."""
        found: dict[int, Moment] = {}
        for pid, batches in self.batches.items():
            if self.rank_of(pid) == rank:
                found |= {
                    batch: (self.common_ns(begin), self.common_ns(end)) for batch, (begin, end) in batches.items()
                }
        return found

    def _find_rank(self) -> int:
        """Return the rank in the file's header, else the one in its name, else its index among the files."""
        distributed_info = self.header.get("distributedInfo")
        for source in (kinetoscope_header(self.header), distributed_info if isinstance(distributed_info, dict) else {}):
            if _is_rank(rank := source.get("rank")):
                return rank
        if _is_rank(composer_fields := self._note("global_rank")):
            return composer_fields
        rank = rank_in_name(self.path)
        return self.position if rank is None else rank

    def _note(self, name: str) -> int | None:
        value = self.notes.get(name, self.header.get(name))
        return value if isinstance(value, int) else None


@dataclass(slots=True)
class Plan:
    """The plan of a merge: the events to write, their tracks, and their ids."""

    tracks: dict[int, RankTracks] = field(default_factory=dict)
    """The tracks of each rank that is kept."""
    keeps_tracks: bool = False
    """There is one file, and its pids, tids, ids and names of tracks stay as they are; spans are made to nest."""
    windows: dict[int, Moment] = field(default_factory=dict)
    """The part of each rank that is kept, in unix nanoseconds; empty to keep everything."""
    next_id: int = 1
    num_events: int = 0
    num_clipped: int = 0
    num_moved: int = 0


def describe_nesting(plan: Plan) -> list[str]:
    """Return a sentence on spans that were cut or moved because they overlapped."""
    if not plan.num_clipped and not plan.num_moved:
        return []
    return [f"Spans cut so that all nest: {plan.num_clipped:,}; moved: {plan.num_moved:,}."]


def file_state(path: str) -> FileState:
    """Return the size and the time of change of a file, which show whether it has changed."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def kinetoscope_header(header: dict[str, Any]) -> dict[str, Any]:
    """Return Kinetoscope's part of a file's header; empty in a foreign file."""
    own = header.get("kinetoscope")
    return own if isinstance(own, dict) else {}


def _is_rank(value: Any) -> TypeGuard[int]:
    """Return whether the value can be a rank. A rank becomes a pid, which has 32 bits."""
    return type(value) is int and 0 <= value < 2**31


def read_composer_metadata(metadata: Iterable[Event]) -> dict[str, Any]:
    """Return the fields in Composer's metadata events."""
    found: dict[str, Any] = {}
    for event in metadata:
        name, args = event.get("name"), event.get("args")
        if event.get("ph") == "M" and name in _COMPOSER_EVENTS and isinstance(args, dict):
            found.setdefault(name, args.get("value"))
            if name == "global_rank" and _is_rank(rank := args.get("value")):
                found.setdefault(_RANKS_KEY, set()).add(rank)
    return found


def batches_by_pid(spans: Iterable[Event]) -> dict[Any, dict[int, Moment]]:
    """Return the interval of each batch, by pid, from the spans of steps and batches."""
    found: dict[Any, dict[int, Moment]] = {}
    for span in spans:
        batch = _batch_of(span)
        if batch is not None and "ts" in span:
            pid = plain_pid(span.get("pid"))
            found.setdefault(pid, {})[batch] = span["ts"], span["ts"] + span.get("dur", 0)
    return found


def count_overlapping_steps(spans: Iterable[Event]) -> int:
    """Count steps that begin on their thread before the step before them ends, as in a file of several ranks."""
    steps = (span for span in spans if _batch_of(span) is not None and "ts" in span and span.get("dur", 0) > 0)
    return count_overlapping(
        (
            (*map(plain_pid, (span.get("pid"), span.get("tid"))), span.get("name") == BATCH),
            span["ts"],
            span["ts"] + span["dur"],
        )
        for span in steps
        if span.get("cat") != "gpu_user_annotation"
    )


def _batch_of(span: Event) -> int | None:
    name, args = span.get("name"), span.get("args")
    if not isinstance(name, str) or span.get("ph") != "X":
        return None
    if name == BATCH:
        batch = args.get("batch") if isinstance(args, dict) else None
        return batch if isinstance(batch, int) else None
    number = name.removeprefix(STEP)
    return int(number) if name.startswith(STEP) and number.isdecimal() and len(number) < 16 else None


def read_counter_facts(facts: bytes | None, pids: Sequence[Any]) -> list[CounterSeries] | None:
    """Return the counters of a file, as the native extension found them; ``pids`` has the pid of each track."""
    if facts is None:
        return None
    return [
        CounterSeries(pids[track], hashed, subject, None if has_changed else value)
        for hashed, subject, value, track, has_changed in _FACT.iter_unpack(facts)
    ]


def counter_tracks(files: Sequence[InputFile]) -> CounterTracks:
    """Choose where viewers show the counters of all files.

    If a rank has too many, they are all in their subject's group.
    """
    alone: set[int] = set()
    unchanged: set[int] = set()
    for rank, found in _by_rank(files).items():
        sizes = Counter(series.subject for series in found)
        for series in found:
            if series.value is not None:
                unchanged.add(counter_uuid(series.hashed, rank))
            elif sizes[series.subject] == 1:
                alone.add(counter_uuid(series.hashed, rank))
    return CounterTracks(frozenset(alone), frozenset(unchanged))


def _by_rank(files: Sequence[InputFile]) -> dict[int, list[CounterSeries]]:
    """Return the series of each rank, each once, without ranks whose counters were not all found."""
    by_rank: dict[int, dict[int, CounterSeries]] = defaultdict(dict)
    unknown = {rank for file in files if file.counters is None for rank in file.ranks}
    for file in files:
        for series in file.counters or ():
            found = by_rank[file.rank_of(series.pid)]
            is_same = found.get(series.hashed, series).value == series.value
            found[series.hashed] = series if is_same else series._replace(value=None)
    unknown |= {rank for rank, found in by_rank.items() if len(found) > _MAX_SERIES}
    return {rank: list(found.values()) for rank, found in by_rank.items() if rank not in unknown}
