"""The screen of ``kinetoscope summary``: what bounds a run, its findings, and where the time goes.

Names from traces are plain text, whatever they contain.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.memory.memory import MemoryRow
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.stragglers import StragglerRow
from kinetoscope.analysis.steps.slow_steps import SlowStepRow
from kinetoscope.core.text.wording import format_count, format_memory, format_ms, sanitize_sentence, shorten_distinctly
from kinetoscope.pages.page_data import CallSums
from kinetoscope.report.calls import (
    count_steps,
    describe_untimed_steps,
    sum_kernels_by_name,
    sum_operators_by_name,
)
from kinetoscope.report.descriptions import (
    build_headline,
    describe_all_steps,
    describe_computation,
    describe_devices,
    describe_straggler,
    describe_throughput,
    explain_slow_step,
    format_ranks_of_slow_step,
    list_unknown_phases,
    list_warnings,
    locate_slow_step,
    select_parts_with_time,
)
from kinetoscope.report.labels import (
    CPU_FELL_BEHIND,
    SIDE_LABELS,
    UNKNOWN,
    build_device_breakdown,
    build_host_breakdown,
    compute_device_times,
    find_limiting_side,
)
from kinetoscope.report.terminal.breakdown import Breakdown, shown_parts
from kinetoscope.report.terminal.findings import render_findings, render_prose
from kinetoscope.report.terminal.screen import render_warning
from kinetoscope.report.terminal.tables import (
    MAX_ROWS,
    MIN_NAME_LENGTH,
    compute_column_width,
    compute_name_width,
    format_calls,
    render_table,
    select_columns,
)

_MAX_RANKS = 16
_MAX_NOTES = 2
"""Without details, notes that are no warning."""

_COLUMNS = {
    "data_wait_ns": "data",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "communication_wait_ns": "collectives",
    "sync_ns": "sync",
    "gc_ns": "gc",
    "python_ns": "overhead",
    "evaluation_ns": "evaluation",
    "between_ns": "between",
    "unknown_ns": "unknown",
    "ahead_ns": "ahead",
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed comm.",
    "exposed_copy_ns": "exposed copy",
    "idle_ns": "idle",
}
"""Short names of the parts of both time breakdowns: of the CPU, then of the GPU."""

_DEVICE_COLUMNS = {
    "window": "window_ns",
    "busy": "busy_ns",
    "compute": "compute_ns",
    "exposed comm.": "exposed_communication_ns",
    "exposed copy": "exposed_copy_ns",
    "idle": "idle_ns",
}
_STEP = "step"
_COMMON_PREFIX = re.compile(r"^void |at::native::(\(anonymous namespace\)::)?")
"""Most kernels' names start like this, which would be all that is left of them in a narrow column."""

_MIN_COLUMN_SHARE = 0.001
"""A part that takes less of a step on every rank has no column."""


def render_summary(report: RunReport, width: int = 100, *, with_details: bool = False) -> RenderableType:
    """Return the screen of a report, in ``width`` characters.

    Args:
        report: the report of an analysis.
        width: width of the screen in characters.
        with_details: show the evidence and the whole advice of findings, all notes, and small parts of a step.
    """
    is_on_gpu = find_limiting_side(report.run) == "device"
    parts: list[RenderableType] = [*_render_header(report, with_details=with_details)]
    if report.steps or report.findings or report.kernels:
        parts += ["", *render_findings(report, width, with_details=with_details)]
    if report.steps:
        parts += ["", _render_step_table(report, width)]
    elif any(row.window_ns is not None for row in report.ranks):
        parts += ["", _render_device_table(report.ranks, width)]
    if with_details:
        parts += [Text(_describe_straggler(row, report.run["num_steps"])) for row in report.stragglers]
    if report.run["slow_steps"]:
        parts += ["", _render_slow_step_table(report.run["slow_steps"], width)]
    tables = [_render_operator_table(report, width, is_on_gpu=is_on_gpu), _render_kernel_table(report, width)]
    for table in reversed(tables) if is_on_gpu else tables:
        parts += ["", table] if table is not None else []
    if any(table is not None for table in tables) and (untimed := describe_untimed_steps(report)):
        parts += [Text(untimed, style="dim")]
    if report.memory:
        parts += ["", _render_memory_table(report.memory, width)]
    return Group(*parts)


# -- header


def _render_header(report: RunReport, *, with_details: bool) -> Iterable[RenderableType]:
    """Yield the run, its time breakdowns, warnings, and what else holds for the run as a whole."""
    run = report.run
    yield Text(build_headline(run), style="bold")
    if run["parts"] is not None and run["step_ns"] is not None:
        breakdowns = {
            "host": build_host_breakdown(run["parts"], run["step_ns"]),
            "device": build_device_breakdown(run["parts"], run["step_ns"]),
        }
        for side, breakdown in breakdowns.items():
            if breakdown is not None:
                parts = shown_parts(select_parts_with_time(breakdown), with_all=with_details)
                yield Breakdown(SIDE_LABELS[side], parts, list_unknown_phases(breakdown))
    elif devices := compute_device_times(report.ranks):
        yield Padding(Text(describe_devices(devices)), (0, 0, 0, 2))
    warnings = list_warnings(report)
    for warning in warnings:
        yield render_warning(sanitize_sentence(warning))
    notes = [note for note in run["notes"] if note not in warnings]
    if run["all_steps"] is not None:
        yield Text(describe_all_steps(run["all_steps"]))
    yield from map(Text, describe_throughput(run))
    yield from map(Text, describe_computation(run))
    num_shown = len(notes) if with_details else min(len(notes), _MAX_NOTES)
    for note in notes[:num_shown]:
        line = render_prose(note)
        line.style = "dim"
        yield line
    if len(notes) > num_shown:
        yield Text(f"{format_count(len(notes) - num_shown, 'more note')}: --details", style="dim")


def _describe_straggler(row: StragglerRow, num_steps: int) -> str:
    waits = f"Each other rank waits {format_ms(row.cost_ns_per_step)} ms/step for it."
    return f"{describe_straggler(row, num_steps)}. {waits}"


# -- tables


def _render_step_table(report: RunReport, width: int) -> RenderableType:
    """Return the step time of each rank and its parts, as many as fit, the longest ones."""
    by_rank = {row.rank: _list_parts(row) for row in report.ranks}
    names, hidden = _fit_parts(by_rank.values(), width)
    shown = dict(list(by_rank.items())[:_MAX_RANKS])
    columns = {name: [_format_known_ms(values.get(name)) for values in shown.values()] for name in names}
    return render_table(
        "Step time by rank, ms/step",
        {"rank": [*map(_format_number, shown)]} | columns,
        num_hidden_rows=len(by_rank) - len(shown),
        hidden_columns=hidden,
    )


def _list_parts(row: RankRow) -> dict[str, float | None]:
    """Return the step time of a rank and the parts of both breakdowns, by their columns."""
    if row.parts is None:
        return {_STEP: row.step_ns}
    of_host, of_device = (cast("Mapping[str, float | None]", side or {}) for side in row.parts.values())
    both = {_COLUMNS[name]: time_ns for name, time_ns in {**of_host, **of_device}.items()}
    ahead_ns = both.get(_COLUMNS["ahead_ns"]) or 0
    return {_STEP: row.step_ns} | both | {_COLUMNS["ahead_ns"]: max(0, ahead_ns), CPU_FELL_BEHIND: min(0, ahead_ns)}


def _fit_parts(by_rank: Iterable[Mapping[str, float | None]], width: int) -> tuple[list[str], list[str]]:
    """Return the columns of parts that take time on some rank: those that fit, and the hidden ones."""
    by_rank = list(by_rank)
    all_names = [_STEP, *_COLUMNS.values(), CPU_FELL_BEHIND]
    max_values = {name: max((abs(values.get(name) or 0) for values in by_rank), default=0) for name in all_names}
    wanted = [name for name in all_names[1:] if max_values[name] > _MIN_COLUMN_SHARE * max_values[_STEP]]
    shown, left = list[str](), width - len("rank")
    for name in [_STEP, *sorted(wanted, key=lambda name: -max_values[name])]:
        unknown = [UNKNOWN] * any(values.get(name) is None for values in by_rank)
        left -= compute_column_width(name, [format_ms(-max_values[name]), *unknown])
        if left >= 0 or name == _STEP:
            shown.append(name)
    return [name for name in all_names if name in shown], [name for name in wanted if name not in shown]


def _render_device_table(rows: Sequence[RankRow], width: int) -> RenderableType:
    """Return the time of devices from their first event to their last, for traces without steps."""
    known = [row for row in rows if row.window_ns is not None]
    names = {word: name for word, name in _DEVICE_COLUMNS.items() if any(getattr(row, name) for row in known)}
    shown = known[:_MAX_RANKS]
    columns = {word: [format_ms(getattr(row, name)) for row in shown] for word, name in names.items()}
    ranks, devices = ([_format_number(getattr(row, name)) for row in shown] for name in ("rank", "device"))
    columns = {"rank": ranks, "device": devices} | columns
    fitting, hidden = select_columns(columns, width + 2)
    return render_table(
        "Each GPU, from its first event to its last, in ms",
        fitting,
        num_hidden_rows=len(known) - len(shown),
        row_noun="device",
        hidden_columns=hidden,
    )


def _render_slow_step_table(rows: Sequence[SlowStepRow], width: int) -> RenderableType:
    """Return the slowest of the steps that were kept while nothing was recorded."""
    shown = rows[:MAX_ROWS]
    columns = {
        "ms": [format_ms(row["duration_ns"]) for row in shown],
        "longer by": [format_ms(row["excess_ns"]) for row in shown],
        "rank": [format_ranks_of_slow_step(row) for row in shown],
        "why": [explain_slow_step(row) for row in shown],
    }
    return _render_named_table(
        "Slow steps outside profiling windows",
        ("step", [locate_slow_step(row) for row in shown]),
        columns,
        width,
        num_hidden_rows=len(rows) - len(shown),
        row_noun="slow step",
    )


def _render_operator_table(report: RunReport, width: int, *, is_on_gpu: bool) -> RenderableType | None:
    """Return the operators with most time: of the GPU if it limits the step, else of the CPU."""
    rows = sum_operators_by_name(report.operators)
    fields = {"self_ns": "self ms", "total_ns": "total ms", "device_ns": "GPU ms"}
    if is_on_gpu and any(row.device_ns is not None for row in rows):
        rows = sorted(rows, key=lambda row: -(row.device_ns or 0))
        fields = {"device_ns": "GPU ms", "self_ns": "self ms", "total_ns": "total ms"}
    return _render_call_table("Operators", rows, fields, report, width) if rows else None


def _render_kernel_table(report: RunReport, width: int) -> RenderableType | None:
    """Return the kernels and copies with most time."""
    rows = [replace(row, name=_COMMON_PREFIX.sub("", row.name)) for row in sum_kernels_by_name(report.kernels)]
    return _render_call_table("Kernels and copies", rows, {"total_ns": "GPU ms"}, report, width) if rows else None


def _render_call_table(
    title: str, rows: Sequence[CallSums], fields: Mapping[str, str], report: RunReport, width: int
) -> RenderableType:
    """Return calls by name: per step and rank with the share of the step, or totals where no steps were recorded.

    ``fields`` are columns of times by field, the one that the rows are sorted by first.
    """
    num_steps = count_steps(report.ranks)
    step_ns = report.run["step_ns"]
    rows = rows[:MAX_ROWS]
    known = {name: word for name, word in fields.items() if any(getattr(row, name) is not None for row in rows)}
    known = known or dict(list(fields.items())[:1])
    columns: dict[str, list[str]] = {}
    for index, (name, word) in enumerate(known.items()):
        times = [getattr(row, name) for row in rows]
        columns[word] = [format_ms(_divide_by_steps(time_ns, num_steps)) for time_ns in times]
        if index == 0 and num_steps and step_ns:
            columns["%"] = [_format_percent(_divide_by_steps(time_ns, num_steps), step_ns) for time_ns in times]
    columns["calls"] = [format_calls(row.num_calls / (num_steps or 1)) for row in rows]
    unit = "per step" if num_steps else "in all"
    return _render_named_table(f"{title} {unit}", ("name", [row.name for row in rows]), columns, width)


def _render_named_table(
    title: str,
    names: tuple[str, Sequence[str]],
    columns: Mapping[str, Sequence[str]],
    width: int,
    *,
    num_hidden_rows: int = 0,
    row_noun: str = "row",
) -> RenderableType:
    """Return a table whose first column has long names, shortened so that they differ."""
    fitting, hidden = select_columns(columns, width - MIN_NAME_LENGTH)
    header, texts = names
    return render_table(
        title,
        {header: shorten_distinctly(texts, compute_name_width(fitting, width)), **fitting},
        num_hidden_rows=num_hidden_rows,
        row_noun=row_noun,
        hidden_columns=hidden,
    )


def _render_memory_table(all_rows: Sequence[MemoryRow], width: int) -> RenderableType:
    rows = all_rows[:_MAX_RANKS]
    columns = {
        "rank": [_format_number(row.rank) for row in rows],
        "device": ["CPU" if row.device is None else _format_number(row.device) for row in rows],
        "peak": [format_memory(row.peak_bytes) for row in rows],
        "in step": [_format_number(row.peak_step) for row in rows],
        "growth/step": [
            "" if row.growth_bytes_per_step is None else format_memory(row.growth_bytes_per_step) for row in rows
        ],
    }
    fitting, hidden = select_columns(columns, width + 2)
    return render_table(
        "Memory",
        fitting,
        num_hidden_rows=len(all_rows) - len(rows),
        row_noun="row",
        hidden_columns=hidden,
    )


def _divide_by_steps(time_ns: float | None, num_steps: int) -> float | None:
    return None if time_ns is None else time_ns / (num_steps or 1)


def _format_percent(time_ns: float | None, step_ns: float) -> str:
    return "" if time_ns is None else f"{100 * time_ns / step_ns:.1f}"


def _format_number(number: int | None) -> str:
    """Return the number of a rank, a device or a step; "" if it is unknown."""
    return "" if number is None else str(number)


def _format_known_ms(time_ns: float | None) -> str:
    return UNKNOWN if time_ns is None else format_ms(time_ns)
