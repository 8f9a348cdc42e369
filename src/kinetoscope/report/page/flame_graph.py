"""Flame graphs of nested operators and Python stacks, of each thread of each rank, and of all ranks."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.formats.trace_names import SAMPLES, SAMPLES_TRACK, STEP, WATCHED_PHASE
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.tracks import nest_spans
from kinetoscope.pages.page_data import FlameGraph
from kinetoscope.report.page.call_paths import CallPaths
from kinetoscope.report.page.columns import StringTable, encode_numbers
from kinetoscope.report.page.rank_spans import PYTHON, ROLES
from kinetoscope.report.page.rank_traces import RankTrace

OPERATORS, STACKS, SAMPLED = "Operators and markers", "Python functions", "Python lines, sampled"
PROFILER = "The profiler itself"
_MAX_FRAMES = 100_000  # in all graphs
_MIN_FRAMES = 300
_ASYNCHRONOUS = ROLES.index("asynchronous")
_SUMS = ("self_ns", "total", "num_calls")
_AUTOGRAD = "autograd::engine::evaluate_function"
_NUMBERED = re.compile(r"(?:thread )?-?\d+\b.*", re.DOTALL)
_NON_THREAD_CATEGORIES = (*DEVICE_CATEGORIES, "gpu_user_annotation", "cuda_sync", "overhead")


LOOP, BACKWARD, OTHER = "training loop", "backward thread", "other thread"
_MAX_THREADS = 8
"""Largest number of threads of one kind of calls; those with most time are shown."""

_Thread = tuple[str, int]
"""The name of a thread, and its number among those of a window with this name; the same on all ranks."""

_OF_OTHER_TRACK = re.compile(rf"{SAMPLES_TRACK.format('')}| \(overlap \d+\)$")
"""Marks of the other tracks of a thread in their names: its samples, and its spans that do not nest."""

_TRACK = pl.col("lane") // len(ROLES)


class FlameGraphBuilder:
    """Builder of flame graphs from the spans of windows."""

    def __init__(self) -> None:
        self._kinds = {OPERATORS: _Calls(), STACKS: _Calls(), SAMPLED: _Calls(are_counted=False), PROFILER: _Calls()}
        self._num_threads = Counter[str]()

    def add(self, window: RankTrace, spans: pl.DataFrame) -> None:
        """Add the spans of a window (`read_spans`)."""
        spans = spans.filter(
            ~pl.col("category").is_in(list(_NON_THREAD_CATEGORIES)), pl.col("lane") % len(ROLES) != _ASYNCHRONOUS
        )
        threads = _find_threads(window.trace, spans)
        spans = spans.filter(pl.col("dur") > 0, ~pl.col("name").str.starts_with(STEP))
        is_python, is_sample = pl.col("category") == PYTHON, pl.col("category").is_in(list(SAMPLES))
        is_profiler = pl.col("category") == "kinetoscope"
        is_other = ~is_python & ~is_sample & ~is_profiler & (pl.col("category") != WATCHED_PHASE)
        for (name, number), tracks in threads.items():
            self._num_threads[name] = max(self._num_threads[name], number)
            of_thread = spans.filter(_TRACK.is_in(tracks))
            kinds = {STACKS: is_python, SAMPLED: is_sample, OPERATORS: is_other, PROFILER: is_profiler}
            for title, is_of_kind in kinds.items():
                self._kinds[title].add((window.rank, (name, number)), of_thread.filter(is_of_kind))

    def build(self) -> list[FlameGraph]:
        """Return the graphs of each kind and thread: of all ranks, then of each rank; empty ones are left out."""
        num_graphs = sum(calls.num_graphs for calls in self._kinds.values())
        max_frames = max(_MIN_FRAMES, _MAX_FRAMES // max(1, num_graphs))
        return [
            graph
            for title, calls in self._kinds.items()
            for graph in calls.build_graphs(title, max_frames, self._num_threads)
        ]


def _find_threads(trace: Trace, spans: pl.DataFrame) -> dict[_Thread, list[int]]:
    """Return the tracks of each thread with spans: those with its name and id, its samples, and overlapping spans."""
    is_step = (pl.col("category") == "batch") | pl.col("name").str.starts_with(STEP)
    is_backward = pl.col("name").str.starts_with(_AUTOGRAD)
    kinds = spans.group_by(track=_TRACK).agg(is_loop=is_step.any(), is_backward=is_backward.any())
    tracks = trace.tracks.select("track", "tid", "tid_number", name=pl.col("thread").fill_null("thread 0")).collect()
    rows = kinds.join(tracks, on="track").sort("tid_number", "track", nulls_last=True)
    threads: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    others: dict[str, list[int]] = {}
    for row in rows.iter_rows(named=True):
        name = _OF_OTHER_TRACK.sub("", row["name"])
        if name != row["name"]:
            others.setdefault(name, []).append(row["track"])
        else:
            threads.setdefault((row["name"], row["tid"]), []).append(row)
    found: dict[str, list[list[int]]] = {}
    # The loop is first: of threads with one name, the other tracks are its own.
    for (name, _), of_thread in sorted(threads.items(), key=lambda thread: not _has(thread[1], "is_loop")):
        tracks_of_thread = [row["track"] for row in of_thread] + others.pop(name, [])
        found.setdefault(_name_thread(name, of_thread), []).append(tracks_of_thread)
    for name, other_tracks in others.items():
        found.setdefault(_name_thread(name), []).append(other_tracks)
    return {(name, number): tracks for name, all_tracks in found.items() for number, tracks in enumerate(all_tracks, 1)}


def _has(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(row[name] for row in rows)


def _name_thread(name: str, rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a name that is the same in each process, by the tracks of the thread; a number is no such name."""
    if _has(rows, "is_loop"):
        return LOOP
    return BACKWARD if _has(rows, "is_backward") else OTHER if _NUMBERED.fullmatch(name) else name


class _Calls:
    """Calls of one kind, summed by rank, thread and call path. Samples have no number of calls."""

    def __init__(self, *, are_counted: bool = True) -> None:
        self._are_counted = are_counted
        self._texts, self._paths = StringTable(), CallPaths()
        self._sums: dict[_Thread, dict[int | None, list[pl.DataFrame]]] = {}

    @property
    def num_graphs(self) -> int:
        """The number of graphs of all threads and ranks, and of all ranks of a thread."""
        return sum(len(by_rank) + (len(by_rank) > 1) for by_rank in self._sums.values())

    def add(self, key: tuple[int | None, _Thread], spans: pl.DataFrame) -> None:
        """Add the spans of a window of a rank's thread."""
        if not len(spans):
            return
        rank, thread = key
        names = self._texts.indices(spans["name"])
        nested = nest_spans(spans.select("dur", ts="begin", track=pl.col("lane") // len(ROLES)))
        paths = self._paths.indices(names, nested["parent"], nested["depth"])
        columns = [nested["self_ns"].alias("self_ns"), spans["dur"].alias("total"), spans["begin"].alias("first")]
        calls = pl.DataFrame([paths.alias("path"), *columns])
        self._sums.setdefault(thread, {}).setdefault(rank, []).append(
            calls.group_by("path").agg(
                pl.col("self_ns", "total").sum(), pl.col("first").min(), num_calls=pl.len() * self._are_counted
            )
        )

    def build_graphs(self, title: str, max_frames: int, num_threads: Mapping[str, int]) -> list[FlameGraph]:
        """Return the graphs of each thread: of all ranks if there are several, then one per rank.

        Args:
            title: the kind of calls.
            max_frames: the largest number of frames of a graph.
            num_threads: number of threads by their name; those of the same name are numbered.
        """
        texts = self._texts.all
        self._names = [texts[name] for name in self._paths.names]
        self._callers = [caller - 1 for caller in self._paths.callers]
        by_thread = {
            thread: {rank: _sum_parts(by_rank[rank]) for rank in sorted(by_rank, key=_order_of_rank)}
            for thread, by_rank in self._sums.items()
        }
        times_ns = {
            thread: sum(sums["self_ns"].sum() for sums in by_rank.values()) for thread, by_rank in by_thread.items()
        }
        threads = sorted(by_thread, key=lambda thread: (thread[0] != LOOP, -times_ns[thread]))[:_MAX_THREADS]
        labels = {(name, number): f"{name} #{number}" if num_threads[name] > 1 else name for name, number in threads}
        return [
            self._build_graph(title, labels[thread] if len(threads) > 1 else None, rank, sums, max_frames)
            for thread in threads
            for rank, sums in _add_all_ranks(by_thread[thread])
        ]

    def _build_graph(
        self, title: str, thread: str | None, rank: int | None, sums: pl.DataFrame, max_frames: int
    ) -> FlameGraph:
        """Return the graph of the frames with most time, and their callers."""
        kept = self._add_callers(sums.top_k(max_frames, by="total")["path"].to_list())
        frames = sums.filter(pl.col("path").is_in(kept)).sort("path")
        index = {path: index for index, path in enumerate(frames["path"])}
        texts = StringTable()
        return FlameGraph(
            title=title,
            thread=thread,
            rank=rank,
            names=encode_numbers(pl.Series([texts.index(self._names[path]) for path in index], dtype=pl.UInt32)),
            callers=encode_numbers(
                pl.Series([index.get(self._callers[path], -1) + 1 for path in index], dtype=pl.UInt32)
            ),
            self_ns=encode_numbers(frames["self_ns"].clip(0)),
            total=encode_numbers(frames["total"]),
            total_ns=sum(frames["total"].filter([self._callers[path] not in index for path in index])),
            num_calls=encode_numbers(frames["num_calls"]),
            firsts=encode_numbers(frames["first"].rank("ordinal") - 1),
            texts=texts.all,
        )

    def _add_callers(self, paths: list[int]) -> list[int]:
        """Return the paths together with those of all their callers."""
        kept = set[int]()
        for path in paths:
            while path >= 0 and path not in kept:
                kept.add(path)
                path = self._callers[path]
        return sorted(kept)


def _sum_parts(parts: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by("path").agg(*(pl.col(name).sum() for name in _SUMS), pl.col("first").min())


def _add_all_ranks(by_rank: dict[int | None, pl.DataFrame]) -> list[tuple[int | None, pl.DataFrame]]:
    """Return the sums of all ranks together, if there are several, and of each."""
    found = list(by_rank.items())
    return found if len(found) < 2 else [(None, _sum_parts(list(by_rank.values()))), *found]


def _order_of_rank(rank: int | None) -> tuple[bool, int]:
    return rank is None, rank or 0
