"""analysis: `kinetoscope.analyze`. Each window of each rank is summed up alone; then all are joined to a report."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kinetoscope.analysis.by_step import StepTimes, join_step_times, times_by_step
from kinetoscope.analysis.collectives import CollectiveRow, collective_calls, join_collectives
from kinetoscope.analysis.dependencies import Dependencies, find_dependencies
from kinetoscope.analysis.findings import Finding
from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.kernels import KernelRow, kernel_rows, kernel_runs
from kinetoscope.analysis.memory import MemoryRow
from kinetoscope.analysis.operators import OperatorRow, operator_calls, operator_rows
from kinetoscope.analysis.ranks import RankRow, add_rank_rows, rank_rows
from kinetoscope.analysis.replay import MOST_UNEXPLAINED, Change, ReplayGraph
from kinetoscope.analysis.steps import StepRow, step_rows
from kinetoscope.analysis.stragglers import StragglerRow, straggler_rows
from kinetoscope.analysis.window import RankWindow, read_windows
from kinetoscope.table.events import import_polars
from kinetoscope.table.load import PathLike, load
from kinetoscope.table.trace import Trace, TraceSet

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1


@dataclass(frozen=True)
class WindowSummary:
    """What is kept of one window of one rank until all are joined. ``calls`` are its collectives, ``operators`` and
    ``kernels`` rows of single calls; ``by_step`` has those of `times_by_step`."""

    ranks: list[RankRow]
    steps: list[StepRow]
    calls: "pl.DataFrame"
    operators: "pl.DataFrame"
    kernels: "pl.DataFrame"
    dependencies: Dependencies
    by_step: "pl.DataFrame"


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """All there is to say about a run. ``to_json()`` is what ``kinetoscope summary PATH --json`` prints.

    ``by_step``, for `compare`, is not in it: its times are in the order of the distinct numbers of ``steps``.
    """

    run: dict[str, Any]
    ranks: list[RankRow]
    steps: list[StepRow]
    collectives: list[CollectiveRow]
    stragglers: list[StragglerRow]
    operators: list[OperatorRow]
    kernels: list[KernelRow]
    memory: list[MemoryRow]
    findings: list[Finding]
    graph: ReplayGraph | None = None
    by_step: Sequence[StepTimes] = ()

    def saving_ns_per_step(self, change: Change) -> float | None:
        """How much shorter a step would be with a change; None where there is no step, or where the graph explains too
        little of what devices waited for."""
        num_steps, graph = self.run["num_steps"], self.graph
        if not num_steps or graph is None or graph.unexplained_share > MOST_UNEXPLAINED:
            return None
        return graph.saving_ns(change) / num_steps

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        tables = (
            "ranks",
            "steps",
            "collectives",
            "stragglers",
            "operators",
            "kernels",
            "memory",
            "findings",
        )
        rows = {name: [row.to_dict() for row in getattr(self, name)] for name in tables}
        return {"schema": SCHEMA, "run": self.run, **rows}

    def to_json(self) -> str:
        """The report as JSON."""
        return msgspec.json.encode(self.to_dict()).decode()


def analyze(
    source: "PathLike | Iterable[PathLike] | Iterable[Trace] | Trace | TraceSet",
    *,
    step: str | None = None,
    ranks: Iterable[int] | None = None,
    executor: Executor | None = None,
    cache: bool = True,
) -> RunReport:
    """Says where the time of a run went.

    ``source`` is what `kinetoscope.load` takes, or traces that it returned. ``step`` is the name of the spans that are
    steps, if not ``event/batch`` or ``ProfilerStep``. With ``ranks``, only these are looked at. Several traces are
    analysed by ``executor``, where one is given.

        report = kinetoscope.analyze("runs/digits")
        print(report.steps[0].data_wait_ns)
    """
    traces = _loaded(source, cache, executor)
    wanted = None if ranks is None else frozenset(ranks)
    summaries = (executor.map if executor else map)(partial(summarize, step=step, ranks=wanted), traces)
    return join_summaries([one for of_trace in summaries for one in of_trace], traces)


def _loaded(source: Any, cache: bool, executor: Executor | None) -> list[Trace]:
    if not isinstance(source, (str, os.PathLike, Trace)):
        source = list(source)
        if all(isinstance(one, Trace) for one in source):
            return source
    loaded = source if isinstance(source, Trace) else load(source, cache=cache, executor=executor)
    return [loaded] if isinstance(loaded, Trace) else list(loaded)


def summarize(trace: Trace, *, step: str | None = None, ranks: frozenset[int] | None = None) -> list[WindowSummary]:
    """The windows of one trace, each alone."""
    windows = read_windows(trace, step)
    return [_summarize(window) for window in windows if ranks is None or window.rank in ranks]


def _summarize(window: RankWindow) -> WindowSummary:
    host, operators = HostTime(window), operator_calls(window)
    return WindowSummary(
        ranks=rank_rows(window),
        steps=step_rows(window, host),
        calls=collective_calls(window),
        operators=operators,
        kernels=kernel_runs(window),
        dependencies=find_dependencies(window, host),
        by_step=times_by_step(window, operators),
    )


def join_summaries(summaries: Sequence[WindowSummary], traces: Sequence[Trace]) -> RunReport:
    """The report of a run, of all its windows."""
    pl = import_polars()
    ranks = add_rank_rows(row for summary in summaries for row in summary.ranks)
    steps = [row for summary in summaries for row in summary.steps]
    calls = pl.concat(
        [summary.calls.with_columns(part=pl.lit(part, pl.UInt32)) for part, summary in enumerate(summaries)]
    )
    exact = [row.rank for row in ranks if row.clock_bound_ns == 0 and row.rank is not None]
    joined, shifts = join_collectives(calls, exact)
    shifts_ns = {rank: shift.shift_ns for rank, shift in shifts.items()}
    return RunReport(
        run=_about(traces, ranks, steps),
        ranks=ranks,
        steps=sorted(steps, key=lambda row: (row.step, row.rank or 0)),
        collectives=joined.rows,
        stragglers=straggler_rows(joined.rows, steps, max((shift.bound_ns for shift in shifts.values()), default=0)),
        operators=operator_rows(pl.concat([summary.operators for summary in summaries])),
        kernels=kernel_rows(pl.concat([summary.kernels for summary in summaries])),
        memory=[],
        findings=[],
        graph=ReplayGraph.join([summary.dependencies for summary in summaries], joined.calls, shifts_ns),
        by_step=join_step_times([summary.by_step for summary in summaries], Counter(sorted(row.step for row in steps))),
    )


def _about(traces: Sequence[Trace], ranks: Sequence[RankRow], steps: Sequence[StepRow]) -> dict[str, Any]:
    sizes = [trace.world_size for trace in traces if trace.world_size is not None]
    return {
        "name": next((trace.run_name for trace in traces if trace.run_name), None),
        "world_size": max(sizes, default=None),
        "ranks": sorted({row.rank for row in ranks if row.rank is not None}),
        "hosts": sorted({trace.host for trace in traces if trace.host}),
        "num_steps": len({row.step for row in steps}),
        "notes": list(dict.fromkeys(note for trace in traces for note in (*trace.notes, *trace.repairs))),
    }
