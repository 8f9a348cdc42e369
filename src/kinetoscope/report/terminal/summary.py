"""report: a `RunReport` on one screen of a terminal. Names from traces are plain text there, whatever they hold."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import cast

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.findings.ranking import is_minor
from kinetoscope.analysis.memory.memory import MemoryRow
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.stragglers import StragglerRow
from kinetoscope.analysis.run_report import ending
from kinetoscope.analysis.steps.slow_steps import SlowStepRow
from kinetoscope.pages.page_data import CallSums
from kinetoscope.report.calls import kernels_by_name, operators_by_name
from kinetoscope.report.no_findings import no_findings
from kinetoscope.report.sentences import (
    all_steps_line,
    below_title,
    computed_lines,
    device_line,
    headline,
    late_line,
    ledger_line,
    loop_lines,
    one_line,
    place_of_slow_step,
    ranks_of_slow_step,
    why_slow,
)
from kinetoscope.report.words import LEAD_LOST, NOT_KNOWN, SIDES, device_ledger, device_times, host_ledger
from kinetoscope.texts.wording import counted, format_ms, memory_size, printable, told_apart

_MOST_FINDINGS, _MOST_RANKS, _MOST_ROWS = 5, 16, 8
_LONGEST_NAME, _SHORTEST_NAME = 60, 20
_INDENT, _GAP = 3, 2
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
"""The parts of both ledgers in a few letters: of the host, then of the device."""

_OF_DEVICES = {
    "window": "window_ns",
    "busy": "busy_ns",
    "compute": "compute_ns",
    "exposed comm.": "exposed_communication_ns",
    "exposed copy": "exposed_copy_ns",
    "idle": "idle_ns",
}
_FIRST = "step"
_NOT_TELLING = re.compile(r"^void |at::native::(\(anonymous namespace\)::)?")
"""What the names of most kernels begin with, and which would be all that is left of them."""

_SMALL_SHARE = 0.001
"""A phase that takes less of a step on every rank is left out."""


def render_report(report: RunReport, width: int = 100) -> RenderableType:
    """What is wrong with a run, and what its time went to, in ``width`` columns."""
    parts: list[RenderableType] = [*_heads(report)]
    parts += [Padding(Text(printable(note)), (0, 0, 0, 2)) for note in report.run["notes"]]
    if report.steps or report.findings or report.kernels:
        parts += ["", *_findings(report)]
    if report.steps:
        parts += ["", *_step_table(report, width)]
    elif any(row.window_ns is not None for row in report.ranks):
        parts += ["", _devices(report.ranks, width)]
    parts += [Text(_straggler(row, report.run["num_steps"])) for row in report.stragglers]
    if report.run["slow_steps"]:
        parts += ["", _slow_steps(report.run["slow_steps"], width)]
    operators = operators_by_name(report.operators)
    if operators:
        parts += ["", _calls("Operators", operators, ("self_ns", "total_ns", "device_ns"), width)]
    if report.kernels:
        kernels = [replace(row, name=_NOT_TELLING.sub("", row.name)) for row in kernels_by_name(report.kernels)]
        parts += ["", _calls("Kernels and copies", kernels, ("total_ns", "mean_ns"), width)]
    if report.memory:
        parts += ["", _memory(report.memory, width)]
    return Group(*parts)


def _heads(report: RunReport) -> Iterable[RenderableType]:
    """What is said first: which run it is, how it ended, what its step takes its time for, and what it computes."""
    run = report.run
    yield Text(headline(run))
    if said := ending(run):
        yield Text(said, style="bold")
    if run["parts"] is not None and run["step_ns"] is not None:
        host, device = host_ledger(run["parts"], run["step_ns"]), device_ledger(run["parts"], run["step_ns"])
        yield Padding(Text(ledger_line(f"{SIDES['host']}, ms/step", host)), (0, 0, 0, 2))
        if device is not None:
            yield Padding(Text(ledger_line(f"{SIDES['device']}, ms/step", device)), (0, 0, 0, 2))
    elif devices := device_times(report.ranks):
        yield Padding(Text(device_line(devices)), (0, 0, 0, 2))
    if run["all_steps"] is not None:
        yield Text(all_steps_line(run["all_steps"]))
    yield from map(Text, loop_lines(run))
    yield from map(Text, computed_lines(run))


# -- findings


def _findings(report: RunReport) -> Iterable[RenderableType]:
    if not report.findings:
        yield from map(Text, no_findings(report))
        return
    if all(finding.confidence == "low" for finding in report.findings):
        yield Text("No finding is above low confidence. Possible small savings:")
    step_ns = report.run["step_ns"]
    for place, finding in enumerate(report.findings[:_MOST_FINDINGS], start=1):
        if is_minor(finding, step_ns):
            yield _numbered(place, one_line(finding, report.run))
            continue
        yield _numbered(place, printable(finding.title), style="bold")
        yield Padding(Text("\n".join(below_title(finding, report.run))), (0, 0, 0, _INDENT))
    if len(report.findings) > _MOST_FINDINGS:
        yield Text(f"and {counted(len(report.findings) - _MOST_FINDINGS, 'more finding')}; --json has all")
    if sum(finding.saving_ns_per_step is not None for finding in report.findings) > 1:
        yield Text("Savings do not add up.")


def _numbered(place: int, text: str, style: str = "") -> RenderableType:
    """A text with a number before it, which goes on below its own begin."""
    line = Table.grid()
    line.add_row(Text(f"{place}. ", style=style), Text(text, style=style))
    return line


def _straggler(row: StragglerRow, num_steps: int) -> str:
    waits = f"Each other rank waits {format_ms(row.cost_ns_per_step)} ms/step for it."
    return f"{late_line(row, num_steps)}. {waits}"


def _slow_steps(rows: Sequence[SlowStepRow], width: int) -> RenderableType:
    """The slowest of the steps that were kept while nothing was recorded."""
    first = rows[:_MOST_ROWS]
    columns = {
        "ms": [format_ms(row["duration_ns"]) for row in first],
        "longer by": [format_ms(row["excess_ns"]) for row in first],
        "rank": [ranks_of_slow_step(row) for row in first],
        "why": [why_slow(row) for row in first],
    }
    columns = _that_fit(columns, width - _SHORTEST_NAME)
    longest = max(_SHORTEST_NAME, min(_LONGEST_NAME, width - sum(map(_width, columns.items()))))
    names = told_apart([place_of_slow_step(row) for row in first], longest)
    return _table(
        "Slow steps outside profiling windows", {"step": names} | columns, len(rows) - len(first), "slow step"
    )


# -- where the time went


def _step_table(report: RunReport, width: int) -> Iterable[RenderableType]:
    """The step of each rank and its parts, in milliseconds, with as many columns as fit, the longest ones."""
    means = {row.rank: _parts_of(row) for row in report.ranks}
    names = _fitting(means.values(), width)
    first = dict(list(means.items())[:_MOST_RANKS])
    columns = {name: [_known_ms(values.get(name)) for values in first.values()] for name in names}
    yield _table("Step time by rank, in ms", {"rank": [*map(_number, first)]} | columns, len(means) - len(first))


def _parts_of(row: RankRow) -> dict[str, float | None]:
    """The step of a rank, and both of its ledgers, by their columns."""
    if row.parts is None:
        return {_FIRST: row.step_ns}
    of_host, of_device = (cast("Mapping[str, float | None]", side or {}) for side in row.parts.values())
    both = {_COLUMNS[name]: time_ns for name, time_ns in {**of_host, **of_device}.items()}
    ahead_ns = both.get(_COLUMNS["ahead_ns"]) or 0
    return {_FIRST: row.step_ns} | both | {_COLUMNS["ahead_ns"]: max(0, ahead_ns), LEAD_LOST: min(0, ahead_ns)}


def _fitting(means: Iterable[Mapping[str, float | None]], width: int) -> list[str]:
    """The parts that take something on some rank; where not all fit, those that take most."""
    means = list(means)
    all_names = [_FIRST, *_COLUMNS.values(), LEAD_LOST]
    most = {name: max((abs(values.get(name) or 0) for values in means), default=0) for name in all_names}
    wanted = [name for name in all_names[1:] if most[name] > _SMALL_SHARE * most[_FIRST]]
    shown, left = [_FIRST], width - len("rank")
    for name in [_FIRST, *sorted(wanted, key=lambda name: -most[name])]:
        unknown = [NOT_KNOWN] * any(values.get(name) is None for values in means)
        left -= _width((name, [format_ms(-most[name]), *unknown]))
        if left >= 0:
            shown.append(name)
    return [name for name in all_names if name in shown]


def _devices(rows: Sequence[RankRow], width: int) -> RenderableType:
    """What devices did from their first event to their last, where no step says what it was for. Idle is the rest."""
    known = [row for row in rows if row.window_ns is not None]
    shown = {word: name for word, name in _OF_DEVICES.items() if any(getattr(row, name) for row in known)}
    first = known[:_MOST_RANKS]
    columns = {word: [format_ms(getattr(row, name)) for row in first] for word, name in shown.items()}
    ranks, devices = ([_number(getattr(row, what)) for row in first] for what in ("rank", "device"))
    columns = _that_fit({"rank": ranks, "device": devices} | columns, width + _GAP)
    title = "Each GPU, from its first event to its last, in ms"
    return _table(title, columns, len(known) - len(first), "device")


def _calls(title: str, rows: Sequence[CallSums], fields: Sequence[str], width: int) -> RenderableType:
    known = [field for field in fields if any(getattr(row, field) is not None for row in rows)] or fields[:1]
    rows = rows[:_MOST_ROWS]
    columns = {"calls": [f"{row.num_calls:,}" for row in rows]}
    columns |= {f"{field.removesuffix('_ns')} ms": [format_ms(getattr(row, field)) for row in rows] for field in known}
    columns = _that_fit(columns, width - _SHORTEST_NAME)
    longest = max(_SHORTEST_NAME, min(_LONGEST_NAME, width - sum(map(_width, columns.items()))))
    return _table(title, {"name": told_apart([row.name for row in rows], longest)} | columns)


def _memory(all_rows: Sequence[MemoryRow], width: int) -> RenderableType:
    rows = all_rows[:_MOST_RANKS]
    columns = {
        "rank": [_number(row.rank) for row in rows],
        "device": ["host" if row.device is None else _number(row.device) for row in rows],
        "peak": [memory_size(row.peak_bytes) for row in rows],
        "in step": [_number(row.peak_step) for row in rows],
        "growth/step": [
            "" if row.growth_bytes_per_step is None else memory_size(row.growth_bytes_per_step) for row in rows
        ],
    }
    return _table("Memory", _that_fit(columns, width + _GAP), len(all_rows) - len(rows), "row")


def _table(title: str, columns: Mapping[str, Sequence[str]], num_more: int = 0, noun: str = "rank") -> RenderableType:
    """Columns beside each other, the first of which becomes narrower where the screen is too narrow for its letters;
    and how many more there are."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=place > 0)
    for first, *others in zip(*columns.values(), strict=True):
        table.add_row(Text(first, no_wrap=True, overflow="ellipsis"), *others)
    more = [Text(f"and {counted(num_more, f'more {noun}')}; --json has all, --ranks chooses")] if num_more > 0 else []
    return Group(Text(title, style="table.title"), table, *more)


def _that_fit(columns: Mapping[str, Sequence[str]], width: int) -> dict[str, Sequence[str]]:
    """The first of the columns, as many as fit into so many letters: no number is cut."""
    ends = accumulate(map(_width, columns.items()))
    return {name: texts for (name, texts), end in zip(columns.items(), ends, strict=True) if end <= width}


def _width(column: tuple[str, Sequence[str]]) -> int:
    """The letters of a column and of the gap before it."""
    name, texts = column
    return _GAP + max(map(len, [name, *texts]))


def _number(number: int | None) -> str:
    """The number of a rank, a device or a step; "" if it is not known."""
    return "" if number is None else str(number)


def _known_ms(time_ns: float | None) -> str:
    return NOT_KNOWN if time_ns is None else format_ms(time_ns)
