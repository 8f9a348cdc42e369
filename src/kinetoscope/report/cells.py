"""report: what a notebook shows of a result that is the last line of a cell: small HTML with neither script nor style
sheet, so that it is the same, light or dark, in a notebook that nobody trusts. Colours of text are the notebook's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.run_report import RunFacts, RunReport
from kinetoscope.core.text.templates import load_macros
from kinetoscope.core.text.wording import format_count, format_memory, format_ms, format_percent
from kinetoscope.pages.page_data import DeviceTimes, LedgerPart, Overview
from kinetoscope.report.comparison import COLUMNS, UNITS, about_run, cells_of, comparison_sentences, shown_rows
from kinetoscope.report.page.overview import overview
from kinetoscope.report.page.privacy import without_paths
from kinetoscope.report.sentences import (
    all_steps_line,
    below_title,
    computed_lines,
    device_line,
    headline,
    loop_lines,
    one_line,
    split_code,
    told_parts,
    unknown_parts,
)
from kinetoscope.report.what_if import words_of_change
from kinetoscope.report.words import NOT_KNOWN, PART_COLOURS, SIDES, device_ledger, device_times, host_ledger

_MOST_FINDINGS, _MOST_NOTES = 3, 3
_LEAST_SHARE = 0.005  # what takes less of a step would be told as nothing of it


def render_cell(value: Any) -> str:
    """A report, a finding, a comparison, a row of one, or a change of a replay as HTML."""
    match value:
        case RunReport():
            parts = _report(_about(value))
        case Finding():
            parts = _finding(without_paths(value), None)
        case Comparison():
            parts = _comparison(without_paths(value))
        case ComparisonRow():
            parts = [_rows([without_paths(value)], UNITS)]
        case Change():
            parts = [_line(words_of_change(sorted(value.without), value.faster.items(), sorted(value.on_time)))]
        case _:
            raise NotImplementedError(f"A notebook has no cell for a {type(value).__name__}")
    return str(_html().cell(parts, not isinstance(value, Comparison | ComparisonRow)))


def _html() -> Any:
    return load_macros("report/cells.jinja")


# -- a report


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What a cell says of a run. ``ledger`` is that of the side that bounds it."""

    run: RunFacts
    overview: Overview
    ledger: list[LedgerPart]
    devices: list[DeviceTimes]
    findings: list[Finding]


def _about(report: RunReport) -> _Told:
    """From the same places as the page and the screen."""
    run, told = report.run, overview(report, None)
    parts, step_ns, ledger = run["parts"], run["step_ns"], None
    if parts is not None and step_ns is not None:
        ledger = device_ledger(parts, step_ns) if told.bound_side == "device" else host_ledger(parts, step_ns)
    found = _Told(
        run=run, overview=told, ledger=ledger or [], devices=device_times(report.ranks), findings=report.findings
    )
    return without_paths(found)


def _report(told: _Told) -> Iterable[str]:
    run = told.run
    yield _line(headline(run), is_bold=True)
    yield from (_line(warning, is_bold=True) for warning in told.overview.warnings)
    if told.ledger:
        yield from _ledger(f"{SIDES[told.overview.bound_side or 'host']}, ms/step", told.ledger)
    elif told.devices:
        yield _line(device_line(told.devices))
    if run["all_steps"] is not None:
        yield _line(all_steps_line(run["all_steps"]))
    yield from map(_line, [*loop_lines(run)] or [f"A rank's throughput: {NOT_KNOWN}"])
    yield from map(_line, computed_lines(run))
    yield from map(_line, _devices_and_memory(told.overview))
    yield from _some_findings(told)
    notes = [note for note in run["notes"] if note not in told.overview.warnings]
    yield from (_html().prose(split_code(note)) for note in notes[:_MOST_NOTES])
    if len(notes) > _MOST_NOTES:
        yield _line(f"and {format_count(len(notes) - _MOST_NOTES, 'more note')}")
    yield _line("All of it: kinetoscope.view(report) in a cell, or in a terminal", "kinetoscope report PATH --open")


def _ledger(title: str, ledger: Sequence[LedgerPart]) -> Iterable[str]:
    """A step as one bar, and in words."""
    parts = told_parts(ledger)
    longest = sum(part.time_ns or 0 for part in parts if (part.time_ns or 0) > 0)
    yield _line(title)
    times = [(_colour(part), part.time_ns) for part in parts if part.time_ns is not None and part.time_ns > 0]
    yield _html().bar([(colour, 100 * time_ns / longest) for colour, time_ns in times])
    yield _html().legend([(_colour(part), _part(part)) for part in parts])
    if unknown := unknown_parts(ledger):
        yield _line(unknown)


def _colour(part: LedgerPart) -> str:
    return PART_COLOURS.get(part.part, PART_COLOURS["unknown_ns"])


def _part(part: LedgerPart) -> str:
    if part.share is None:
        return f"{part.word} {format_ms(part.time_ns)}"
    share = "<1%" if 0 < part.share < _LEAST_SHARE else f"{part.share:.0%}"
    return f"{part.word} {format_ms(part.time_ns)} ({share})"


def _devices_and_memory(told: Overview) -> Iterable[str]:
    """As the page's tiles say it; nothing of what was not recorded."""
    if told.busy_share is not None:
        share_lower_bound = told.least_busy_share if told.num_devices > 1 else None
        least = (
            "" if share_lower_bound is None else f", least on {told.least_busy}: {format_percent(share_lower_bound, 1)}"
        )
        yield f"Device busy {format_percent(told.busy_share, 1)}{least}"
    if told.peak_bytes is not None:
        on = "" if told.peak_rank is None else f" on rank {told.peak_rank}"
        yield f"Most memory {format_memory(told.peak_bytes)}{on}"


def _some_findings(told: _Told) -> Iterable[str]:
    if not told.findings:
        first, *others = told.overview.no_findings
        yield _line(first, is_bold=True)
        yield from map(_line, others)
        return
    shown = list(zip(told.findings, told.overview.are_minor, strict=True))[:_MOST_FINDINGS]
    items = (
        [_line(one_line(finding, told.run))] if is_minor else list(_finding(finding, told.run))
        for finding, is_minor in shown
    )
    yield _html().items(items)
    if len(told.findings) > _MOST_FINDINGS:
        yield _line(f"and {format_count(len(told.findings) - _MOST_FINDINGS, 'more finding')}")


def _finding(finding: Finding, run: RunFacts | None) -> Iterable[str]:
    """The title, what it costs and saves, where it is, what to change, and what explains it."""
    yield _line(finding.title, is_bold=True)
    *lines, link = below_title(finding, run)
    yield from (_html().prose(split_code(line)) for line in lines)
    yield _line("In a terminal:", link)


# -- a comparison


def _comparison(comparison: Comparison) -> Iterable[str]:
    yield _line(f"before: {about_run(comparison.before)}")
    yield _line(f"after: {about_run(comparison.after)}")
    yield from map(_line, comparison_sentences(comparison))
    shown = shown_rows(comparison.rows)
    if shown:
        num_left = len(comparison.rows) - len(shown)
        left = f"; {format_count(num_left, 'more row')}: kinetoscope.view(comparison) has all" if num_left else ""
        yield _rows(shown, f"{UNITS}{left}")


def _rows(rows: Sequence[ComparisonRow], caption: str) -> str:
    return _html().table(COLUMNS, cells_of(rows), caption)


def _line(text: str, code: str = "", *, is_bold: bool = False) -> str:
    """Return a line of text, with a command at its end."""
    return _html().line(text, code, is_bold)
