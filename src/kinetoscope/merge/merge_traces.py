"""merge: many ranks and cycles, one trace. Chrome JSON files flow in; one file flows out, on one clock.

Each file is read twice, one at a time: first to learn where and when it is, then to write it. No events are kept.
"""

import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetoscope.errors import MergeError
from kinetoscope.formats.chrome import ChromeTrace, ChromeWriter, choose_base_ns, read_chrome
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.formats.nesting import NestingCounts, nest
from kinetoscope.formats.tracks import RankTracks, renumber_ids
from kinetoscope.merge.alignment import FileClock, Stretch, align, describe_clocks, file_clock, notes_on_clocks
from kinetoscope.writing.atomic_file import atomic_file

_MOST_RANKS_LISTED = 64
_MOST_NOTES = 64
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d+)")

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What `merge_traces` did. ``notes`` are whole sentences: repairs, files that were left out."""

    output: Path
    ranks: list[int]
    num_files: int
    num_events: int
    num_clipped: int
    num_moved: int
    size_bytes: int
    notes: list[str]


@dataclass(slots=True)
class InputFile:
    """One file to merge, as the first look at it found it."""

    path: str
    ranks: list[int]
    size_bytes: int
    earliest_ns: int | None
    has_clock: bool
    sync_us: int | None
    aligned_at_ns: int | None
    distributed_info: Any
    repairs: list[str]
    clock: FileClock | None = None
    shift_ns: int = 0
    stretch: Stretch | None = None

    @property
    def rank(self) -> int:
        """The lowest rank in the file: a file that is itself merged holds several."""
        return self.ranks[0]


def merge_traces(
    output_file: PathLike,
    *trace_files: PathLike,
    align_on: str | None = None,
    notes: Sequence[str] = (),
    sources: Sequence[str] = (),
    on_progress: Progress | None = None,
    as_list: bool = False,
) -> MergeReport:
    """Merges traces of any number of ranks and cycles into ``output_file`` (gzip if its name ends in ``.gz``).

    Traces that are merged ones themselves, one of each node for instance, are taken in rank by rank; ``sources`` are
    names for the header to remember. Every rank is a process whose pid is the rank; all are on unix time.
    ``align_on`` names a span on which files without a clock are aligned: its first occurrence begins where that of the
    lowest rank does. ``on_progress`` is called with the bytes done and the bytes in all. ``as_list`` writes a
    bare list of events, as Composer does. The output appears when it is
    complete, and may be an input.
    Raises `TraceFileError` for a file that cannot be read and `MergeError` for files that have no common clock.
    """
    if not trace_files:
        raise MergeError("Nothing to merge: no trace files were given. Pass at least one.")
    progress = _Progress([os.fspath(path) for path in trace_files], on_progress)
    files = [_survey(position, os.fspath(path), align_on, progress) for position, path in enumerate(trace_files)]
    files.sort(key=lambda file: (file.rank, file.earliest_ns or 0))
    align(files, align_on)
    notes = [
        *notes,
        *notes_on_clocks(files),
        *(f"{Path(file.path).name}: {repair}" for file in files for repair in file.repairs),
    ]
    merging = _Merging(files, notes, list(sources), progress, as_list)
    output = Path(output_file)
    with atomic_file(output) as stream, compressed_by_name(stream, output) as packed:
        merging.write_to(packed)
    return merging.report(output)


class _Progress:
    def __init__(self, paths: list[str], tell: Progress | None) -> None:
        self._tell = tell
        self._done = 0
        self._total = 2 * sum(os.path.getsize(path) for path in paths if os.path.exists(path))

    def advance(self, size_bytes: int) -> None:
        self._done += size_bytes
        if self._tell is not None:
            self._tell(self._done, self._total)


def _survey(position: int, path: str, align_on: str | None, progress: _Progress) -> InputFile:
    trace = read_chrome(path)
    times = [event["ts"] for event in trace.events if "ts" in event and event.get("ph") != "M"]
    aligned = [event["ts"] for event in trace.events if align_on and event.get("name") == align_on and "ts" in event]
    size_bytes = os.path.getsize(path)
    progress.advance(size_bytes)
    return InputFile(
        path=path,
        ranks=_ranks(trace, position),
        size_bytes=size_bytes,
        earliest_ns=min(times, default=None),
        has_clock=trace.has_clock,
        sync_us=_composers_note(trace, "clock_sync_timestamp_us"),
        aligned_at_ns=min(aligned, default=None),
        distributed_info=trace.header.get("distributedInfo"),
        repairs=trace.repairs,
        clock=file_clock(_own_header(trace)),
    )


def _ranks(trace: ChromeTrace, position: int) -> list[int]:
    """Those of a merged file; else the one rank that the file has."""
    if _is_merged(trace):
        return sorted({event["pid"] for event in trace.events if isinstance(event.get("pid"), int)}) or [position]
    return [_rank(trace, position)]


def _is_merged(trace: ChromeTrace) -> bool:
    return bool(_own_header(trace).get("merged"))


def _rank(trace: ChromeTrace, position: int) -> int:
    """From what the file says of itself, else from its name, else from its place among the files."""
    distributed_info = trace.header.get("distributedInfo")
    for source in (_own_header(trace), distributed_info if isinstance(distributed_info, dict) else {}):
        rank = source.get("rank")
        if isinstance(rank, int) and rank >= 0:
            return rank
    noted = _composers_note(trace, "global_rank")
    if noted is not None:
        return noted
    match = _RANK_IN_NAME.search(Path(trace.path).name)
    return int(match[1]) if match else position


def _composers_note(trace: ChromeTrace, name: str) -> int | None:
    """What a file of Composer's says of itself: in an event of a list, or beside the events."""
    value = trace.header.get(name)
    for event in trace.events:
        if event.get("ph") == "M" and event.get("name") == name and isinstance(event.get("args"), dict):
            value = event["args"].get("value")
            break
    return value if isinstance(value, int) else None


def _own_header(trace: ChromeTrace) -> dict[str, Any]:
    header = trace.header.get("kinetoscope")
    return header if isinstance(header, dict) else {}


class _Merging:
    """One merge under way: the tracks of each rank so far, and the counts for the report."""

    def __init__(
        self, files: list[InputFile], notes: list[str], sources: list[str], progress: _Progress, as_list: bool
    ) -> None:
        self._files = files
        self._as_list = as_list
        self._notes = notes
        self._sources = sources
        self._progress = progress
        self._tracks = {rank: RankTracks(rank) for file in files for rank in file.ranks}
        self._nesting = NestingCounts()
        self._num_events = 0
        self._next_id = 1

    def write_to(self, stream: Any) -> None:
        with ChromeWriter(stream, base_ns=self._base_ns(), header=self._header(), as_list=self._as_list) as writer:
            for file in self._files:
                self._write_file(file, writer)
            for tracks in self._tracks.values():
                writer.write(tracks.metadata())

    def _write_file(self, file: InputFile, writer: ChromeWriter) -> None:
        trace = read_chrome(file.path)
        is_ours = "kinetoscope" in trace.header
        if not is_ours:
            counts = nest(trace.events)
            self._nesting.clipped += counts.clipped
            self._nesting.moved += counts.moved
        events = self._adopt(trace, file, is_ours)
        _shift(events, file.shift_ns, file.stretch)
        self._next_id = renumber_ids(events, self._next_id)
        writer.write(events)
        self._num_events += len(events)
        self._progress.advance(file.size_bytes)

    def _adopt(self, trace: ChromeTrace, file: InputFile, is_ours: bool) -> list[dict[str, Any]]:
        if not _is_merged(trace):
            return self._tracks[file.rank].adopt(trace.events, host=_host(trace), is_ours=is_ours)
        by_rank: dict[int, list[dict[str, Any]]] = {rank: [] for rank in file.ranks}
        for event in trace.events:
            by_rank[event["pid"] if event.get("pid") in by_rank else file.rank].append(event)
        adopted = (self._tracks[rank].adopt(events, is_ours=True) for rank, events in by_rank.items())
        return list(itertools.chain.from_iterable(adopted))

    def _base_ns(self) -> int:
        begins = [file.earliest_ns + file.shift_ns for file in self._files if file.earliest_ns is not None]
        return choose_base_ns(min(begins, default=0))

    def _header(self) -> dict[str, Any]:
        ranks = sorted(self._tracks)
        own: dict[str, Any] = {
            "version": _version(),
            "merged": True,
            "ranks": ranks[:_MOST_RANKS_LISTED],
            "num_ranks": len(ranks),
            "num_files": len(self._files),
            "notes": self._notes[:_MOST_NOTES],
            "sources": self._sources,
            "clocks": describe_clocks(self._files)[:_MOST_RANKS_LISTED],
        }
        infos = (file.distributed_info for file in self._files if isinstance(file.distributed_info, dict))
        distributed_info = next(infos, None)
        return {"distributedInfo": distributed_info, "kinetoscope": own} if distributed_info else {"kinetoscope": own}

    def report(self, output: Path) -> MergeReport:
        return MergeReport(
            output=output,
            ranks=sorted(self._tracks),
            num_files=len(self._files),
            num_events=self._num_events,
            num_clipped=self._nesting.clipped,
            num_moved=self._nesting.moved,
            size_bytes=output.stat().st_size,
            notes=list(self._notes),
        )


def _host(trace: ChromeTrace) -> str:
    return str(_own_header(trace).get("host") or trace.header.get("host_name") or "")


def _shift(events: list[dict[str, Any]], shift_ns: int, stretch: Stretch | None) -> None:
    if stretch is not None:
        for event in events:
            stretch.apply(event)
    if shift_ns:
        for event in events:
            if "ts" in event:
                event["ts"] += shift_ns


def _version() -> str:
    from importlib.metadata import version  # slow to import, and asked for once a merge

    return version("kinetoscope")
