"""Python time of the loop between operators, and its running, blocked and waiting parts."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.cpu.collective_waits import CollectiveWaits
from kinetoscope.analysis.cpu.interruptions import Interruptions
from kinetoscope.analysis.cpu.loader import Loader
from kinetoscope.analysis.cpu.sampled_lines import ANOTHER_THREAD, IN_TORCH, sampled_lines
from kinetoscope.analysis.cpu.thread_states import IntervalsByState, ThreadStates, split_by_state
from kinetoscope.analysis.windows.columns import build_frame, drop_null_rows, filter_rows, null_unless, select_columns
from kinetoscope.analysis.windows.intervals import IntervalUnion, count_starts_inside, latest_end_before, time_bounds
from kinetoscope.analysis.windows.span_names import RECORDING
from kinetoscope.analysis.windows.window import MIN_RECURRING_STEPS, MIN_STEPS, RankWindow

ORDINARY_PYTHON_NS = 100_000
"""Python before an operator takes up to this in healthy loops: modules, the start of the backward pass, optimizers."""

SMALL_OPERATOR_NS = 10_000
"""A small operator takes less than this."""

_MIN_CONSECUTIVE_SMALL = 32
"""Small operators count from this number in a row on. Judgement."""

_MIN_REPEATS_IN_STEP = 32
"""Intervals of Python in a step, all before operators of one name, that are a loop in Python."""


@dataclass(frozen=True, eq=False)
class PythonTime:
    """The time of the loop's thread in Python: not in operators or calls, and not a wait.

    ``busy`` is the time in operators, calls and waits.
    """

    window: RankWindow
    loader: Loader
    interruptions: Interruptions
    collectives: CollectiveWaits
    busy: IntervalUnion

    @cached_property
    def has_loop_operators(self) -> bool:
        """True if operators of the loop itself were recorded.

        A loop may pass its steps to another thread, which torch does not record. Then there are only those operators
        with which the loop builds its batches.
        """
        window = self.window
        if (
            not len(window.cpu.operators)
            or len(window.device)
            or len(window.cpu.operators) > len(window.loop_operators)
        ):
            return len(window.cpu.operators) > 0
        begins, ends = (window.operator_time.pieces[side] for side in ("begin", "end"))
        return bool((self.loader.fetching.overlap_ns(begins, ends) < ends - begins).any())

    @cached_property
    def samples(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The samples of the loop's thread, and of workers while they build batches of the training.

        Where no operators were recorded, a wait for another thread within torch is `IN_TORCH` and counts as running:
        its threads may be computing.
        """
        loop, workers = sampled_lines(self.window)
        if len(workers) and len(self.loader.evaluations):
            workers = workers.filter(~self.loader.evaluating.covers(workers["at"]))
        if not len(loop):
            return loop, workers
        is_computing = (pl.col("state") == ANOTHER_THREAD) & pl.col("call").str.contains(r" of torch/")
        is_computing &= pl.lit(not self.has_loop_operators)
        state = pl.when(is_computing.fill_null(False)).then(pl.lit(IN_TORCH)).otherwise("state")
        return loop.with_columns(state.alias("state")), workers

    @cached_property
    def states(self) -> ThreadStates:
        """The readings of the clocks of the loop's thread."""
        return ThreadStates(self.window)

    @cached_property
    def recordings(self) -> pl.DataFrame:
        """The spans of torch's recordings."""
        return self.window.cpu.named(RECORDING)

    @cached_property
    def _other_time(self) -> IntervalUnion:
        others = (*self.interruptions.all, self.loader.evaluations)
        return self.busy.union(*map(self.window.on_loop_thread, others))

    @cached_property
    def non_python_time(self) -> IntervalUnion:
        """The time of the loop's thread in recorded work, in waits, and in what torch did not record."""
        return self._other_time.union(self._unrecorded_time)

    @cached_property
    def _unrecorded_time(self) -> pl.DataFrame:
        """The time in which torch did not record operators yet, or ever: the work of the loop's thread is unknown."""
        cpu_spans = self.window.cpu_spans
        first, last = (pl.lit(value, pl.Int64) for value in (cpu_spans["begin"].min(), cpu_spans["end"].max()))
        if not self.has_loop_operators:
            return pl.select(begin=first, end=last).drop_nulls()
        return self.recordings.head(1).select(begin=first, end=pl.max_horizontal("begin", first))

    @cached_property
    def python_time(self) -> pl.DataFrame:
        """The intervals in which the loop's thread was in no recorded work and no wait: Python.

        Where torch recorded no operators, this includes their time.
        """
        window = self.window
        if self.has_loop_operators or not len(window.steps):
            return self.non_python_time.gaps
        whole = self._other_time.union(window.steps)
        return self._other_time.complement(*time_bounds(whole.pieces)).pieces[["begin", "end"]]

    @cached_property
    def python_by_state(self) -> IntervalsByState:
        """The Python time, split into running, blocked and waiting for a CPU.

        Each interval has the ``name`` of the operator of the loop's thread that follows at once, if there is one.
        """
        operators = select_columns(self.window.loop_operators, "name", at="begin")
        pauses = self.python_time.join_asof(operators, left_on="end", right_on="at", strategy="forward", coalesce=False)
        pauses = pauses[["begin", "end"]].hstack([null_unless(pauses["name"], pauses["at"] == pauses["end"])])
        waits = IntervalUnion(
            self.loader.fetches if self.loader.num_workers else self.loader.fetches.clear(), self.collectives.time
        )
        return split_by_state(pauses, self.states, self.samples[0], waits)

    @cached_property
    def running_python(self) -> pl.DataFrame:
        """Python that ran, with the ``name`` of the operator of the loop's thread that follows at once, if any."""
        running = self.python_by_state.running
        return running if self.has_loop_operators else running.clear()

    @property
    def running_without_operators(self) -> pl.DataFrame:
        """The running part of the Python time, where no operators were recorded."""
        running = self.python_by_state.running
        return running.clear() if self.has_loop_operators else running

    @cached_property
    def avoidable_python(self) -> pl.DataFrame:
        """The avoidable part of the running Python.

        On the CPU, where operators begin at once, each needs some Python before it: an interval counts from
        `ORDINARY_PYTHON_NS` on, or whole if it is one of many in a step before the same operator, as in a loop over
        elements. It counts only before operators that it precedes in `MIN_RECURRING_STEPS` steps, and for as long as it
        lasts in that many: a busy machine may interrupt a loop anywhere, and one time slice is no pattern. Where a
        device waits for it, it counts whole.
        """
        intervals, window = self.running_python, self.window
        if len(window.device):
            return intervals
        is_in_loop = pl.col("name").is_not_null() & (pl.len().over("name") >= _MIN_REPEATS_IN_STEP * len(window.steps))
        ordinary = pl.when(is_in_loop).then(0).otherwise(ORDINARY_PYTHON_NS)
        avoidable = intervals.with_columns(begin=pl.col("begin") + ordinary).filter(pl.col("begin") < pl.col("end"))
        if len(window.steps) < MIN_STEPS:
            return avoidable
        avoidable = avoidable.with_columns(
            index=pl.Series(window.steps["end"].search_sorted(avoidable["end"])), length=pl.col("end") - pl.col("begin")
        )
        longest = avoidable.group_by("name", "index").agg(pl.col("length").max())
        recurring = (
            longest.group_by("name")
            .agg(pl.col("length").sort(descending=True))
            .filter(pl.col("length").list.len() >= MIN_RECURRING_STEPS)
            .select("name", recurs_ns=pl.col("length").list.get(MIN_RECURRING_STEPS - 1))
        )
        avoidable = avoidable.join(recurring, on="name", nulls_equal=True, maintain_order="left")
        avoidable = avoidable.with_columns(begin=pl.max_horizontal("begin", pl.col("end") - pl.col("recurs_ns")))
        return avoidable.drop("index", "length", "recurs_ns")

    @cached_property
    def required_python(self) -> dict[str, int]:
        """The Python that operators of each name require before them, in ns, in the whole window."""
        intervals = drop_null_rows(self.running_python, "name")
        intervals = build_frame(intervals["name"], (intervals["end"] - intervals["begin"]).alias("length"))
        ordinary = filter_rows(intervals, intervals["length"] < ORDINARY_PYTHON_NS)
        return dict(ordinary.group_by("name").agg(pl.col("length").sum()).iter_rows())

    @cached_property
    def small_operators(self) -> pl.DataFrame:
        """Without a device: small operators of the loop's thread, many in a row, each with the Python before it.

        Those of the backward pass are left out: there are many where the forward pass had many.

        An operator is small by the median of its name, since one call takes long if a sampler stops it in its middle;
        one that calls others is small if it takes as little for each of them.
        """
        if len(self.window.device):
            return self.window.loop_operators.clear().select("begin", "end", "name", "track")
        small = self._small_by_name
        before = latest_end_before()
        is_first = small.select((pl.col("begin") - before >= ORDINARY_PYTHON_NS).fill_null(True)).to_series()
        firsts = is_first.arg_true().cast(pl.Int64)
        is_long = firsts.extend_constant(len(small), 1).diff().drop_nulls() >= _MIN_CONSECUTIVE_SMALL
        begin = pl.when(is_first).then("begin").otherwise(pl.min_horizontal("begin", before))
        runs = small.select(begin, "end", "name").filter(is_long.gather(is_first.cum_sum() - 1))
        return runs.with_columns(track=pl.lit(self.window.loop_track, dtype=pl.UInt32))

    @property
    def _small_by_name(self) -> pl.DataFrame:
        window = self.window
        operators = window.loop_operators.select("begin", "end", name="label")
        each_ns = (operators["end"] - operators["begin"]) / count_starts_inside(operators["begin"], operators["end"])
        medians = operators.select("name", each_ns=each_ns).group_by("name").agg(pl.col("each_ns").median())
        small = medians.filter(pl.col("each_ns") < SMALL_OPERATOR_NS)["name"]
        operators = operators.filter(pl.col("name").is_in(small.implode()))
        if not len(self.collectives.backward):
            return operators
        return operators.filter(
            IntervalUnion(self.collectives.backward).overlap_ns(operators["begin"], operators["end"]) == 0
        )
