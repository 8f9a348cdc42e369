"""Flame graphs of nested operators and Python stacks, of each rank and of all."""

import polars as pl

from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.formats.trace_names import SAMPLES, STEP
from kinetoscope.frames.tracks import nest_spans
from kinetoscope.pages.page_data import FlameGraph
from kinetoscope.report.page.call_paths import CallPaths
from kinetoscope.report.page.columns import StringTable, encode_numbers
from kinetoscope.report.page.rank_spans import PYTHON, ROLES

OPERATORS, STACKS, SAMPLED = "Operators and markers", "Python functions", "Python lines, sampled"
PROFILER = "The profiler itself"
_MAX_FRAMES = 100_000  # in all graphs
_MIN_FRAMES = 300
_ASYNCHRONOUS = ROLES.index("asynchronous")
_SUMS = ("self_ns", "total", "num_calls")
_NON_THREAD_CATEGORIES = (*DEVICE_CATEGORIES, "gpu_user_annotation", "cuda_sync", "overhead")


class FlameGraphBuilder:
    """Builder of flame graphs from the spans of windows."""

    def __init__(self) -> None:
        self._kinds = {OPERATORS: _Calls(), STACKS: _Calls(), SAMPLED: _Calls(are_counted=False), PROFILER: _Calls()}

    def add(self, rank: int | None, spans: pl.DataFrame) -> None:
        """Add the spans of a window (`read_spans`)."""
        is_python, is_sample = pl.col("category") == PYTHON, pl.col("category").is_in(list(SAMPLES))
        is_of_thread = ~pl.col("category").is_in(list(_NON_THREAD_CATEGORIES)) & (
            pl.col("lane") % len(ROLES) != _ASYNCHRONOUS
        )
        is_of_thread &= (pl.col("dur") > 0) & ~pl.col("name").str.starts_with(STEP)
        self._kinds[STACKS].add(rank, spans.filter(is_python))
        self._kinds[SAMPLED].add(rank, spans.filter(is_sample & is_of_thread))
        is_profiler = pl.col("category") == "kinetoscope"
        self._kinds[OPERATORS].add(rank, spans.filter(~is_python & ~is_sample & ~is_profiler & is_of_thread))
        self._kinds[PROFILER].add(rank, spans.filter(is_profiler & is_of_thread))

    def build(self) -> list[FlameGraph]:
        """Return the graphs of all ranks, then those of each rank; empty ones are left out."""
        num_graphs = sum(len(calls.ranks) + 1 for calls in self._kinds.values())
        max_frames = max(_MIN_FRAMES, _MAX_FRAMES // num_graphs)
        return [graph for title, calls in self._kinds.items() for graph in calls.build_graphs(title, max_frames)]


class _Calls:
    """Calls of one kind, summed by rank and call path. Samples have no number of calls."""

    def __init__(self, *, are_counted: bool = True) -> None:
        self._are_counted = are_counted
        self._texts, self._paths = StringTable(), CallPaths()
        self._sums: dict[int | None, list[pl.DataFrame]] = {}

    @property
    def ranks(self) -> list[int | None]:
        """The ranks in order; the unknown one last."""
        return sorted(self._sums, key=lambda rank: (rank is None, rank or 0))

    def add(self, rank: int | None, spans: pl.DataFrame) -> None:
        """Add the spans of a window of a rank."""
        if not len(spans):
            return
        names = self._texts.indices(spans["name"])
        nested = nest_spans(spans.select("dur", ts="begin", track=pl.col("lane") // len(ROLES)))
        paths = self._paths.indices(names, nested["parent"], nested["depth"])
        columns = [nested["self_ns"].alias("self_ns"), spans["dur"].alias("total"), spans["begin"].alias("first")]
        calls = pl.DataFrame([paths.alias("path"), *columns])
        self._sums.setdefault(rank, []).append(
            calls.group_by("path").agg(
                pl.col("self_ns", "total").sum(), pl.col("first").min(), num_calls=pl.len() * self._are_counted
            )
        )

    def build_graphs(self, title: str, max_frames: int) -> list[FlameGraph]:
        """Return the graph of all ranks if there are several, then one per rank."""
        texts = self._texts.all
        self._names = [texts[name] for name in self._paths.names]
        self._callers = [caller - 1 for caller in self._paths.callers]
        by_rank = {rank: _sum_parts(self._sums[rank]) for rank in self.ranks}
        found = [self._build_graph(title, rank, sums, max_frames) for rank, sums in by_rank.items()]
        if len(by_rank) < 2:
            return found
        return [self._build_graph(title, None, _sum_parts(list(by_rank.values())), max_frames), *found]

    def _build_graph(self, title: str, rank: int | None, sums: pl.DataFrame, max_frames: int) -> FlameGraph:
        """Return the graph of the frames with most time, and their callers."""
        kept = self._add_callers(sums.top_k(max_frames, by="total")["path"].to_list())
        frames = sums.filter(pl.col("path").is_in(kept)).sort("path")
        index = {path: index for index, path in enumerate(frames["path"])}
        texts = StringTable()
        return FlameGraph(
            title=title,
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
