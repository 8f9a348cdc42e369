"""analysis: a run as the rules of findings see it: what its steps take, and replays of it without a fault."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.finding import (
    HIGH_SHARE,
    LEAST_SHARE,
    Finding,
    Where,
    build_finding,
    confidence_in,
)
from kinetoscope.analysis.findings.signs import Signs
from kinetoscope.analysis.replay.replay import Change, ReplayGraph
from kinetoscope.analysis.sampled_lines import is_line_sure, least_share
from kinetoscope.analysis.stragglers import StragglerRow
from kinetoscope.analysis.window import FEWEST_STEPS
from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl

    from kinetoscope.analysis.analyze import RunReport

_FEWEST_RECURRING = 3
_NAMED_SHARE = 0.05
MOST_NAMED = 3
"""How many spans, and source lines, a finding names."""

_STOPS_OF_CAUSES = {"data": ("data",), "host": ("python", "gc", "compile", "profiler")}
"""What may have made a rank late for a cause."""

_MOST_TIMES_MEAN = 4
"""What costs less on average, even so many times, is not looked at: ranks that wait for each other lose little more."""

_LATE_SHARE = 0.03
"""A late rank is left out of all other findings if the others would save this part of a step without it."""


class SampledLine(NamedTuple):
    """The line that takes the most of some time, as sampled: its ``share``, and what that surely is ``at_least``."""

    line: str
    share: float
    at_least: float


class Case:
    """The rows of a run, its signs, and its replays.

    ``late`` is the worst straggler, which other findings leave out.
    """

    def __init__(self, report: "RunReport", graph: ReplayGraph, signs: Sequence[Signs]) -> None:
        self.report, self.signs = report, signs
        self.num_steps: int = report.run["num_steps"]
        self.step_ns = report.run["step_ns"] or 0.0
        self.has_device = any(row.window_ns is not None for row in report.ranks)
        self.knows_intervals = self.num_steps >= FEWEST_STEPS
        self.is_replayed = graph.why_untrusted is None
        self.graph = FaultGraph(graph)
        self._saved: dict[tuple[frozenset[str], int | None], int] = {}
        self.late = self._late()
        self._late_rank = self.late.rank if self.late else -1
        self._steps = [row for row in report.steps if row.rank != self._late_rank]

    def _late(self) -> StragglerRow | None:
        for row in self.report.stragglers[:1]:
            saved_ns = self._saved_anyway_ns(Change(on_time=row.rank))
            if saved_ns >= _LATE_SHARE * self.step_ns * self.num_steps:
                return row
        return None

    # -- what a step takes, on average over ranks that are not late

    def mean_ns(self, name: str) -> float:
        """A column of steps."""
        values = [value for row in self._steps if (value := getattr(row, name)) is not None]
        return sum(values) / max(1, len(values))

    def device_ns(self, name: str) -> float:
        """A column of ranks; where a rank has several devices, their mean."""
        rows = [row for row in self.report.ranks if row.rank != self._late_rank and row.num_steps]
        values = [(getattr(row, name) or 0) / row.num_steps for row in rows]
        return sum(values) / max(1, len(values))

    def host_ns(self, part: str) -> float:
        """What threads of the host spend with a part that replays know, without runs of small kernels."""
        return int(self._patients.filter(~import_polars().col("in_run"))[part].sum()) / max(1, len(self._steps))

    def without_work_ns(self) -> float:
        """For how long a device waits for its host, or for other ranks; on the CPU everything counts.

        Without a replay nobody knows how much of a wait for the late rank is the host's: then it does not count.
        """
        if not self.has_device:
            return self.step_ns
        return self.device_ns("idle_host_wait_ns") + self.waits_ns(None if self.is_replayed else self._late_rank)

    def waits_ns(self, but_for: int | None = None) -> float:
        """What ranks wait for each other in collectives, and compute nothing meanwhile; ``but_for`` one of them."""
        waits = [
            wait
            for call in self.report.collectives
            if call.waits_ns is not None and call.step is not None and (but_for is None or call.late_rank != but_for)
            for rank, wait in zip(call.ranks, call.waits_ns, strict=True)
            if rank != self._late_rank
        ]
        return sum(waits) / max(1, len(self._steps))

    def python_before_ns(self, names: Collection[str]) -> float:
        """The Python that operators of these names need before them."""
        of_ranks = [one.python_before for one in self.signs if one.rank != self._late_rank]
        return sum(of_rank.get(name, 0) for of_rank in of_ranks for name in names) / max(1, len(self._steps))

    def stops(self, kind: str) -> "pl.DataFrame":
        """The signs of one kind, those that took the most first."""
        return self._stops.filter(import_polars().col("kind") == kind)

    def total_ns(self, kind: str) -> float:
        """What the signs of one kind took of a step."""
        return int(self.stops(kind)["total_ns"].sum()) / max(1, len(self._steps))

    def in_steps(self, kind: str) -> "pl.DataFrame":
        """Those that come in several steps of a window, not once or twice around it."""
        return self.stops(kind).filter("is_recurring")

    def in_steps_ns(self, kind: str) -> float:
        """What those take of a step."""
        return int(self.in_steps(kind)["total_ns"].sum()) / max(1, len(self._steps))

    def around_windows_ns(self, kind: str) -> float:
        """What all others take of a window, and of what comes before and after its steps."""
        others = self.stops(kind).filter(~import_polars().col("is_recurring"))
        return int(others["total_ns"].sum()) / max(1, len(self._own_signs))

    def calls(self, kind: str) -> float:
        """How many signs of one kind a step has."""
        return int(self.stops(kind)["num_calls"].sum()) / max(1, len(self._steps))

    def interval(self, kind: str) -> float | None:
        """From one step with a sign of this kind to the next one, on average; None where too few steps can tell."""
        steps = self.stops(kind)["step"].drop_nulls().unique().sort().to_list()
        return (steps[-1] - steps[0]) / (len(steps) - 1) if len(steps) > 1 and self.knows_intervals else None

    @cached_property
    def pauses(self) -> frozenset[str]:
        """The parts by which the loop is stopped now and then. A wait for the device is not what makes them cost."""
        return frozenset(part for part in ("gc", "compile", "profiler") if self.host_ns(part) > 0)

    def small_kernels(self) -> tuple[float, float]:
        """How many kernels of runs of small ones a step has, and what the host takes for them."""
        small = self._patients.filter("in_run")
        return len(small) / max(1, len(self._steps)), int(small["weight"].sum()) / max(1, len(self._steps))

    def where(self, stops: "pl.DataFrame", *, with_steps: bool = False, lines_by: str = "total_ns") -> Where:
        """The places of signs; ``with_steps``, also those steps. Lines are in order of the column ``lines_by``."""
        pl = import_polars()
        is_kind = pl.col("kind").is_in(stops["kind"].unique().implode())
        return _where(stops, self._sampled.filter(is_kind), with_steps=with_steps, lines_by=lines_by)

    def share_of_line(self, stops: "pl.DataFrame", lines_by: str = "total_ns") -> float | None:
        """The part that the first of the lines has in all signs of which a line is known."""
        by_line = stops.drop_nulls("line").group_by("line").agg(import_polars().col(lines_by).sum())
        most: Any = by_line[lines_by].max()
        return most / by_line[lines_by].sum() if most else None

    def where_late(self, row: StragglerRow) -> Where:
        """The rank that is late, its steps, and what it did in them."""
        pl = import_polars()
        kinds = _STOPS_OF_CAUSES.get(row.cause, ())
        is_then = pl.col("kind").is_in(kinds) & pl.col("step").is_in(row.steps)
        own = [one for one in self.signs if one.rank == row.rank]
        stops, sampled = (
            pl.concat(frames).filter(is_then) for frames in ([s.stops for s in own], [s.sampled for s in own])
        )
        return replace(_where(stops, sampled), ranks=(row.rank,), steps=row.steps)

    def sampled_line(self, kind: str) -> SampledLine | None:
        """The line that took the most of the time of one kind of signs, if one is sure. Samples of one step may depend
        on each other, so there are only as many independent ones as steps."""
        sampled = self._sampled.filter(import_polars().col("kind") == kind)
        lines = _sampled_lines(sampled)
        if not lines:
            return None
        share = int(sampled.filter(line=lines[0])["total_ns"].sum()) / int(sampled["total_ns"].sum())
        return SampledLine(lines[0], share, least_share(share, sampled["step"].n_unique()))

    def on_line(self, kind: str, whose: str = "this time") -> str:
        """A sentence on that line; empty if none is sure."""
        found = self.sampled_line(kind)
        if found is None:
            return ""
        percent, least = 100 * found.share, 100 * found.at_least
        return f"{found.line} takes {percent:.0f} % of {whose}, surely {least:.0f} % or more. "

    def evidence_of_line(self, kind: str) -> dict[str, float | None]:
        """That line as evidence."""
        found = self.sampled_line(kind)
        return {"share_of_line": found and found.share, "least_share_of_line": found and found.at_least}

    # -- what is wrong

    def finding(
        self,
        kind: str,
        title: str,
        advice: str,
        *,
        cost_ns: float,
        change: Change | None,
        evidence: Mapping[str, float | None],
        graph: Callable[[], ReplayGraph] | None = None,
        beyond: frozenset[str] = frozenset(),
        where: Where | None = None,
        high_share: float = HIGH_SHARE,
    ) -> Finding | None:
        """A finding that costs so much of a step, if ``change`` of ``graph`` saves enough. Without a change no replay
        can tell, and the cost decides."""
        if not self.step_ns or _MOST_TIMES_MEAN * cost_ns < LEAST_SHARE * high_share * self.step_ns:
            return None
        saving_ns = self.saving_ns(change, graph and graph(), beyond) if change else None
        share = (cost_ns if saving_ns is None else saving_ns) / self.step_ns
        if share < LEAST_SHARE * high_share:
            return None
        confidence = confidence_in(share, high_share)
        if change and saving_ns is None and confidence == "high":
            confidence = "medium"  # how much of it matters is not known
        return build_finding(
            kind,
            title,
            advice,
            confidence=confidence,
            evidence=evidence,
            where=where,
            cost_ns=cost_ns,
            saving_ns=saving_ns,
        )

    # -- what a step would gain

    def saving_ns(
        self, change: Change, graph: ReplayGraph | None = None, beyond: frozenset[str] = frozenset()
    ) -> float | None:
        """What a step gains by a change, and would still gain if nobody waited for the late rank, and without the parts
        ``beyond``. None where replays are not to be trusted."""
        if not self.is_replayed or not self.num_steps:
            return None
        graph = graph or self.graph.as_recorded
        saved_ns = graph.saving_ns(change)
        others = Change(beyond, on_time=self.late.rank if self.late else None)
        if others != Change():
            both = replace(others, without=change.without | beyond, faster=change.faster)
            saved_ns = min(saved_ns, graph.saving_ns(both) - self._saved_anyway_ns(others))
        return saved_ns / self.num_steps

    def _saved_anyway_ns(self, change: Change) -> int:
        """What the run gains by a change that all variants of the graph have alike, as they have a rank on time."""
        key = (change.without, change.on_time)
        if key not in self._saved:
            self._saved[key] = self.graph.as_recorded.saving_ns(change)
        return self._saved[key]

    def saving_on_time_ns(self, rank: int) -> float | None:
        """What a step of the others gains if nobody waits for a rank."""
        if not self.is_replayed or not self.num_steps:
            return None
        return self._saved_anyway_ns(Change(on_time=rank)) / self.num_steps

    @cached_property
    def _stops(self) -> "pl.DataFrame":
        pl = import_polars()
        is_recurring = pl.col("step").drop_nulls().n_unique().over("kind", "name") >= _FEWEST_RECURRING
        stops = pl.concat([one.stops.with_columns(is_recurring=is_recurring) for one in self._own_signs])
        return stops.sort("total_ns", descending=True)

    @cached_property
    def _sampled(self) -> "pl.DataFrame":
        return import_polars().concat([one.sampled for one in self._own_signs])

    @cached_property
    def _own_signs(self) -> list[Signs]:
        """Those of ranks that are not late."""
        return [one for one in self.signs if one.rank != self._late_rank]

    @cached_property
    def _patients(self) -> "pl.DataFrame":
        """The edges of ranks that are not late."""
        return self.graph.edges.filter(import_polars().col("rank").ne_missing(self._late_rank))


def _where(
    stops: "pl.DataFrame", sampled: "pl.DataFrame", *, with_steps: bool = False, lines_by: str = "total_ns"
) -> Where:
    """The places of signs. Lines that were sampled say more than those where recorded functions begin."""
    steps = tuple(stops["step"].drop_nulls().unique().sort().to_list()) if with_steps else ()
    lines = _sampled_lines(sampled) or _named(stops, "line", lines_by)
    return Where(steps=steps, spans=_named(stops, "name"), lines=lines)


def _sampled_lines(sampled: "pl.DataFrame") -> tuple[str, ...]:
    """The lines that took the most, of those that are no chance."""
    pl = import_polars()
    hits = sampled.drop_nulls("line").group_by("line").agg(pl.col("num_samples").sum(), pl.col("step").n_unique())
    num_steps = sampled["step"].n_unique()
    sure = [line for line, num_samples, steps in hits.iter_rows() if is_line_sure(num_samples, steps, num_steps)]
    return _named(sampled.with_columns(line=pl.when(pl.col("line").is_in(sure)).then("line")), "line")


def _named(stops: "pl.DataFrame", column: str, weight: str = "total_ns") -> tuple[str, ...]:
    """The names, or lines, of the signs that took the most, and more than a small part of all."""
    pl = import_polars()
    by_name = stops.drop_nulls(column).group_by(column).agg(pl.col(weight).sum())
    by_name = by_name.filter(pl.col(weight) >= _NAMED_SHARE * pl.lit(stops[weight].sum()))
    return tuple(by_name.sort(weight, column, descending=[True, False])[column].head(MOST_NAMED).to_list())
