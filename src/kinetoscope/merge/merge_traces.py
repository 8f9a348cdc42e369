"""merge: many ranks and cycles, one trace. Chrome JSON files flow in; one file flows out, on one clock.

Each file is read twice: first to learn where and when it is, a few files at a time, then to write it. No events are
kept: memory stays flat (`native_rewrite`), or, where there is no compiler, holds those of one file (`pure_rewrite`).
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, main_thread
from typing import Any, Protocol

from kinetoscope.clock.clock import choose_base_ns
from kinetoscope.errors import MergeError
from kinetoscope.formats.perfetto import PerfettoWriter
from kinetoscope.formats.tracks import RankTracks
from kinetoscope.merge.alignment import align, describe_clocks, notes_on_alignment, notes_on_clocks
from kinetoscope.merge.input_file import InputFile, Plan, Questions, counter_places, nesting_notes, own_header
from kinetoscope.merge.pure_rewrite import PureRewriter
from kinetoscope.merge.trace_output import TraceWriter, is_perfetto, trace_output
from kinetoscope.merge.window import Window

try:
    from kinetoscope.merge.native_rewrite import NativeRewriter
except ImportError:  # no compiler, when it was installed
    NativeRewriter = None

_MOST_RANKS_LISTED = 64
_MOST_NOTES = 64
_MOST_AT_ONCE = 4  # files that are looked at; each may take 50 MB
_LONGEST_SHARED_NS = 1_000_000  # by which cycles of one rank may overlap, as what was recorded last ends a little late
_DAY_NS = 86_400 * 10**9
_DOUBLES_LOSE_NANOSECONDS_FROM = 2**53

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], None]


class Rewriter(Protocol):
    """Looks at one file, and then writes it anew."""

    def survey(self, path: str, position: int, on_bytes: Callable[[int], None]) -> InputFile:
        """What the file holds, with the answers to the questions that this was made with. Raises `TraceFileError`."""
        ...

    def rewrite(self, file: InputFile, plan: Plan, writer: Any, on_bytes: Callable[[int], None]) -> None: ...


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
    """Merges traces of any number of ranks and cycles into ``output_file``, whose name says what it is to be.

    ``.json`` is Chrome JSON, ``.pftrace`` Perfetto's own format; ``.gz`` or ``.zst`` behind either packs it.
    Traces that are merged ones themselves, one of each node for instance, are taken in rank by rank; ``sources`` are
    names for the header to remember. Every rank is a process whose pid is the rank; all are on unix time.
    ``align_on`` names a span on which files without a clock are aligned: its first occurrence begins where that of the
    lowest rank with a clock does; with ``align_all`` all files are, to the lowest rank. One file alone needs no clock.
    ``ranks`` keeps those only, and ``window`` what lies in it. ``on_progress`` is called with the
    bytes done and the bytes in all. ``as_list`` writes a bare list of events, as Composer does. ``num_threads`` files
    are looked at at a time; if it is not given, as many as there are processors, four at most. The output appears when
    it is complete, and may be an input.
    Raises `TraceFileError` for a file that cannot be read and `MergeError` for files that have no common clock.
    """
    if not trace_files:
        raise MergeError("Nothing to merge: no trace files were given. Pass at least one.")
    output = Path(output_file)
    paths = [os.fspath(path) for path in trace_files]
    num_threads = _most_useful_threads(paths) if num_threads is None else num_threads
    questions = Questions(align_on, compares_counters=is_perfetto(output))
    merging = _Merging(paths, questions, ranks, on_progress, num_threads)
    merging.align(align_on, align_all=align_all)
    merging.plan(window)
    header = merging.header(notes if is_perfetto(output) else [*notes, *merging.notes_on_distance()], sources)
    lowest = min(merging.ranks)
    with trace_output(output, base_ns=merging.base_ns(), header=header, as_list=as_list, rank=lowest) as writer:
        merging.write_to(writer, for_composer=as_list)
    return merging.report(output)


def make_rewriter(questions: Questions) -> Rewriter:
    """What reads one file and writes it anew: C where it was built, unless ``KINETOSCOPE_PURE`` is set."""
    return PureRewriter(questions) if NativeRewriter is None or _is_pure() else NativeRewriter(questions)


def _is_pure() -> bool:
    return NativeRewriter is None or os.environ.get("KINETOSCOPE_PURE") == "1"


def _most_useful_threads(paths: Sequence[str]) -> int:
    """How many files to look at at a time: in Python one, as the GIL lets no other thread run beside it, and one while
    Python ends, when no thread can be started."""
    num_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if _is_pure() or not main_thread().is_alive() else min(len(paths), num_processors, _MOST_AT_ONCE)


class _AbandonedError(Exception):
    """Ends a thread that looks at a file for a merge that has failed or was interrupted."""


class _Merging:
    """One merge under way: its files, and the tracks of each rank so far."""

    def __init__(
        self,
        paths: list[str],
        questions: Questions,
        ranks: Collection[int] | None,
        on_progress: Progress | None,
        num_threads: int,
    ) -> None:
        self._progress = ByteProgress(paths, on_progress)
        self._files = [
            (file, rewriter)
            for file, rewriter in self._survey(paths, questions, num_threads)
            if ranks is None or set(file.ranks) & set(ranks)
        ]
        self._files.sort(key=lambda pair: (pair[0].rank, pair[0].earliest_ns or 0))
        if not self._files:
            raise MergeError(f"Nothing to merge: none of the files has rank {_listed(ranks)}. Choose other ranks.")
        found = {rank for file, _ in self._files for rank in file.ranks}
        self._plan = Plan({rank: RankTracks(rank) for rank in sorted(found) if ranks is None or rank in ranks})

    def _survey(self, paths: list[str], questions: Questions, num_threads: int) -> Iterator[tuple[InputFile, Rewriter]]:
        """What each file holds, in the order of ``paths``; ``num_threads`` are read at a time."""
        is_over = Event()  # then threads that still look at a file give up

        def advance(size_bytes: int) -> None:
            if is_over.is_set():
                raise _AbandonedError
            self._progress.advance(size_bytes)

        def survey(position: int) -> tuple[InputFile, Rewriter]:
            rewriter = make_rewriter(questions)
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
        """Puts all files on one clock, whose times are not negative. Raises `MergeError` if there is none."""
        files = [file for file, _ in self._files]
        align(files, align_on, align_all=align_all)
        self._clock_notes = notes_on_alignment(files, align_on, align_all=align_all)
        shift_ns = -min(0, self._earliest_ns())
        if shift_ns:
            self._clock_notes.append(
                f"All times were moved by {shift_ns / 1e9:+,.9f} s, as viewers drop negative ones."
            )
        for file in files:
            file.shift_ns += shift_ns

    def plan(self, window: Window | None) -> None:
        """Finds out when ``window`` is for each rank. Raises `MergeError` if nothing lies in it."""
        if window is not None:
            files = [file for file, _ in self._files]
            self._plan.windows = window.of_ranks(files, list(self._plan.tracks))

    @property
    def ranks(self) -> list[int]:
        """The ranks that are kept."""
        return list(self._plan.tracks)

    def write_to(self, writer: TraceWriter, *, for_composer: bool) -> None:
        """Writes all files, then what is to be said of their tracks, to Composer's merger too if it is to read them."""
        if isinstance(writer, PerfettoWriter):
            writer.counter_places = counter_places([file for file, _ in self._files])
        for file, rewriter in self._files:
            rewriter.rewrite(file, self._plan, writer, self._progress.advance)
        for tracks in self._plan.tracks.values():
            writer.write(tracks.metadata())
            if for_composer:
                writer.write(tracks.notes_for_composer(writer.base_ns))

    def base_ns(self) -> int:
        """What time stamps in the merged file count from."""
        return choose_base_ns(self._earliest_ns(), *(file.base_ns for file, _ in self._files))

    def _earliest_ns(self) -> int:
        begins = [file.common_ns(file.earliest_ns) for file, _ in self._files if file.earliest_ns is not None]
        return min(begins, default=0)

    def notes_on_distance(self) -> list[str]:
        """What there is to say where times are so far apart that JSON's numbers cannot tell nanoseconds apart."""
        ends = [file.common_ns(file.latest_ns) for file, _ in self._files if file.latest_ns is not None]
        distance_ns = max(ends, default=0) - self._earliest_ns()
        if distance_ns < _DOUBLES_LOSE_NANOSECONDS_FROM:
            return []
        return [
            f"The traces lie {distance_ns // _DAY_NS} days apart: what reads JSON's numbers as doubles, as viewers do, "
            f"rounds the later times to {distance_ns / _DOUBLES_LOSE_NANOSECONDS_FROM:.0f} ns, and drops spans that do "
            "not nest then. Merge into a .pftrace file, which holds every nanosecond, or merge the runs one by one."
        ]

    def header(self, notes: Sequence[str], sources: Sequence[str]) -> dict[str, Any]:
        """The fields beside the events; those of each file are kept under its name."""
        ranks = sorted(self._plan.tracks)
        files = [file for file, _ in self._files]
        repairs = (f"{Path(file.path).name}: {repair}" for file in files for repair in file.repairs)
        self._notes = [
            *notes,
            *self._clock_notes,
            *notes_on_clocks(files),
            *_notes_on_starts(files),
            *_notes_on_overlap(files),
            *repairs,
        ]
        own: dict[str, Any] = {
            "version": _version(),
            "merged": True,
            "ranks": ranks[:_MOST_RANKS_LISTED],
            "num_ranks": len(ranks),
            "num_files": len(files),
            "notes": self._notes[:_MOST_NOTES],
            "sources": list(sources),
            "clocks": describe_clocks(files)[:_MOST_RANKS_LISTED],
            "files": [entry for file in files for entry in _headers(file)],
        }
        infos = (file.header.get("distributedInfo") for file in files)
        distributed_info = next((info for info in infos if isinstance(info, dict)), None)
        return {"distributedInfo": distributed_info, "kinetoscope": own} if distributed_info else {"kinetoscope": own}

    def report(self, output: Path) -> MergeReport:
        """What was done."""
        return MergeReport(
            output=output,
            ranks=sorted(self._plan.tracks),
            num_files=len(self._files),
            num_events=self._plan.num_events,
            num_clipped=self._plan.num_clipped,
            num_moved=self._plan.num_moved,
            size_bytes=output.stat().st_size if output.is_file() else 0,
            notes=[*self._notes, *nesting_notes(self._plan)],
        )


class ByteProgress:
    """Adds up what was read of files that are read ``num_passes`` times, and tells."""

    def __init__(self, paths: Sequence[str], tell: Progress | None, num_passes: int = 2) -> None:
        self._tell = tell
        self._lock = Lock()
        self._done = 0
        self._total = num_passes * sum(os.path.getsize(path) for path in paths if os.path.exists(path))

    def advance(self, size_bytes: int) -> None:
        """Adds bytes that were read, by any thread."""
        with self._lock:
            self._done += size_bytes
            if self._tell is not None:
                self._tell(self._done, self._total)


def _notes_on_starts(files: Sequence[InputFile]) -> Iterator[str]:
    """What there is to say of ranks whose files were written by several starts: perhaps nobody meant to mix them."""
    starts: dict[int, set[str]] = {}
    for file in files:
        if start := own_header(file.header).get("start"):
            starts.setdefault(file.rank, set()).add(str(start))
    ranks = sorted(rank for rank, names in starts.items() if len(names) > 1)
    if ranks:
        yield (
            f"The traces of rank {_listed(ranks[:_MOST_RANKS_LISTED])} are of several starts of a run: to tell them "
            "apart, merge those of each start on their own."
        )


def _notes_on_overlap(files: Sequence[InputFile]) -> Iterator[str]:
    """What there is to say of files of one rank that were recorded at the same time: each nests by itself only."""
    latest: dict[int, tuple[int, str]] = {}
    for file in files:
        if file.earliest_ns is None or file.latest_ns is None:
            continue
        name, begin_ns, end_ns = Path(file.path).name, file.common_ns(file.earliest_ns), file.common_ns(file.latest_ns)
        before_ns, before = latest.get(file.rank, (begin_ns, name))
        if before_ns - begin_ns > _LONGEST_SHARED_NS:
            yield (
                f"{before} and {name} are of rank {file.rank} and of the same time: viewers drop spans of one that "
                "overlap spans of the other on their track. kinetoscope check --repair moves such."
            )
        latest[file.rank] = max((before_ns, before), (end_ns, name))


def _headers(file: InputFile) -> list[dict[str, Any]]:
    """What a file says beside its events, with its name; of a merged file, what its own files said."""
    if file.is_merged:
        kept = own_header(file.header).get("files")
        return kept if isinstance(kept, list) else []
    return [{"name": Path(file.path).name, "rank": file.rank, "header": file.header}]


def _listed(ranks: Collection[int] | None) -> str:
    return ", ".join(map(str, sorted(ranks or ())))


def _version() -> str:
    from importlib.metadata import version  # slow to import, and asked for once a merge

    return version("kinetoscope")
