"""Findings on a terminal: a row each with its saving, confidence and fix, or with all evidence."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.ranking import is_minor
from kinetoscope.analysis.findings.recording_options import DIAGNOSE, LINE_ADVICE
from kinetoscope.analysis.findings.triable import is_triable
from kinetoscope.analysis.ranks.contention import is_slowed
from kinetoscope.analysis.run_report import RunFacts
from kinetoscope.analysis.unrecorded_steps import displayed_saving_ns
from kinetoscope.core.paths.short_paths import short_path
from kinetoscope.core.text.wording import format_count, format_ms, sanitize_sentence
from kinetoscope.report.descriptions import (
    describe_evidence,
    describe_finding,
    describe_fix,
    describe_measurement,
    describe_saving_basis,
    explain_saving,
    format_try_command,
    split_code,
)
from kinetoscope.report.labels import compute_share_of_step
from kinetoscope.report.no_findings import describe_no_findings

MAX_FINDINGS = 5
"""Without details."""

_ONLY_LOW = "No finding is above low confidence. Possible small savings:"
_ONLY_LOW_IN_CONTENTION = (
    "No finding is above low confidence, since CPU contention disturbs the steps. Possible savings:"
)

_MIN_TABLE_WIDTH = 70
"""Narrower screens have the saving below the title instead of beside it."""

_SEVERITIES = ((0.2, "bold red"), (0.05, "yellow"))
"""Colours of savings by their share of the step, the largest first."""

_INDENT, _GAP = 3, 2
_SAVING, _CONFIDENCE = "saving/step", "confidence"
_LOCATION = re.compile(r"(?<![\w/])([\w./-]+\.py):(\d+)")


def render_findings(report: RunReport, width: int, *, with_details: bool) -> Iterable[RenderableType]:
    """Yield the findings, the most urgent first; or sentences on a run without any."""
    if not report.findings:
        yield from (render_prose(sentence) for sentence in describe_no_findings(report))
        return
    if all(finding.confidence == "low" for finding in report.findings):
        yield Text(_ONLY_LOW_IN_CONTENTION if is_slowed(report.run["contention"]) else _ONLY_LOW)
    shown = report.findings if with_details else report.findings[:MAX_FINDINGS]
    folder = short_path(Path(report.folder)) if report.folder else ""
    if width >= _MIN_TABLE_WIDTH:
        yield _render_rows(shown, report.run, folder, width, with_details=with_details)
    else:
        yield _render_list(shown, report.run, folder, with_details=with_details)
    if len(report.findings) > len(shown):
        yield Text(f"{format_count(len(report.findings) - len(shown), 'more finding')}: --details", style="dim")
    if sum(finding.saving_ns_per_step is not None for finding in report.findings) > 1:
        yield Text("Savings are not additive.", style="dim")
    if basis := describe_saving_basis(shown, report.run):
        yield Text(basis, style="dim")
    if not with_details:
        step_ns = report.run["step_ns"]
        if triable := [n for n, finding in enumerate(shown, start=1) if is_triable(finding, step_ns)]:
            yield Text(f"Measure a fix: {format_try_command(str(triable[0]), folder)}", style="dim")
        if without_line := [f"{n}" for n, one in enumerate(shown, start=1) if LINE_ADVICE in one.advice]:
            plural = "s" if len(without_line) > 1 else ""
            yield render_prose(f"Line of code of finding{plural} {', '.join(without_line)}: record with {DIAGNOSE}.")
        kind = report.findings[0].kind
        yield Text(f"Evidence: --details. Explanation and fixes: kinetoscope explain {kind}", style="dim")


def _render_rows(
    findings: Sequence[Finding], run: RunFacts, folder: str, width: int, *, with_details: bool
) -> RenderableType:
    """Return a row per finding, with its fix below the row in the whole width."""
    savings = [_format_saving(finding, run) for finding in findings]
    saving_width = max(map(len, [_SAVING, *savings]))
    title_width = width - _INDENT - saving_width - len(_CONFIDENCE) - 2 * _GAP

    def render_row(number: str, title: Text, saving: Text | str, confidence: str, style: str = "") -> Table:
        row = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        row.add_column(width=_INDENT - _GAP)
        row.add_column(width=title_width)
        row.add_column(width=saving_width, justify="right")
        row.add_column(width=len(_CONFIDENCE))
        row.add_row(number, title, saving, confidence, style=style)
        return row

    lines: list[RenderableType] = [render_row("", Text("Findings", style="bold"), _SAVING, _CONFIDENCE, "dim")]
    for number, (finding, saving) in enumerate(zip(findings, savings, strict=True), start=1):
        lines.append(render_row(f"{number}", _render_title(finding, run), saving, finding.confidence))
        below = _render_details(finding, run, folder, with_details=with_details)
        lines += [Padding(line, (0, 0, 0, _INDENT)) for line in below]
    return Group(*lines)


def _render_list(findings: Iterable[Finding], run: RunFacts, folder: str, *, with_details: bool) -> RenderableType:
    lines: list[RenderableType] = []
    for number, finding in enumerate(findings, start=1):
        grid = Table.grid()
        grid.add_row(Text(f"{number}. "), _render_title(finding, run))
        saving = Text.assemble(_format_saving(finding, run), f", confidence {finding.confidence}")
        body = Group(saving, *_render_details(finding, run, folder, with_details=with_details))
        lines += [grid, Padding(body, (0, 0, 0, _INDENT))]
    return Group(*lines)


def _render_title(finding: Finding, run: RunFacts) -> Text:
    """Return the title, in bold unless the finding is minor."""
    return render_location_links(
        Text(sanitize_sentence(finding.title), style="" if is_minor(finding, run["step_ns"]) else "bold")
    )


def render_location_links(text: Text | str) -> Text:
    """Colour source lines, and make them links where the files are in the working folder."""
    text = Text(text) if isinstance(text, str) else text
    for match in _LOCATION.finditer(text.plain):
        path = Path(match[1])
        link = path.resolve().as_uri() if path.is_file() else None
        text.stylize(Style(color="cyan", link=link), *match.span())
    return text


def _format_saving(finding: Finding, run: RunFacts) -> Text:
    """Return the estimated saving and its share of the step; the cost where no replay applies."""
    saving_ns, share = displayed_saving_ns(finding, run), finding.saving_share
    if saving_ns is None:
        saving_ns, share = finding.cost_ns_per_step, compute_share_of_step(finding.cost_ns_per_step, run, finding.kind)
        if saving_ns is None:
            return Text("-")
    prefix = "cost " if finding.saving_ns_per_step is None else "up to " if finding.is_upper_bound else ""
    style = next((style for min_share, style in _SEVERITIES if (share or 0) >= min_share), "")
    return Text(f"{prefix}{format_ms(saving_ns)} ms" + ("" if share is None else f" {100 * share:3.0f} %"), style=style)


def _render_details(finding: Finding, run: RunFacts, folder: str, *, with_details: bool) -> Iterable[RenderableType]:
    if with_details:
        *lines, link = describe_finding(finding, run, folder)
        yield from map(render_prose, lines)
        if evidence := describe_evidence(finding):
            yield Text(evidence, style="dim")
        yield Text(link, style="dim")
    elif not is_minor(finding, run["step_ns"]):
        if location := _describe_location(finding):
            yield render_location_links(sanitize_sentence(location))
        yield render_prose(describe_fix(finding))
        if line := explain_saving(finding, run):
            yield render_prose(line)
        if line := describe_measurement(finding):
            yield render_prose(line)


def _describe_location(finding: Finding) -> str:
    """Return the module and the source lines that the title does not name."""
    names = {"in": finding.where.modules, "at": finding.where.lines}
    unnamed = {word: [name for name in names if name not in finding.title] for word, names in names.items()}
    location = " ".join(f"{word} {', '.join(names)}" for word, names in unnamed.items() if names)
    return location[:1].upper() + location[1:]


def render_prose(text: str) -> Text:
    """Return sentences with their code in colour."""
    return Text.assemble(
        *((piece, "cyan" if is_code else "") for piece, is_code in split_code(sanitize_sentence(text)))
    )
