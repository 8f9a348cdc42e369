"""The screen of ``kinetoscope diff``: verdict, phases, and findings fixed and new.

Names from traces are plain text, whatever they contain.
"""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.compare.series import MODULES
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.core.text.wording import format_count, sanitize_sentence
from kinetoscope.report.comparison import (
    COLUMNS,
    INTERVAL,
    MAX_NAME_LENGTH,
    NUMBERS,
    UNITS,
    VERDICT_STYLES,
    WHOLES,
    describe_endings,
    describe_run,
    describe_verdict,
    describe_worse,
    format_rows,
    select_rows,
)
from kinetoscope.report.descriptions import describe_fix
from kinetoscope.report.terminal.findings import render_location_links, render_prose
from kinetoscope.report.terminal.screen import render_warning

_MAX_MODULES, _MAX_WORSE, _MAX_FINDINGS = 3, 3, 5
_MIN_NAME_LENGTH = 12
_GAP = 2
_HIDDEN_FIRST = (INTERVAL, "before", "after", "change")
"""Columns that a narrow screen hides, in this order."""


def render_comparison(comparison: Comparison, width: int = 100, *, with_details: bool = False) -> RenderableType:
    """Return the verdict on the step, its phases, and findings fixed and new, in ``width`` characters.

    Args:
        comparison: the comparison of two runs.
        width: width of the screen in characters.
        with_details: show all operators, kernels and modules too, what changed first.
    """
    verdict = "" if comparison.step is None else VERDICT_STYLES.get(comparison.step.verdict, "")
    parts: list[RenderableType] = [
        Text(describe_verdict(comparison), style=f"bold {verdict}".rstrip()),
        *([Text(comparison.why_unsure)] if comparison.why_unsure else []),
        Text(f"before: {describe_run(comparison.before)}"),
        Text(f"after:  {describe_run(comparison.after)}"),
        *(render_warning(sentence) for sentence in describe_endings(comparison)),
    ]
    if comparison.rows:
        parts += ["", _render_table(comparison, width, with_details=with_details)]
        parts += [Text(sentence) for sentence in describe_worse(comparison)]
    for title, findings in (("Fixed", comparison.fixed_findings), ("New", comparison.new_findings)):
        if findings:
            parts += ["", Text(f"{title}: {format_count(len(findings), 'finding')}", style="bold")]
            parts += _render_findings(findings, with_fix=title == "New")
    if comparison.notes:
        parts += ["", *(Text(sanitize_sentence(note), style="dim") for note in comparison.notes)]
    return Group(*parts)


def _render_findings(findings: Sequence[Finding], *, with_fix: bool) -> Iterable[RenderableType]:
    for found in findings[:_MAX_FINDINGS]:
        yield Padding(render_location_links(sanitize_sentence(found.title)), (0, 0, 0, 2))
        if with_fix:
            yield Padding(render_prose(describe_fix(found)), (0, 0, 0, 4))
    if len(findings) > _MAX_FINDINGS:
        yield Text(f"  {format_count(len(findings) - _MAX_FINDINGS, 'more finding')}: --json has all", style="dim")


def _select_main_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return the mean step, its phases, memory, changed modules, and the first operators and kernels that got worse.

    The verdict has the typical step.
    """
    whole = [row for row in comparison.rows if row.kind in WHOLES and not row.is_typical_step]
    modules = [row for row in comparison.rows if row.kind in MODULES and row.verdict in VERDICT_STYLES]
    worse = [row for row in comparison.worse if row.kind not in (*WHOLES, *MODULES)]
    return [*sorted(whole, key=lambda row: WHOLES.index(row.kind)), *modules[:_MAX_MODULES], *worse[:_MAX_WORSE]]


def _render_table(comparison: Comparison, width: int, *, with_details: bool) -> RenderableType:
    """Return the rows as a table: with details those of each kind, else the phases, modules and what got worse."""
    chosen = select_rows(comparison.rows) if with_details else _select_main_rows(comparison)
    has_kinds = with_details or any(row.kind not in WHOLES for row in chosen)
    columns = [name for name in COLUMNS if has_kinds or name != "kind"]
    hidden, name_length = _fit_columns(chosen, columns, width)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        if name not in hidden:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=name != "name")
    for row, texts in zip(chosen, format_rows(chosen, name_length), strict=True):
        shown = (text for name, text in zip(COLUMNS, texts, strict=True) if name in columns and name not in hidden)
        cells = (Text(text, no_wrap=True, overflow="ellipsis") for text in shown)
        table.add_row(*cells, style=VERDICT_STYLES.get(row.verdict, ""))
    num_left = len(comparison.rows) - len(chosen) - (0 if with_details or comparison.step is None else 1)
    where = "--json has all" if with_details else "--details"
    left = f"; {format_count(num_left, 'more row')}: {where}" if num_left > 0 else ""
    names = ", ".join(name.removesuffix(", %") for name in hidden)
    narrow = f"; {format_count(len(hidden), 'column')} hidden at this width: {names}" if hidden else ""
    return Group(table, Text(f"{UNITS}{left}{narrow}", style="dim"))


def _fit_columns(rows: Sequence[ComparisonRow], columns: Sequence[str], width: int) -> tuple[list[str], int]:
    """Return the columns that do not fit, and the characters that are left for names."""
    cells = zip(COLUMNS, *format_rows(rows), strict=True)
    lengths = {column[0]: max(map(len, column)) for column in cells if column[0] in columns}
    longest_name = lengths.pop("name")
    hidden: list[str] = []
    for name in _HIDDEN_FIRST:
        if width - sum(lengths.values()) - _GAP * len(lengths) >= min(longest_name, _MIN_NAME_LENGTH):
            break
        hidden.append(name)
        del lengths[name]
    left = width - sum(lengths.values()) - _GAP * len(lengths)
    return hidden, max(_MIN_NAME_LENGTH, min(MAX_NAME_LENGTH, left))
