"""Merge of the traces of many ranks and cycles into one file, on one clock.

Each file is read twice: first, a few files at a time, to learn its ranks, times and tracks; then to write its events.
No events are kept: memory stays flat (`native_rewrite`).
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, main_thread
from typing import Any

from kinetoscope.core.clock.clock import choose_base_ns
from kinetoscope.core.paths.available_cores import count_cores
from kinetoscope.core.text.wording import format_ranks
from kinetoscope.errors import MergeError
from kinetoscope.formats.header import is_distributed_info
from kinetoscope.formats.perfetto import PerfettoWriter
from kinetoscope.formats.track_ids import RankTracks
from kinetoscope.merge.alignment import align, describe_alignment, describe_clock_problems, describe_clocks
from kinetoscope.merge.input_file import (
    InputFile,
    Plan,
    SurveyOptions,
    counter_tracks,
    describe_nesting,
    kinetoscope_header,
)
from kinetoscope.merge.native_rewrite import NativeRewriter
from kinetoscope.merge.trace_output import TraceWriter, is_perfetto, trace_output
from kinetoscope.merge.window import Window

_MAX_LISTED_RANKS = 64
_MAX_NOTES = 64
_MAX_THREADS = 4  # files read at a time for the first time; each may take 50 MB
_MAX_SHARED_NS = 1_000_000  # cycles of one rank may overlap so much: the last spans end a little late
_DAY_NS = 86_400 * 10**9
_DOUBLES_LOSE_NANOSECONDS_FROM = 2**53

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The result of `merge_traces`; ``notes`` are sentences on repairs and on files that were left out."""

    output: Path
    ranks: list[int]
    num_files: int
    num_events: int
    num_clipped: int
    num_moved: int
    size_bytes: int
    notes: list[str]


def merge_traces(
    output_file: PathLike,
    *trace_files: PathLike,
    align_on: str | None = None,
    align_all: bool = False,
    ranks: Collection[int] | None = None,
    window: Window | None = None,
    notes: Sequence[str] = (),
    sources: Sequence[str] = (),
    on_progress: Progress | None = None,
    as_list: bool = False,
    num_threads: int | None = None,
) -> MergeReport:
    """Merge traces of any number of ranks and cycles into ``output_file``, whose name gives the format.

    A ``.json`` file is Chrome JSON, a ``.pftrace`` file Perfetto's own format; ``.gz`` or ``.zst`` after it compresses
    the file. Merged traces, for instance one of each node, are merged again rank by rank. In the output every rank is a
    process whose pid is the rank, and times are unix time. It appears when it is complete, and may be an input.

    Args:
        output_file: path of the merged file.
        *trace_files: paths of the traces.
        align_on: a span on which files without a clock are aligned: its first occurrence is moved to where it begins on
            the lowest rank with a clock. A single file needs no clock.
        align_all: align all files on that span, relative to the lowest rank.
        ranks: the ranks to keep, by default all.
        window: the part of the time to keep, by default all.
        notes: more sentences for the report.
        sources: names that are stored in the header.
        on_progress: called with the bytes done and the total.
        as_list: write a bare list of events, as Composer does.
        num_threads: number of files to read at a time, by default one per CPU and at most four.

    Raises:
        TraceFileError: a file cannot be read.
        MergeError: files have no common clock.
    """
    if not trace_files:
        raise MergeError("Nothing to merge: no trace files were given. Pass at least one.")
    output = Path(output_file)
    paths = [os.fspath(path) for path in trace_files]
    num_threads = _choose_num_threads(paths) if num_threads is None else num_threads
    options = SurveyOptions(align_on, compares_counters=is_perfetto(output))
    merging = _Merging(paths, options, ranks, on_progress, num_threads)
    merging.align(align_on, align_all=align_all)
    merging.plan(window)
    header = merging.header(notes if is_perfetto(output) else [*notes, *merging.describe_time_span()], sources)
    lowest = min(merging.ranks)
    with trace_output(output, base_ns=merging.base_ns(), header=header, as_list=as_list, rank=lowest) as writer:
        merging.write_to(writer, for_composer=as_list)
    return merging.report(output)


def _choose_num_threads(paths: Sequence[str]) -> int:
    """Return how many files to read at a time: one while Python is ending, because no thread can be started then."""
    return min(len(paths), count_cores(), _MAX_THREADS) if main_thread().is_alive() else 1


class _AbandonedError(Exception):
    """The end of a thread that reads a file for a merge that has failed or was interrupted."""


class _Merging:
    """A merge in progress: its files, and the tracks of each rank so far."""

    def __init__(
        self,
        paths: list[str],
        options: SurveyOptions,
        ranks: Collection[int] | None,
        on_progress: Progress | None,
        num_threads: int,
    ) -> None:
        self._progress = ByteProgress(paths, on_progress)
        self._files = [
            (file, rewriter)
            for file, rewriter in self._survey(paths, options, num_threads)
            if ranks is None or set(file.ranks) & set(ranks)
        ]
        self._files.sort(key=lambda pair: (pair[0].rank, pair[0].earliest_ns or 0))
        if not self._files:
            raise MergeError(
                f"Nothing to merge: none of the files has {format_ranks(sorted(ranks or ()))} (--ranks). Choose others."
            )
        found = {rank for file, _ in self._files for rank in file.ranks}
        self._plan = Plan({rank: RankTracks(rank) for rank in sorted(found) if ranks is None or rank in ranks})

    def _survey(
        self, paths: list[str], options: SurveyOptions, num_threads: int
    ) -> Iterator[tuple[InputFile, NativeRewriter]]:
        """Each file and its rewriter, in the order of ``paths``; ``num_threads`` are read at a time."""
        is_over = Event()  # when set, threads that still read a file stop

        def advance(size_bytes: int) -> None:
            if is_over.is_set():
                raise _AbandonedError
            self._progress.advance(size_bytes)

        def survey(position: int) -> tuple[InputFile, NativeRewriter]:
            rewriter = NativeRewriter(options)
            return rewriter.survey(paths[position], position, advance), rewriter

        if num_threads == 1:
            yield from map(survey, range(len(paths)))
            return
        with ThreadPoolExecutor(num_threads, "kinetoscope-merge") as pool:
            try:
                yield from pool.map(survey, range(len(paths)))
            finally:
                is_over.set()

    def align(self, align_on: str | None, *, align_all: bool) -> None:
        """Put all files on one clock without negative times; raise `MergeError` if they have no common clock."""
        files = [file for file, _ in self._files]
        align(files, align_on, align_all=align_all)
        self._clock_problems = describe_alignment(files, align_on, align_all=align_all)
        shift_ns = -min(0, self._earliest_ns())
        if shift_ns:
            self._clock_problems.append(
                f"All times were moved by {shift_ns / 1e9:+,.9f} s, because viewers drop negative times."
            )
        for file in files:
            file.shift_ns += shift_ns

    def plan(self, window: Window | None) -> None:
        """Compute the interval of ``window`` on each rank; raise `MergeError` if no file has anything in it."""
        if window is not None:
            files = [file for file, _ in self._files]
            self._plan.windows = window.of_ranks(files, list(self._plan.tracks))

    @property
    def ranks(self) -> list[int]:
        """The ranks that are kept."""
        return list(self._plan.tracks)

    def write_to(self, writer: TraceWriter, *, for_composer: bool) -> None:
        """Write the events of all files and the metadata of their tracks, also Composer's with ``for_composer``."""
        if isinstance(writer, PerfettoWriter):
            writer.counter_tracks = counter_tracks([file for file, _ in self._files])
        for file, rewriter in self._files:
            rewriter.rewrite(file, self._plan, writer, self._progress.advance)
        for tracks in self._plan.tracks.values():
            writer.write(tracks.metadata())
            if for_composer:
                writer.write(tracks.composer_metadata(writer.base_ns))

    def base_ns(self) -> int:
        """Return the base of the time stamps in the merged file."""
        return choose_base_ns(self._earliest_ns(), *(file.base_ns for file, _ in self._files))

    def _earliest_ns(self) -> int:
        begins = [file.common_ns(file.earliest_ns) for file, _ in self._files if file.earliest_ns is not None]
        return min(begins, default=0)

    def describe_time_span(self) -> list[str]:
        """Return a sentence if the times are so far apart that JSON numbers cannot hold nanoseconds."""
        ends = [file.common_ns(file.latest_ns) for file, _ in self._files if file.latest_ns is not None]
        distance_ns = max(ends, default=0) - self._earliest_ns()
        if distance_ns < _DOUBLES_LOSE_NANOSECONDS_FROM:
            return []
        return [
            f"The traces are {distance_ns // _DAY_NS} days apart. Viewers read JSON numbers as doubles, so they round "
            f"later times to {distance_ns / _DOUBLES_LOSE_NANOSECONDS_FROM:.0f} ns and drop spans that no longer nest. "
            "Merge into a .pftrace file, which holds every nanosecond, or merge the runs one by one."
        ]

    def header(self, notes: Sequence[str], sources: Sequence[str]) -> dict[str, Any]:
        """Return the fields beside the events. Those of each input file are stored under its name."""
        ranks = sorted(self._plan.tracks)
        files = [file for file, _ in self._files]
        repairs = (
            f"{Path(file.path).name}: {repair}" for file in files for repair in [*file.repairs, *file.health.repairs]
        )
        self._notes = [
            *notes,
            *self._clock_problems,
            *describe_clock_problems(files),
            *_describe_starts(files),
            *_describe_overlap(files),
            *repairs,
        ]
        own: dict[str, Any] = {
            "version": _version(),
            "merged": True,
            "ranks": ranks[:_MAX_LISTED_RANKS],
            "num_ranks": len(ranks),
            "num_files": len(files),
            "notes": self._notes[:_MAX_NOTES],
            "sources": list(sources),
            "clocks": describe_clocks(files)[:_MAX_LISTED_RANKS],
            "files": [entry for file in files for entry in _headers(file)],
        }
        infos = (file.header.get("distributedInfo") for file in files)
        distributed_info = next((info for info in infos if is_distributed_info(info)), None)
        return {"distributedInfo": distributed_info, "kinetoscope": own} if distributed_info else {"kinetoscope": own}

    def report(self, output: Path) -> MergeReport:
        """Return the report of the merge."""
        return MergeReport(
            output=output,
            ranks=sorted(self._plan.tracks),
            num_files=len(self._files),
            num_events=self._plan.num_events,
            num_clipped=self._plan.num_clipped,
            num_moved=self._plan.num_moved,
            size_bytes=output.stat().st_size if output.is_file() else 0,
            notes=[*self._notes, *describe_nesting(self._plan)],
        )


class ByteProgress:
    """A counter of the bytes read of files that are read ``num_passes`` times; passes on the sum."""

    def __init__(self, paths: Sequence[str], on_progress: Progress | None, num_passes: int = 2) -> None:
        self._on_progress = on_progress
        self._lock = Lock()
        self._done = 0
        self._total = num_passes * sum(os.path.getsize(path) for path in paths if os.path.exists(path))

    def advance(self, size_bytes: int) -> None:
        """Add bytes that were read, by any thread."""
        with self._lock:
            self._done += size_bytes
            if self._on_progress is not None:
                self._on_progress(self._done, self._total)


def _describe_starts(files: Sequence[InputFile]) -> Iterator[str]:
    """Return a sentence if files of one rank were written by several starts: mixing them may be a mistake."""
    starts: dict[int, set[str]] = {}
    for file in files:
        if start := kinetoscope_header(file.header).get("start"):
            starts.setdefault(file.rank, set()).add(str(start))
    ranks = sorted(rank for rank, names in starts.items() if len(names) > 1)
    if ranks:
        yield (
            f"The traces of {format_ranks(ranks)} come from several starts of a run. To keep them "
            "apart, merge the traces of each start separately."
        )


def _describe_overlap(files: Sequence[InputFile]) -> Iterator[str]:
    """Return a sentence for each two files of one rank that were recorded at the same time."""
    latest: dict[int, tuple[int, str]] = {}
    for file in files:
        if file.earliest_ns is None or file.latest_ns is None:
            continue
        name, begin_ns, end_ns = Path(file.path).name, file.common_ns(file.earliest_ns), file.common_ns(file.latest_ns)
        before_ns, before = latest.get(file.rank, (begin_ns, name))
        if before_ns - begin_ns > _MAX_SHARED_NS:
            yield (
                f"{before} and {name} are both of rank {file.rank} and overlap in time. Viewers drop spans of one that "
                "overlap spans of the other on the same track. kinetoscope check --repair moves such spans."
            )
        latest[file.rank] = max((before_ns, before), (end_ns, name))


def _headers(file: InputFile) -> list[dict[str, Any]]:
    """Return the header of a file, or of a merged file those in it, with the file's name and its start."""
    if not file.is_merged:
        begin_ns = None if file.earliest_ns is None else file.common_ns(file.earliest_ns)
        return [{"name": Path(file.path).name, "rank": file.rank, "begin_ns": begin_ns, "header": file.header}]
    kept = kinetoscope_header(file.header).get("files")
    entries = [entry for entry in kept if isinstance(entry, dict)] if isinstance(kept, list) else []
    begins = [entry.get("begin_ns") for entry in entries]
    moved = [file.common_ns(begin_ns) if isinstance(begin_ns, int) else None for begin_ns in begins]
    return [entry | {"begin_ns": begin_ns} for entry, begin_ns in zip(entries, moved, strict=True)]


def _version() -> str:
    from importlib.metadata import version  # slow to import, and needed once per merge

    return version("kinetoscope")
