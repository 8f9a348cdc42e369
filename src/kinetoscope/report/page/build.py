"""Data of the page of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import polars as pl
from msgspec import UNSET

from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.analysis.findings.explanations import explanations
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.unrecorded_steps import displayed_saving_ns
from kinetoscope.pages.page_data import PageData
from kinetoscope.report.calls import build_call_tables, count_steps, find_top_calls
from kinetoscope.report.comparison import describe_comparison
from kinetoscope.report.descriptions import (
    build_advice,
    describe_straggler,
    describe_tensor_cores,
    find_public_folder,
)
from kinetoscope.report.explanations import render_explanation_html
from kinetoscope.report.labels import DEVICE_PART_LABELS, HOST_PART_LABELS, compute_device_times
from kinetoscope.report.page.calling_lines import CallingLinesBuilder
from kinetoscope.report.page.communication import build_communication, build_waits
from kinetoscope.report.page.compared_sides import build_compared_sides
from kinetoscope.report.page.flame_graph import FlameGraphBuilder
from kinetoscope.report.page.memory import MemoryBuilder
from kinetoscope.report.page.modules import ModulesBuilder
from kinetoscope.report.page.overview import build_overview, compute_call_totals
from kinetoscope.report.page.privacy import remove_personal_names
from kinetoscope.report.page.rank_spans import measure_profiler_ns, read_spans
from kinetoscope.report.page.rank_traces import RankTrace
from kinetoscope.report.page.step_breakdowns import build_mean_breakdowns, build_rank_breakdowns, build_step_breakdowns
from kinetoscope.report.page.timeline import MAX_SPANS, TimelineBuilder

MAX_RANKS = 64
"""Limit of the ranks whose spans are shown."""


@dataclass(frozen=True, kw_only=True)
class RecordedWindows:
    """Recorded windows of a report, for timeline, memory and flame graphs.

    ``step`` is the name of the spans that are steps, if not the default. Without ``has_timeline`` the page is small.
    """

    windows: Iterable[RankTrace]
    step: str | None = None
    has_timeline: bool = True


def build_page(
    report: RunReport,
    version: str,
    comparison: Comparison | None = None,
    recorded: RecordedWindows | None = None,
) -> PageData:
    """Return the page of a run, with its recorded windows, without home folders and user names."""
    page = remove_personal_names(_build(report, version, comparison, recorded))
    return replace(page, explanations=_render_explanations(report.findings))


def _build(
    report: RunReport, version: str, comparison: Comparison | None, recorded: RecordedWindows | None
) -> PageData:
    recorded = recorded or RecordedWindows(windows=(), has_timeline=False)
    timeline, memory, graphs = TimelineBuilder(report), MemoryBuilder(recorded.step), FlameGraphBuilder()
    lines, shown, modules = CallingLinesBuilder(recorded.step), _ShownRanks(), ModulesBuilder(report, recorded.step)
    for window in recorded.windows:
        spans = read_spans(window.trace)
        if shown.was_added(window, spans):
            continue
        if not shown.accepts(window, spans):
            break
        memory.add(window)
        graphs.add(window, spans)
        lines.add(window, spans)
        modules_of_spans = modules.add(window, spans)
        if recorded.has_timeline:
            timeline.add(window, spans, modules_of_spans)
    origin_ns = _find_origin_ns(report, timeline.find_start_ns(), memory.find_start_ns())
    profiler_ns = shown.profiler_ns_per_step(report)
    return PageData(
        version=version,
        title=report.run["title"] or "A run",
        origin_ns=str(origin_ns),
        notes=shown.notes(report),
        profiler_ns_per_step=profiler_ns,
        profiler_ns_around=shown.profiler_ns_around(),
        overview=build_overview(report, profiler_ns),
        part_labels=HOST_PART_LABELS | DEVICE_PART_LABELS,
        breakdowns=build_rank_breakdowns(report),
        steps=build_step_breakdowns(report.steps),
        mean_steps=build_mean_breakdowns(report.steps),
        devices=compute_device_times(report.ranks),
        communication=build_communication(report.collectives),
        waits=build_waits(report.collectives),
        straggler_sentences=[describe_straggler(row, report.run["num_steps"]) for row in report.stragglers],
        call_totals=compute_call_totals(report.operators, report.kernels),
        call_tables=build_call_tables(report.operators, report.kernels, _sum_recorded_steps(report)),
        top_calls=find_top_calls(report),
        tensor_core_sentence=describe_tensor_cores(report.run),
        comparison_summary=describe_comparison(comparison) if comparison else [],
        compared_sides=build_compared_sides(comparison) if comparison else [],
        report=_prepare_for_page(_shift_times(report, origin_ns)).to_dict(),
        comparison=comparison and comparison.to_dict(),
        timeline=timeline.build(origin_ns) if recorded.has_timeline else None,
        memory=memory.build(origin_ns, report),
        flame_graphs=graphs.build(),
        calling_lines=lines.build(),
        modules=modules.build() or UNSET,
    )


def _sum_recorded_steps(report: RunReport) -> float | None:
    """Return the duration of the recorded steps of all ranks, in ns; None without steps."""
    return count_steps(report.ranks) * (report.run["step_ns"] or 0.0) or None


def _render_explanations(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the explanation of each kind among the findings, as HTML."""
    kinds, known = dict.fromkeys(finding.kind for finding in findings), explanations()
    return {kind: render_explanation_html(known[kind].text) for kind in kinds if kind in known}


class _ShownRanks:
    """Ranks whose spans are shown: the required ones, then others up to the limits."""

    def __init__(self) -> None:
        self._ranks: set[int | None] = set()
        self._num_spans = 0
        self._profiler_ns: list[tuple[int, int]] = []
        self._windows: set[tuple[Any, ...]] = set()

    def was_added(self, window: RankTrace, spans: pl.DataFrame) -> bool:
        """Return whether a window was added before: a user may pass copies of a trace."""
        key = (window.rank, len(spans), spans["begin"].min(), spans["dur"].sum())
        is_copy = len(spans) > 0 and key in self._windows
        self._windows.add(key)
        return is_copy

    def accepts(self, window: RankTrace, spans: pl.DataFrame) -> bool:
        """Return whether a window is shown; none is after the first that is not."""
        self._num_spans += len(spans)
        has_room = self._num_spans <= MAX_SPANS and len(self._ranks | {window.rank}) <= MAX_RANKS
        if not window.is_required and not has_room:
            return False
        self._ranks.add(window.rank)
        if "kinetoscope" in window.trace.header:
            self._profiler_ns.append(measure_profiler_ns(spans))
        return True

    def profiler_ns_per_step(self, report: RunReport) -> float | None:
        """Return the profiler's overhead per step of the shown ranks; None for traces of other profilers."""
        num_steps = sum(row.rank in self._ranks for row in report.steps)
        return sum(ns for ns, _ in self._profiler_ns) / num_steps if self._profiler_ns and num_steps else None

    def profiler_ns_around(self) -> float | None:
        """Return the mean overhead around the steps of a window, where the profiler starts and stops."""
        return fmean(ns for _, ns in self._profiler_ns) if self._profiler_ns else None

    def notes(self, report: RunReport) -> list[str]:
        """Return sentences on the ranks that are left out."""
        num_ranks, world_size = len(report.run["ranks"]), report.run["world_size"] or 0
        notes = [f"This report is of {num_ranks:,} of the {world_size:,} ranks."] if num_ranks < world_size else []
        if not self._ranks or num_ranks <= len(self._ranks):
            return notes
        by_module = ", calls by module" if report.modules else ""
        return [
            *notes,
            f"The timeline, memory over time{by_module} and flame graphs are of {len(self._ranks):,} of the "
            f"{num_ranks:,} ranks: the first one, and those that findings name. All other numbers are of all ranks; "
            "--ranks chooses others.",
        ]


def _find_origin_ns(report: RunReport, *firsts: int | None) -> int:
    """Return the earliest start of a step, a collective call, or one of ``firsts``."""
    begins = [row.begin_ns for row in report.steps] + [first for first in firsts if first is not None]
    return min([*begins, *(begin for row in report.collectives for begin in row.starts_ns)], default=0)


def _prepare_for_page(report: RunReport) -> RunReport:
    """Return the report as people are shown it: savings of steps that were not recorded, and measured gains.

    Its rows of modules are left out: the page has their tree.
    """
    folder = find_public_folder(report)
    shown = [(finding, displayed_saving_ns(finding, report.run)) for finding in report.findings]
    return replace(
        report,
        modules=[],
        findings=[
            replace(
                finding,
                saving_ns_per_step=None if saving_ns is None else round(saving_ns),
                advice=build_advice(finding, report.run, folder),
            )
            for finding, saving_ns in shown
        ],
    )


def _shift_times(report: RunReport, origin_ns: int) -> RunReport:
    """Return the report with times relative to the origin."""
    return replace(
        report,
        steps=[replace(row, begin_ns=row.begin_ns - origin_ns) for row in report.steps],
        collectives=[
            replace(row, starts_ns=_subtract(row.starts_ns, origin_ns), ends_ns=_subtract(row.ends_ns, origin_ns))
            for row in report.collectives
        ],
    )


def _subtract(times_ns: Sequence[int], origin_ns: int) -> Any:
    return tuple(time_ns - origin_ns for time_ns in times_ns)
