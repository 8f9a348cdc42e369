"""First view of a page, and the sums over its devices and calls."""

from collections.abc import Sequence

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.findings.ranking import is_minor
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.pages.page_data import CallTotals, Overview
from kinetoscope.pages.run_list import RunOverview
from kinetoscope.report.calls import KERNELS, OPERATORS, find_top_calls
from kinetoscope.report.descriptions import (
    describe_all_steps,
    describe_in_one_line,
    describe_saving_basis,
    find_fix_code,
    list_warnings,
)
from kinetoscope.report.labels import (
    compute_device_times,
    compute_share_of_step,
    find_limiting_side,
    label_bound,
    label_device,
)
from kinetoscope.report.no_findings import describe_no_findings
from kinetoscope.report.page.step_breakdowns import build_rank_breakdowns

_MAX_FINDINGS = 5
"""Limit of the findings on the page of a run."""


def build_overview(report: RunReport, profiler_ns_per_step: float | None) -> Overview:
    """Return the data of the first view, with shares of the step."""
    run = report.run
    devices = compute_device_times(report.ranks)
    busy = [(one.busy_share, one) for one in devices[1:] if one.busy_share is not None]
    least_busy = min(busy, key=lambda pair: pair[0], default=None)
    has_several = len({one.rank for _, one in busy}) < len(busy)
    peak_row = max(report.memory, key=lambda row: row.peak_bytes, default=None)
    return Overview(
        warnings=list_warnings(report),
        all_steps=describe_all_steps(run["all_steps"]) if run["all_steps"] is not None else "",
        bound=label_bound(run),
        bound_side=find_limiting_side(run),
        no_findings=[] if report.findings else describe_no_findings(report),
        busy_share=devices[0].busy_share if devices else None,
        min_busy_share=least_busy and least_busy[0],
        min_busy_device=label_device(least_busy[1].rank, least_busy[1].device if has_several else None)
        if least_busy
        else "",
        num_devices=len(busy),
        peak_bytes=peak_row and peak_row.peak_bytes,
        peak_rank=peak_row and peak_row.rank,
        peak_growth_bytes=peak_row and peak_row.growth_bytes_per_step,
        profiler_share=compute_share_of_step(profiler_ns_per_step, run),
        costs=[compute_share_of_step(finding.cost_ns_per_step, run, finding.kind) for finding in report.findings],
        are_minor=[is_minor(finding, run["step_ns"]) for finding in report.findings],
        savings=[finding.saving_share for finding in report.findings],
        fixes=[find_fix_code(finding) for finding in report.findings],
        saving_basis=describe_saving_basis(report.findings, run),
    )


def build_run_overview(report: RunReport) -> RunOverview:
    """Return the results of an analysis for the page of its run in `kinetoscope view`."""
    findings = [describe_in_one_line(finding, report.run) for finding in report.findings[:_MAX_FINDINGS]]
    return RunOverview(
        findings=findings or describe_no_findings(report),
        breakdowns=build_rank_breakdowns(report)[:1],
        devices=[] if report.steps else compute_device_times(report.ranks),
        top_calls=find_top_calls(report),
    )


def compute_call_totals(operators: Sequence[OperatorRow], kernels: Sequence[KernelRow]) -> list[CallTotals]:
    """Return the sums over all operators, over all kernels and copies, and over each kind, the longest first."""
    kinds = list(dict.fromkeys(row.kind for row in kernels))
    of_kernels = [_sum_calls(kind, [row for row in kernels if row.kind == kind]) for kind in kinds]
    whole = [_sum_calls(OPERATORS, operators)] if operators else []
    whole += [_sum_calls(KERNELS, kernels)] if kernels else []
    return whole + sorted(of_kernels, key=lambda total: -total.total_ns)


def _sum_calls(kind: str, rows: Sequence[OperatorRow | KernelRow]) -> CallTotals:
    return CallTotals(
        kind=kind,
        num_calls=sum(row.num_calls for row in rows),
        total_ns=sum(row.total_ns for row in rows),
        self_ns=sum(row.self_ns for row in rows),
    )
