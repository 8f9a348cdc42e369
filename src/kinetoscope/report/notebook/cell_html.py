"""HTML of a result as the last line of a notebook cell.

It has neither script nor style sheet, so that it looks the same in an untrusted notebook, light or dark: colours of
text are the notebook's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.run_report import RunFacts, RunReport
from kinetoscope.core.text.templates import load_macros
from kinetoscope.core.text.wording import format_count, format_memory, format_ms, format_percent
from kinetoscope.pages.page_data import BreakdownPart, DeviceTimes, Overview
from kinetoscope.report.comparison import COLUMNS, UNITS, describe_comparison, describe_run, format_rows, select_rows
from kinetoscope.report.descriptions import (
    build_headline,
    describe_all_steps,
    describe_computation,
    describe_devices,
    describe_finding,
    describe_in_one_line,
    describe_throughput,
    find_public_folder,
    list_unknown_phases,
    select_parts_with_time,
    split_code,
)
from kinetoscope.report.labels import (
    PART_COLOURS,
    SIDE_LABELS,
    UNKNOWN,
    build_device_breakdown,
    build_host_breakdown,
    compute_device_times,
)
from kinetoscope.report.page.overview import build_overview
from kinetoscope.report.page.privacy import remove_personal_names
from kinetoscope.report.what_if import describe_change

_MAX_FINDINGS, _MAX_NOTES = 3, 3
_MIN_PERCENT_SHARE = 0.005  # smaller shares would be rounded to 0 %


def render_cell(value: Any) -> str:
    """Return a report, a finding, a comparison, one of its rows, or a change of a replay as HTML."""
    match value:
        case RunReport():
            parts = _render_report(_build_contents(value))
        case Finding():
            parts = _render_finding(remove_personal_names(value), None, "")
        case Comparison():
            parts = _render_comparison(remove_personal_names(value))
        case ComparisonRow():
            parts = [_render_rows([remove_personal_names(value)], UNITS)]
        case Change():
            parts = [_render_line(describe_change(sorted(value.without), value.faster.items(), sorted(value.on_time)))]
        case _:
            raise NotImplementedError(f"A notebook has no cell for a {type(value).__name__}")
    return str(_load_macros().cell(parts, not isinstance(value, Comparison | ComparisonRow)))


def _load_macros() -> Any:
    return load_macros("report/notebook/cell_html.jinja")


# -- a report


@dataclass(frozen=True, kw_only=True)
class _CellContents:
    """Contents of the cell of a report; ``breakdown`` is that of the side that limits the step time."""

    run: RunFacts
    overview: Overview
    breakdown: list[BreakdownPart]
    devices: list[DeviceTimes]
    findings: list[Finding]
    folder: str


def _build_contents(report: RunReport) -> _CellContents:
    """Return the contents of a report, from the same functions as the page and the terminal."""
    run, contents = report.run, build_overview(report, None)
    parts, step_ns, breakdown = run["parts"], run["step_ns"], None
    if parts is not None and step_ns is not None:
        breakdown = (
            build_device_breakdown(parts, step_ns)
            if contents.bound_side == "device"
            else build_host_breakdown(parts, step_ns)
        )
    cell_contents = _CellContents(
        run=run,
        overview=contents,
        breakdown=breakdown or [],
        devices=compute_device_times(report.ranks),
        findings=report.findings,
        folder=find_public_folder(report),
    )
    return remove_personal_names(cell_contents)


def _render_report(contents: _CellContents) -> Iterable[str]:
    """Yield the lines of a report."""
    run = contents.run
    yield _render_line(build_headline(run), is_bold=True)
    yield from (_render_line(warning, is_bold=True) for warning in contents.overview.warnings)
    if contents.breakdown:
        yield from _render_breakdown(
            f"{SIDE_LABELS[contents.overview.bound_side or 'host']}, ms/step", contents.breakdown
        )
    elif contents.devices:
        yield _render_line(describe_devices(contents.devices))
    if run["all_steps"] is not None:
        yield _render_line(describe_all_steps(run["all_steps"]))
    yield from map(_render_line, [*describe_throughput(run)] or [f"A rank's throughput: {UNKNOWN}"])
    yield from map(_render_line, describe_computation(run))
    yield from map(_render_line, _describe_devices_and_memory(contents.overview))
    yield from _render_findings(contents)
    notes = [note for note in run["notes"] if note not in contents.overview.warnings]
    yield from (_load_macros().prose(split_code(note)) for note in notes[:_MAX_NOTES])
    if len(notes) > _MAX_NOTES:
        yield _render_line(f"and {format_count(len(notes) - _MAX_NOTES, 'more note')}")
    yield _render_line(
        "All of it: kinetoscope.view(report) in a cell, or in a terminal", "kinetoscope report PATH --open"
    )


def _render_breakdown(title: str, breakdown: Sequence[BreakdownPart]) -> Iterable[str]:
    """Yield the time breakdown of a step as a bar with its legend."""
    parts = select_parts_with_time(breakdown)
    total_ns = sum(part.time_ns or 0 for part in parts if (part.time_ns or 0) > 0)
    yield _render_line(title)
    times = [(_find_colour(part), part.time_ns) for part in parts if part.time_ns is not None and part.time_ns > 0]
    yield _load_macros().bar([(colour, 100 * time_ns / total_ns) for colour, time_ns in times])
    yield _load_macros().legend([(_find_colour(part), _format_part(part)) for part in parts])
    if unknown := list_unknown_phases(breakdown):
        yield _render_line(unknown)


def _find_colour(part: BreakdownPart) -> str:
    return PART_COLOURS.get(part.part, PART_COLOURS["unknown_ns"])


def _format_part(part: BreakdownPart) -> str:
    if part.share is None:
        return f"{part.label} {format_ms(part.time_ns)}"
    share = "<1%" if 0 < part.share < _MIN_PERCENT_SHARE else f"{part.share:.0%}"
    return f"{part.label} {format_ms(part.time_ns)} ({share})"


def _describe_devices_and_memory(contents: Overview) -> Iterable[str]:
    """Yield the busy share of GPUs and the peak memory, where recorded."""
    if contents.busy_share is not None:
        min_share = contents.min_busy_share if contents.num_devices > 1 else None
        suffix = "" if min_share is None else f", least on {contents.min_busy_device}: {format_percent(min_share, 1)}"
        yield f"Device busy {format_percent(contents.busy_share, 1)}{suffix}"
    if contents.peak_bytes is not None:
        on = "" if contents.peak_rank is None else f" on rank {contents.peak_rank}"
        yield f"Most memory {format_memory(contents.peak_bytes)}{on}"


def _render_findings(contents: _CellContents) -> Iterable[str]:
    """Yield the top findings; or the sentences of a run without findings."""
    if not contents.findings:
        first, *others = contents.overview.no_findings
        yield _render_line(first, is_bold=True)
        yield from map(_render_line, others)
        return
    shown = list(zip(contents.findings, contents.overview.are_minor, strict=True))[:_MAX_FINDINGS]
    items = (
        [_render_line(describe_in_one_line(finding, contents.run))]
        if is_minor
        else list(_render_finding(finding, contents.run, contents.folder))
        for finding, is_minor in shown
    )
    yield _load_macros().items(items)
    if len(contents.findings) > _MAX_FINDINGS:
        yield _render_line(f"and {format_count(len(contents.findings) - _MAX_FINDINGS, 'more finding')}")


def _render_finding(finding: Finding, run: RunFacts | None, folder: str) -> Iterable[str]:
    """Yield the title, saving, location and advice of a finding."""
    yield _render_line(finding.title, is_bold=True)
    *lines, link = describe_finding(finding, run, folder)
    yield from (_load_macros().prose(split_code(line)) for line in lines)
    yield _render_line("In a terminal:", link)


# -- a comparison


def _render_comparison(comparison: Comparison) -> Iterable[str]:
    verdict, *others = describe_comparison(comparison)
    yield _render_line(verdict, is_bold=True)
    yield _render_line(f"before: {describe_run(comparison.before)}")
    yield _render_line(f"after: {describe_run(comparison.after)}")
    yield from map(_render_line, others)
    shown = select_rows(comparison.rows)
    if shown:
        num_left = len(comparison.rows) - len(shown)
        left = f"; {format_count(num_left, 'more row')}: kinetoscope.view(comparison) has all" if num_left else ""
        yield _render_rows(shown, f"{UNITS}{left}")


def _render_rows(rows: Sequence[ComparisonRow], caption: str) -> str:
    return _load_macros().table(COLUMNS, format_rows(rows), caption)


def _render_line(text: str, code: str = "", *, is_bold: bool = False) -> str:
    """Return a line of text, with a command at its end."""
    return _load_macros().line(text, code, is_bold)
