"""Stragglers of runs without recorded collectives: ranks that work longer in a phase while the others wait for them.

Ranks wait for each other in every step, whatever is recorded, so their steps take equally long. DDP and FSDP reduce
gradients in the backward pass: ranks with less work before it wait there. The work of a rank within its backward
pass shows in the CPU time of its loop, in samples of its stack, and in spans of markers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.ranks.stragglers import (
    MIN_DELAY_TIMES_RUNNING,
    MIN_SHARE_OF_STEP,
    PhaseLateness,
    StragglerCandidates,
    StragglerRow,
    build_row,
    is_late,
)
from kinetoscope.analysis.steps.step_time import step_time_ns
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.optional_numbers import sum_or_none

_MARKERS: dict[str, Any] = {"name": pl.String, "step": pl.Int64, "total_ns": pl.Int64, "until_ns": pl.Int64}
_MAX_MARKERS = 2_000

_INDEPENDENT_WAITS = ("sleep", "fsync", "file", "folder", "child process", "page fault")
"""States of a thread that waits for no other rank. A socket or another thread may wait for one."""

_BEFORE_BACKWARD = {"data_wait_ns": "", "forward_ns": "forward", "optimizer_ns": "the optimizer"}
"""Parts of steps without waits for other ranks, with their names in titles."""

_MAX_EQUAL_SHARE = 0.5
"""Times that differ by less than this share of the lateness are taken as equal."""

ByStep = dict[int, float]


class PhaseWork(NamedTuple):
    """Work of a rank that only samples and markers show.

    Attributes:
        sampled_ns: time by step in which samples show no wait for another rank.
        markers: by name and step, the time of markers, and that from the start of the step to their last end.
    """

    sampled_ns: Mapping[int, int]
    markers: Mapping[tuple[str, int], tuple[int, int]]

    @classmethod
    def of(cls, sampled: pl.DataFrame, markers: pl.DataFrame) -> "PhaseWork":
        """Return the work in the samples and `find_markers` of a window.

        Args:
            sampled: ``kind``, ``state``, ``step``, ``total_ns``.
            markers: the result of `find_markers`.
        """
        own = sampled.filter((pl.col("kind") == "blocked") & pl.col("state").is_in(list(_INDEPENDENT_WAITS)))
        sampled_ns = dict(own.group_by("step").agg(pl.col("total_ns").sum()).iter_rows())
        return cls(sampled_ns, {(name, step): (total, until) for name, step, total, until in markers.iter_rows()})


def find_markers(loop: TrainingLoop) -> pl.DataFrame:
    """Return the time of markers by ``name`` and ``step``, in a window without operators.

    ``total_ns`` is their time, ``until_ns`` that from the start of the step to their last end.
    """
    steps, spans = loop.window.steps, loop.window.cpu.in_category("marker")
    if loop.python_time.has_loop_operators or not len(spans):
        return pl.DataFrame(schema=_MARKERS)
    step_index = interval_index(steps, spans["begin"])
    rows = spans[["name", "begin", "end"]].hstack(
        [steps["step"][step_index], steps["begin"][step_index].alias("since")]
    )
    total, until = pl.col("end") - pl.col("begin"), pl.col("end") - pl.col("since")
    found = filter_rows(rows, step_index.is_not_null()).group_by("name", "step")
    found = found.agg(total_ns=total.sum(), until_ns=until.max())
    return found.select(pl.col(name).cast(dtype) for name, dtype in _MARKERS.items()).top_k(_MAX_MARKERS, by="total_ns")


def find_phase_stragglers(
    steps: Sequence[StepRow], works: Iterable[tuple[int | None, PhaseWork]]
) -> StragglerCandidates:
    """Return the ranks that are late in a phase; none where phases are unknown, or a single rank was recorded."""
    rows: defaultdict[int, dict[int, StepRow]] = defaultdict(dict)
    for row in steps:
        if row.rank is not None and row.backward_ns is not None:
            rows[row.rank][row.step] = row
    by_rank: defaultdict[int, list[PhaseWork]] = defaultdict(list)
    for rank, work in works:
        if rank is not None:
            by_rank[rank].append(work)
    common = sorted(set[int].intersection(*(set(by_step) for by_step in rows.values()))) if len(rows) > 1 else []
    min_ns, found, phases = MIN_SHARE_OF_STEP * (step_time_ns(steps) or 0.0), list[StragglerRow](), {}
    for rank in rows:
        late = _Rank(rank, rows, by_rank, common).latest()
        if late is not None and is_late(late.by_step, len(common), min_ns):
            row = build_row(rank, late.by_step, len(common), 0)
            evidence = ((f"{late.cause}_longer_ns", row.cost_ns_per_step),)
            found.append(replace(row, cause=late.cause, evidence=evidence))
            phases[rank] = late
    found.sort(key=lambda row: (-row.cost_ns_per_step, row.rank))
    return StragglerCandidates(found, phases=phases)


class _Rank:
    """One rank, compared with all others."""

    def __init__(
        self,
        rank: int,
        rows: Mapping[int, Mapping[int, StepRow]],
        works: Mapping[int, Sequence[PhaseWork]],
        steps: Sequence[int],
    ) -> None:
        self._rank, self._rows, self._works, self._steps = rank, rows, works, steps
        self._others = [other for other in rows if other != rank]

    def latest(self) -> PhaseLateness | None:
        """Return the phase with the most lateness; None if there is none."""
        found = [*self._find_before_backward(), *self._find_in_backward()]
        latest = max(found, key=lambda late: sum(late.by_step.values()))
        return latest if any(latest.by_step.values()) else None

    def _find_before_backward(self) -> Iterable[PhaseLateness]:
        """Yield the parts that take the rank longer while the others wait in their backward pass."""
        for column, phase in _BEFORE_BACKWARD.items():
            by_step = {
                step: max(0.0, min(self._longer_ns(step, column), -self._longer_ns(step, "backward_ns")))
                for step in self._steps
            }
            yield PhaseLateness(phase, "data" if column == "data_wait_ns" else self._cause(by_step), by_step)

    def _find_in_backward(self) -> Iterable[PhaseLateness]:
        """Yield the work within a backward pass that takes the others as long, since they wait in it."""
        running = {step: self._longer_ns(step, "running_ns", "starved_ns") for step in self._steps}
        sampled = {step: self._sampled_longer_ns(step) for step in self._steps}
        for longer in (running, sampled):
            by_step = {step: self._limit_to_equal_passes(step, ns) for step, ns in longer.items()}
            yield PhaseLateness("backward", self._cause(by_step), by_step)
        for name in sorted({name for one in self._works.get(self._rank, ()) for name, _ in one.markers}):
            longer = {step: self._marker_longer_ns(name, step) for step in self._steps}
            by_step = {step: self._limit_to_equal_passes(step, ns) for step, ns in longer.items()}
            yield PhaseLateness("backward", self._cause(by_step), by_step, name)

    def _longer_ns(self, step: int, *columns: str) -> float:
        """Return by how much longer these columns are than on the typical other rank; 0 where that is unknown."""
        own = sum_or_none(getattr(self._rows[self._rank][step], name) for name in columns)
        of_others = (self._rows[other][step] for other in self._others)
        others = [sum_or_none(getattr(row, name) for name in columns) for row in of_others]
        known = [ns for ns in others if ns is not None]
        return own - median(known) if own is not None and known else 0.0

    def _limit_to_equal_passes(self, step: int, longer_ns: float) -> float:
        """Return the lateness in a backward pass: 0 where the pass is longer by that time, since no rank waits then."""
        apart_ns = abs(self._longer_ns(step, "backward_ns"))
        is_same = longer_ns > 0 and apart_ns < _MAX_EQUAL_SHARE * longer_ns
        return min(longer_ns, self._rows[self._rank][step].backward_ns or 0) if is_same else 0.0

    def _sampled_longer_ns(self, step: int) -> float:
        def sampled_ns(rank: int) -> int:
            return sum(one.sampled_ns.get(step, 0) for one in self._works.get(rank, ()))

        return sampled_ns(self._rank) - median(map(sampled_ns, self._others))

    def _marker_longer_ns(self, name: str, step: int) -> float:
        """Return by how much longer a marker is than on the typical other rank.

        It is 0 where the marker ends on all ranks at the same time: they may wait for each other in it.
        """
        own = self._marker(self._rank, name, step)
        others = [found for other in self._others if (found := self._marker(other, name, step))]
        if own is None or not others:
            return 0.0 if own is None else float(own.total_ns)
        longer_ns = own.total_ns - median(other.total_ns for other in others)
        is_together = abs(own.end_ns - median(other.end_ns for other in others)) < _MAX_EQUAL_SHARE * longer_ns
        return 0.0 if is_together else longer_ns

    def _marker(self, rank: int, name: str, step: int) -> "_Marker | None":
        found = [found for one in self._works.get(rank, ()) if (found := one.markers.get((name, step)))]
        begin_ns = self._rows[rank][step].begin_ns
        return _Marker(found[0][0], begin_ns + found[0][1]) if found else None

    def _cause(self, by_step: ByStep) -> str:
        """Return ``processor`` if run-queue delay is most of the lateness and the loop ran no longer; else ``host``."""
        starved_ns = sum(self._longer_ns(step, "starved_ns") for step, ns in by_step.items() if ns)
        running_ns = sum(self._longer_ns(step, "running_ns") for step, ns in by_step.items() if ns)
        min_delay_ns = max(sum(by_step.values()) / 2, MIN_DELAY_TIMES_RUNNING * running_ns)
        return "processor" if starved_ns > min_delay_ns else "host"


class _Marker(NamedTuple):
    total_ns: int
    end_ns: int
