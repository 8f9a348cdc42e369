"""CPU time breakdown of each step of a window."""

from functools import cached_property

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.cpu.phases import BACKWARD, FORWARD, OPTIMIZER
from kinetoscope.analysis.windows.columns import constant_column, filter_rows, null_unless
from kinetoscope.analysis.windows.intervals import IntervalUnion, time_bounds


class CpuTimeByStep:
    """The columns of a window's steps that share out the loop's time. Within a step they add up to its duration.

    Evaluations claim their time first, then garbage collections, waits, and phases by `Phases`: a wait in a phase
    counts as the wait. Forward without a name is the rest of the operators; Python is the rest outside of operators and
    calls, if operators were recorded. Other time is unknown.
    """

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop, self._window = loop, loop.window
        self._begins, self._ends = self._window.steps["begin"], self._window.steps["end"]
        self._next_begins = pl.concat([self._begins[1:], self._ends[-1:]])
        self._phases = loop.phases
        self._claimed = IntervalUnion()
        self._covered = self._claimed.overlap_ns(self._begins, self._ends)

    def columns(self) -> dict[str, pl.Series | None]:
        """Return the columns by name; None for those that are unknown for all steps."""
        evaluated, fetched = self._gaps
        inside = (
            {"evaluation_inside_ns": self._claim(self._loop.loader.evaluations)}
            | self._wait_times()
            | self._phase_times()
        )
        python = self._claim(self._python) if self._loop.python_time.has_loop_operators else None
        inside["python_ns"] = None if python is None else self._null_unless_recorded(python)
        known = sum((_zero_if_null(values) for values in inside.values() if values is not None), start=self._begins)
        between = self._next_begins - self._ends - evaluated - fetched
        data = inside["data_wait_ns"]
        has_evaluations = self._window.steps["is_batch"].any() or len(self._loop.loader.evaluations)
        return inside | {
            "between_ns": _null_last(between),
            "evaluation_ns": _null_last(evaluated) if has_evaluations else None,
            "evaluation_inside_ns": inside["evaluation_inside_ns"] if has_evaluations else None,
            "data_wait_ns": None if data is None else data + self._wait_before_first_step.append(fetched[:-1]),
            "unknown_ns": self._ends - known,
        }

    @cached_property
    def _gaps(self) -> tuple[pl.Series, pl.Series]:
        """The evaluation and the wait for data between each step's end and the next one's start."""
        loader = self._loop.loader
        evaluated = loader.evaluating.overlap_ns(self._ends, self._next_begins)
        both = loader.evaluating.union(loader.fetches)
        return evaluated, both.overlap_ns(self._ends, self._next_begins) - evaluated

    @property
    def _wait_before_first_step(self) -> pl.Series:
        """The loop's wait for the batch of the first recorded step."""
        return self._loop.loader.fetching.covered_before(self._begins[:1])

    def _claim(self, *spans: pl.DataFrame) -> pl.Series:
        """Claim the time of spans in each step that no earlier spans cover, and return it."""
        self._claimed = self._claimed.union(*spans)
        covered = self._claimed.overlap_ns(self._begins, self._ends)
        newly_covered, self._covered = covered - self._covered, covered
        return newly_covered

    def _wait_times(self) -> dict[str, pl.Series | None]:
        loop = self._loop
        return {
            "gc_ns": self._claim(loop.interruptions.gc_runs) if len(loop.interruptions.gc_runs) else None,
            "data_wait_ns": self._claim(loop.loader.fetches) if len(loop.loader.fetches) else None,
            "communication_wait_ns": self._null_unless_recorded(self._claim(loop.collectives.time))
            if len(loop.collectives.time)
            else None,
            "sync_ns": self._null_unless_recorded(self._claim(loop.sync_calls))
            if len(self._window.cpu.runtime_calls)
            else None,
        }

    def _phase_times(self) -> dict[str, pl.Series | None]:
        """Claim backward and optimizer first: forward without a name is the rest."""
        phases, window = self._phases, self._window
        by_torch, pieces, found = phases.backward_of_torch, phases.pieces, {}
        for phase in (BACKWARD, OPTIMIZER, FORWARD):
            spans = [filter_rows(pieces, pieces["phase"] == phase)]
            if phase == BACKWARD and by_torch is not None:
                spans.append(by_torch)
            if phase == FORWARD and not len(phases.named[FORWARD]):
                spans.append(window.operator_time.pieces)
            found[f"{phase}_ns"] = self._claim(*spans) if phases.is_known(phase) else None
        return {
            name: values
            if values is None or len(phases.named[name.removesuffix("_ns")])
            else self._null_unless_recorded(values)
            for name, values in found.items()
        }

    @property
    def _python(self) -> pl.DataFrame:
        """The intervals in which the loop's thread is in none of its operators and calls, and does not wait."""
        return self._loop.busy.complement(*time_bounds(self._window.steps)).pieces

    def _null_unless_recorded(self, values: pl.Series) -> pl.Series:
        return null_unless(values, self._is_recorded)

    @cached_property
    def _is_recorded(self) -> pl.Series:
        return are_recorded_by_torch(self._loop)


def are_recorded_by_torch(loop: TrainingLoop) -> pl.Series:
    """Return whether torch recorded each step from its start. A marked step may start before the recording."""
    begins, recording = loop.window.steps["begin"], loop.python_time.recordings
    return begins >= (recording["begin"].min() if len(recording) else begins.min())


def _null_last(values: pl.Series) -> pl.Series:
    """Return the values with null for the last one: the time after the last step was not recorded."""
    return pl.concat([values[:-1], constant_column(values.name, None, values.dtype, min(1, len(values)))])


def _zero_if_null(values: pl.Series) -> pl.Series:
    return values.fill_null(0) if values.null_count() else values
