"""The training loop of a window, by subject: its loader, phases, waits, interruptions and Python time."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.cpu.collective_waits import CollectiveWaits
from kinetoscope.analysis.cpu.cpu_operators import CPU_OPERATORS, are_for_data, find_cpu_operators, find_sync_calls
from kinetoscope.analysis.cpu.interruptions import Interruptions
from kinetoscope.analysis.cpu.loader import Loader
from kinetoscope.analysis.cpu.phases import Phases
from kinetoscope.analysis.cpu.python_time import PythonTime
from kinetoscope.analysis.windows.columns import clip_negative, drop_null_rows, filter_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.window import RankWindow

_SPAN = ["track", "begin", "end"]
_PARTS = ("data", "launch", "python", "avoidable_python", "blocked", "gc", "compile", "profiler", *CPU_OPERATORS)


@dataclass(frozen=True, eq=False)
class TrainingLoop:
    """The loop of a window, which is on one thread, and the other threads that it waits for."""

    window: RankWindow

    @cached_property
    def loader(self) -> Loader:
        """Its DataLoader, and waits for batches."""
        return Loader(self.window)

    @cached_property
    def interruptions(self) -> Interruptions:
        """Garbage collection, compilation, and the profiler."""
        return Interruptions(self.window)

    @cached_property
    def pauses(self) -> pl.DataFrame:
        """The intervals between operators and runtime calls of its thread."""
        window = self.window
        return window.operator_time.union(window.on_loop_thread(window.cpu.runtime_calls)).gaps

    @cached_property
    def awaited_work(self) -> pl.DataFrame:
        """Work of other threads that its thread waited for, as the backward pass: ``track``, ``begin``, ``end``.

        ``paused_from`` and ``paused_until`` are the pause of its own thread meanwhile.
        """
        window, pauses = self.window, self.pauses
        calls = [frame[_SPAN] for frame in (window.cpu.operators, window.cpu.runtime_calls)]
        others = pl.concat([filter_rows(frame, frame["track"] != window.loop_track) for frame in calls])
        others = drop_null_rows(others.hstack([interval_index(pauses, others["begin"]).alias("pause")]), "pause")
        awaited_work = others.group_by("track", "pause").agg(pl.col("begin").min(), pl.col("end").max()).sort("begin")
        paused = (
            pauses[side][awaited_work["pause"]].alias(f"paused_{word}")
            for side, word in (("begin", "from"), ("end", "until"))
        )
        awaited_work = awaited_work[_SPAN].hstack([*paused])
        return filter_rows(awaited_work, awaited_work["end"] <= awaited_work["paused_until"])

    @cached_property
    def phases(self) -> Phases:
        """Forward pass, backward pass and optimizer."""
        return Phases(self.window, self.awaited_work)

    @cached_property
    def collectives(self) -> CollectiveWaits:
        """Collectives that run on the CPU."""
        return CollectiveWaits(self.window, self.pauses, self.phases.backward)

    @cached_property
    def sync_calls(self) -> pl.DataFrame:
        """Runtime calls that wait for the device."""
        return find_sync_calls(self.window)

    @cached_property
    def cpu_operators(self) -> dict[str, pl.DataFrame]:
        """The intervals of `find_cpu_operators`, by part."""
        found = find_cpu_operators(
            self.window,
            self.interruptions.all,
            excluded=self.loader.fetching.union(self.loader.evaluations),
            optimizing=self.phases.optimizing,
        )
        return {part: filter_rows(found, found["part"] == part) for part in CPU_OPERATORS}

    @cached_property
    def are_for_data(self) -> pl.Series:
        """True for each of the ``sync_calls`` whose data the CPU requires."""
        operators = [*self.cpu_operators.values()]
        return are_for_data(self.sync_calls, self.window.device, operators).alias("is_for_data")

    @cached_property
    def busy(self) -> IntervalUnion:
        """Its time in operators, calls and waits."""
        window = self.window
        calls = window.on_loop_thread(window.cpu.runtime_calls)
        return window.operator_time.union(calls, self.awaited_work, self.collectives.time, self.loader.fetches)

    @cached_property
    def python_time(self) -> PythonTime:
        """The Python time of its thread."""
        return PythonTime(self.window, self.loader, self.interruptions, self.collectives, self.busy)

    def parts(self, intervals: pl.DataFrame) -> pl.DataFrame:
        """Return the nanoseconds of each part of the CPU's time in intervals (``track``, ``begin``, ``end``).

        Parts are ``data``, ``launch``, ``python``, ``blocked``, ``gc``, ``compile``, ``profiler`` and `CPU_OPERATORS`;
        ``avoidable_python`` is a part of ``python``.
        """
        intervals = intervals[_SPAN].with_row_index("row")
        found = [
            of_track[["row"]].hstack(self._parts(track, of_track["begin"], of_track["end"]))
            for (track,), of_track in intervals.partition_by("track", as_dict=True).items()
        ]
        schema = {"row": pl.UInt32} | dict.fromkeys(_PARTS, pl.Int64)
        return pl.concat([pl.DataFrame(schema=schema), *found]).sort("row")[[*_PARTS]]

    def _parts(self, track: object, begins: pl.Series, ends: pl.Series) -> pl.DataFrame:
        unions = {
            part: IntervalUnion(filter_rows(spans, spans["track"] == track) if len(spans) else spans)
            for part, spans in self._parts_of_threads.items()
        }
        if track == self.window.loop_track:
            unions |= self._parts_of_loop
        parts = {part: unions.get(part, IntervalUnion()).overlap_ns(begins, ends) for part in _PARTS}
        if "python" in unions:
            parts["python"] = clip_negative(ends - begins - parts["python"])
        return pl.DataFrame(parts)

    @cached_property
    def _parts_of_threads(self) -> dict[str, pl.DataFrame]:
        """The parts of the time of any thread."""
        window, interruptions = self.window, self.interruptions
        return {
            "launch": filter_rows(window.cpu.runtime_calls[_SPAN], window.has_launched),
            "gc": interruptions.program_gc_runs,
            "compile": interruptions.compiling,
            "profiler": interruptions.profiling,
        } | self.cpu_operators

    @cached_property
    def _parts_of_loop(self) -> dict[str, IntervalUnion]:
        """The parts of the time of the loop's thread only; for ``python`` all other time."""
        split = self.python_time.python_by_state
        return {
            "data": IntervalUnion(self._undelayed_fetches),
            "python": self.python_time.non_python_time.union(split.blocked, split.starved),
            "avoidable_python": IntervalUnion(self.python_time.avoidable_python),
            "blocked": IntervalUnion(split.blocked),
        }

    @property
    def _undelayed_fetches(self) -> pl.DataFrame:
        """The fetches without run-queue delay where the loop builds its batches itself.

        Only fetches longer than the median are shortened, to the median at least: no fix of the loader saves the delay.
        """
        fetches, states = self.loader.fetches[["begin", "end"]], self.python_time.states
        if self.loader.num_workers != 0 or not len(fetches) or not len(states.readings):
            return fetches
        lengths = fetches["end"] - fetches["begin"]
        undelayed = lengths * (1 - states.starved_share(fetches["begin"] + lengths // 2))
        usual = lengths.clip(upper_bound=int(lengths.median() or 0))  # pyright: ignore[reportArgumentType]
        is_delayed = undelayed < usual
        kept = undelayed.round().cast(pl.Int64).zip_with(~is_delayed, usual)
        return fetches.with_columns((fetches["begin"] + kept).alias("end"))
