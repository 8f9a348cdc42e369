"""report: all that the page of a run shows."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.pages.page_data import PageData
from kinetoscope.report.page.rank_traces import RankTrace
from kinetoscope.report.page.timeline import TimelineBuilder


def build_page(
    report: RunReport,
    version: str,
    comparison: Comparison | None = None,
    traces: Iterable[RankTrace] | None = None,
) -> PageData:
    """The page of a run; with ``traces``, which it was made from, what they recorded over time."""
    timeline = TimelineBuilder(report)
    for part in traces or ():
        timeline.add(part)
    origin_ns = _origin_ns(report, timeline.begin_ns())
    return PageData(
        version=version,
        title=report.run["name"] or "A run",
        origin_ns=str(origin_ns),
        report=_since(report, origin_ns).to_dict(),
        comparison=comparison and comparison.to_dict(),
        timeline=None if traces is None else timeline.build(origin_ns),
    )


def _origin_ns(report: RunReport, first_span_ns: int | None) -> int:
    """The begin of the first step, call or span."""
    begins = [row.begin_ns for row in report.steps] + ([] if first_span_ns is None else [first_span_ns])
    return min([*begins, *(begin for row in report.collectives for begin in row.starts_ns)], default=0)


def _since(report: RunReport, origin_ns: int) -> RunReport:
    """The report with all times after the origin."""
    return replace(
        report,
        steps=[replace(row, begin_ns=row.begin_ns - origin_ns) for row in report.steps],
        collectives=[
            replace(row, starts_ns=_less(row.starts_ns, origin_ns), ends_ns=_less(row.ends_ns, origin_ns))
            for row in report.collectives
        ],
    )


def _less(times_ns: Sequence[int], origin_ns: int) -> Any:
    return tuple(time_ns - origin_ns for time_ns in times_ns)
