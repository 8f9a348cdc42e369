"""Time breakdowns of the run, of ranks and of single steps; the parts of each add up to its step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.steps.cpu_breakdown import STEP_PARTS
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.steps.time_breakdown import StepBreakdown
from kinetoscope.pages.page_data import Column, RankBreakdown, StepBreakdowns
from kinetoscope.report.labels import DEVICE_PART_LABELS, HOST_PART_LABELS, build_device_breakdown, build_host_breakdown

_IN_STEP = ("data_wait_ns", *STEP_PARTS)
_WORK = ("forward_ns", "optimizer_ns", "python_ns")
_MIN_DIFFERENCE_SHARE = 0.1
"""A rank is unusual if a part differs by more than this share of a step from that of the median rank."""

_Parts = Mapping[str, float | None]


def build_rank_breakdowns(report: RunReport) -> list[RankBreakdown]:
    """Return the mean breakdown of the run, then one of each rank, unusual ranks first.

    A rank with several devices has one breakdown.
    """
    run = report.run
    ranks = {row.rank: _build_breakdown(row.rank, row.step_ns, row.parts, is_run=False) for row in report.ranks}
    each = [one for one in ranks.values() if one is not None]
    unlike = _find_named_ranks(report) | _find_unusual_ranks(each)
    each = [replace(one, stands_out=one.rank in unlike) for one in each]
    whole = _build_breakdown(None, run["step_ns"], run["parts"], is_run=True)
    return [*([whole] if whole else []), *sorted(each, key=lambda one: not one.stands_out)]


def _find_named_ranks(report: RunReport) -> set[int | None]:
    """Return the stragglers, and the ranks of findings that name less than half of all ranks."""
    few = len(report.run["ranks"]) / 2
    named = [finding.where.ranks for finding in report.findings if len(finding.where.ranks) < few]
    return {*(row.rank for row in report.stragglers), *(rank for ranks in named for rank in ranks)}


def _find_unusual_ranks(each: Sequence[RankBreakdown]) -> set[int | None]:
    """Return the ranks on which a step, or one of its parts, differs from the median rank."""
    times = [{part.part: part.time_ns or 0 for part in [*one.host, *(one.device or [])]} for one in each]
    middle = {part: median(parts.get(part, 0) for parts in times) for parts in times[:1] for part in parts}
    return {
        one.rank
        for one, parts in zip(each, times, strict=True)
        if any(abs(parts.get(part, 0) - usual) > _MIN_DIFFERENCE_SHARE * one.step_ns for part, usual in middle.items())
    }


def _build_breakdown(
    rank: int | None, step_ns: float | None, parts: StepBreakdown | None, *, is_run: bool
) -> RankBreakdown | None:
    if step_ns is None or parts is None:
        return None
    host, device = build_host_breakdown(parts, step_ns), build_device_breakdown(parts, step_ns)
    return RankBreakdown(rank=rank, is_run=is_run, step_ns=step_ns, host=host, device=device)


def build_step_breakdowns(rows: Sequence[StepRow]) -> StepBreakdowns | None:
    """Return the breakdowns of all steps, in the order of ``rows``; None without steps."""
    return (
        _encode_columns([_list_host_parts(row) for row in rows], [_list_device_parts(row) for row in rows])
        if rows
        else None
    )


def build_mean_breakdowns(rows: Sequence[StepRow]) -> StepBreakdowns | None:
    """Return the means over all ranks by step number; None without steps."""
    by_number: dict[int, list[StepRow]] = {}
    for row in rows:
        by_number.setdefault(row.step, []).append(row)
    numbers = sorted(by_number)
    if not numbers:
        return None
    host = [_average_parts([_list_host_parts(row) for row in by_number[number]]) for number in numbers]
    device = [_average_parts([_list_device_parts(row) for row in by_number[number]]) for number in numbers]
    return _encode_columns(host, device, numbers)


def _list_host_parts(row: StepRow) -> _Parts:
    """Return the CPU's parts of a step, with the wait for its batch before it."""
    parts: dict[str, float | None] = {name: getattr(row, name) for name in _IN_STEP}
    parts["evaluation_ns"] = row.all_evaluation_ns or None
    parts["between_ns"] = row.between_ns
    return parts


def _list_device_parts(row: StepRow) -> _Parts:
    """Return the GPU's parts of a step."""
    compute, communication = row.device_compute_ns, row.device_exposed_communication_ns
    is_known = row.device_busy_ns is not None
    copy = (row.device_busy_ns or 0) - (compute or 0) - (communication or 0) if is_known else None
    return {
        "compute_ns": compute,
        "exposed_communication_ns": communication,
        "exposed_copy_ns": copy,
        "idle_ns": row.device_idle_ns,
    }


def _average_parts(all_parts: Sequence[_Parts]) -> _Parts:
    """Return the means of parts; unknown ones count as 0 if some are known, so that the means add up."""
    found: dict[str, float | None] = {}
    for name in all_parts[0]:
        known = [parts[name] or 0 for parts in all_parts]
        found[name] = fmean(known) if any(parts[name] is not None for parts in all_parts) else None
    return found


def _encode_columns(host: Sequence[_Parts], device: Sequence[_Parts], numbers: Sequence[int] = ()) -> StepBreakdowns:
    has_device = any(parts["compute_ns"] is not None for parts in device)
    return StepBreakdowns(
        numbers=list(numbers),
        times=_encode_column(sum(time_ns or 0 for time_ns in parts.values()) for parts in host),
        work=_encode_column(sum(parts[name] or 0 for name in _WORK) for parts in host),
        host={name: _encode_column(parts.get(name) for parts in host) for name in HOST_PART_LABELS},
        device={name: _encode_column(parts[name] for parts in device) for name in DEVICE_PART_LABELS}
        if has_device
        else {},
    )


def _encode_column(values: Iterable[float | None]) -> Column:
    return Column.of(0 if value is None else max(0, round(value)) + 1 for value in values)
