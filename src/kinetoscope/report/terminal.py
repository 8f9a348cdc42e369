"""report: a `RunReport` on one screen of a terminal. Names from traces are plain text there, whatever they hold."""

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.findings.finding import Finding, Where
from kinetoscope.analysis.memory import MemoryRow
from kinetoscope.analysis.run_report import RunFacts
from kinetoscope.analysis.steps import StepRow
from kinetoscope.analysis.stragglers import StragglerRow
from kinetoscope.training.wording import counted, memory_size, ordinal, printable

_MOST_FINDINGS, _MOST_RANKS, _MOST_ROWS, _MOST_STEPS = 5, 16, 8, 6
_LONGEST_NAME, _SHORTEST_NAME = 60, 20
_INDENT = 3
_ALL = 0.995
_FLOP = ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1, "FLOP"))
_PHASES = {
    "step": "duration_ns",
    "between": "between_ns",
    "evaluation": "all_evaluation_ns",
    "data": "data_wait_ns",
    "forward": "forward_ns",
    "backward": "backward_ns",
    "optimizer": "optimizer_ns",
    "sync": "sync_ns",
    "collectives": "communication_wait_ns",
    "python": "python_ns",
    "gc": "gc_ns",
    "device busy": "device_busy_ns",
    "device idle": "device_idle_ns",
}
_FIRST = "step"
_NOT_TELLING = re.compile(r"^void |at::native::(\(anonymous namespace\)::)?")
"""What the names of most kernels begin with, and which would be all that is left of them."""

_SMALL_SHARE = 0.001
"""A phase that takes less of a step on every rank is left out."""


def render_report(report: RunReport, width: int = 100) -> RenderableType:
    """What is wrong with a run, and what its time went to, in ``width`` columns."""
    parts: list[RenderableType] = [Text(_headline(report)), *map(Text, _computed(report.run))]
    parts += [Padding(Text(printable(note)), (0, 0, 0, 2)) for note in report.run["notes"]]
    if report.steps:
        parts += ["", *_findings(report), "", _step_table(report, width)]
    parts += [Text(line) for line in map(_straggler, report.stragglers)]
    parts += ["", _calls("Operators", _by_name(report.operators), ("self_ns", "total_ns", "device_ns"), width)]
    if report.kernels:
        kernels = [(_NOT_TELLING.sub("", row.name), row.to_dict()) for row in report.kernels]
        parts += ["", _calls("Kernels and copies", kernels, ("total_ns", "mean_ns"), width)]
    if report.memory:
        parts += ["", _memory(report.memory)]
    return Group(*parts)


def _headline(report: RunReport) -> str:
    run = report.run
    of = f" of {run['world_size']}" if run["world_size"] else ""
    steps = counted(run["num_steps"], "step") if run["num_steps"] else "no step was recorded"
    typical = f", {_ms(run['step_ns'])} ms each" if run["step_ns"] is not None else ""
    return f"{printable(run['name'] or 'run')}: {counted(len(run['ranks']) or 1, 'rank')}{of}, {steps}{typical}"


def _computed(run: RunFacts) -> Iterable[str]:
    """A line on what a rank computes, where that is known."""
    if run["flops_per_step"] is not None and run["flops_per_s"] is not None:
        share = f", {run['mfu']:.1%} of its device's peak (MFU)" if run["mfu"] is not None else ""
        share += _covered(run["mfu_coverage"])
        yield f"A rank computes {_flop(run['flops_per_step'])} in a step: {_flop(run['flops_per_s'])}/s{share}"


def _covered(coverage: float | None) -> str:
    is_all = coverage is None or coverage > _ALL
    return "" if is_all else f"; known of {coverage:.0%} of the time of such kernels"


def _flop(operations: float) -> str:
    size, unit = next((pair for pair in _FLOP if operations >= pair[0]), _FLOP[-1])
    return f"{operations / size:.3g} {unit}"


# -- findings


def _findings(report: RunReport) -> Iterable[RenderableType]:
    if not report.findings:
        yield Text("No fault was found.")
        return
    if all(finding.confidence == "low" for finding in report.findings):
        yield Text("No fault was found that is worth much. What would save a little:")
    for place, finding in enumerate(report.findings[:_MOST_FINDINGS], start=1):
        yield Text(f"{place}. {printable(finding.title)}", style="bold")
        yield Padding(Text("\n".join(_about(finding, report.run["step_ns"] or 1.0))), (0, 0, 0, _INDENT))
    if len(report.findings) > _MOST_FINDINGS:
        yield Text(f"and {counted(len(report.findings) - _MOST_FINDINGS, 'more finding')}; --json has all")
    if sum(finding.saving_ns_per_step is not None for finding in report.findings) > 1:
        yield Text("Each saving stands alone: they do not add up.")


def _about(finding: Finding, step_ns: float) -> Iterable[str]:
    """The lines below the title of a finding."""
    parts = {"costs": finding.cost_ns_per_step, "mending saves": finding.saving_ns_per_step}
    known = {what: time_ns for what, time_ns in parts.items() if time_ns is not None}
    times = [f"{what} {_ms(time_ns)} ms ({time_ns / step_ns:.0%})" for what, time_ns in known.items()]
    yield "; ".join([*([f"{', '.join(times)} of a step"] if times else []), f"confidence {finding.confidence}"])
    if place := _place(finding.where):
        yield place
    yield finding.advice
    yield finding.link


def _place(where: Where) -> str:
    steps = [*map(str, where.steps[:_MOST_STEPS]), *(["..."] if len(where.steps) > _MOST_STEPS else [])]
    ranks = [str(rank) for rank in where.ranks[:_MOST_RANKS]]
    named = {"rank": ranks, "step": steps, "at": where.spans, "line": where.lines}
    return "; ".join(
        f"{what}{'s' if what != 'at' and len(names) > 1 else ''} "
        + ", ".join(_shortened(name, _LONGEST_NAME) for name in names)
        for what, names in named.items()
        if names
    )


def _straggler(row: StragglerRow) -> str:
    how_often = counted(len(row.steps), "step")
    if row.period is not None and row.period > 1:
        how_often = f"every {ordinal(row.period)} step"
    return (
        f"Rank {row.rank} is late ({row.cause}) in {how_often}: "
        f"each other rank waits {_ms(row.cost_ns_per_step)} ms a step for it."
    )


# -- where the time went


def _step_table(report: RunReport, width: int) -> Table:
    """The mean step of each rank, in milliseconds, with as many columns as fit, the longest ones."""
    by_rank: dict[int | None, list[StepRow]] = {}
    for row in report.steps:
        by_rank.setdefault(row.rank, []).append(row)
    means = {rank: {name: _mean(rows, field) for name, field in _PHASES.items()} for rank, rows in by_rank.items()}
    names = _fitting(means.values(), width)
    table = _table("A step of each rank, in ms", "rank", *names)
    for rank, values in list(means.items())[:_MOST_RANKS]:
        table.add_row("" if rank is None else str(rank), *(_ms(values[name]) for name in names))
    if len(means) > _MOST_RANKS:
        more = counted(len(means) - _MOST_RANKS, "more rank")
        table.caption = f"and {more}; --json has all, --ranks chooses"
    return table


def _mean(rows: Iterable[StepRow], field: str) -> float | None:
    values = [value for row in rows if (value := getattr(row, field)) is not None]
    return fmean(values) if values else None


def _fitting(means: Iterable[Mapping[str, float | None]], width: int) -> list[str]:
    """The phases that take something on some rank; where not all fit, those that take most."""
    means = list(means)
    most = {name: max((values[name] or 0 for values in means), default=0) for name in _PHASES}
    wanted = [name for name in _PHASES if name != _FIRST and most[name] > _SMALL_SHARE * most[_FIRST]]
    shown, left = [_FIRST], width - len("rank")
    for name in [_FIRST, *sorted(wanted, key=lambda name: -most[name])]:
        left -= 2 + max(len(name), len(_ms(most[name])))
        if left >= 0:
            shown.append(name)
    return [name for name in _PHASES if name in shown]


def _by_name(rows: Sequence[Any]) -> list[tuple[str, dict[str, Any]]]:
    """The sums of rows of one name, those with the most time of their own first."""
    sums: dict[str, dict[str, Any]] = {}
    for row in rows:
        of_name = sums.setdefault(row.name, {})
        for field in ("num_calls", "self_ns", "total_ns", "device_ns"):
            value = getattr(row, field)
            of_name[field] = of_name.get(field) if value is None else (of_name.get(field) or 0) + value
    return sorted(sums.items(), key=lambda pair: (-pair[1]["self_ns"], pair[0]))


def _calls(title: str, rows: Sequence[tuple[str, Mapping[str, Any]]], fields: Sequence[str], width: int) -> Table:
    shown = [field for field in fields if any(values[field] is not None for _, values in rows)] or fields[:1]
    table = _table(title, "name", "calls", *(f"{field.removesuffix('_ns')} ms" for field in shown))
    longest = min(_LONGEST_NAME, max(_SHORTEST_NAME, width - 12 - 14 * len(shown)))
    for name, values in rows[:_MOST_ROWS]:
        times = (_ms(values[field]) for field in shown)
        table.add_row(Text(_shortened(name, longest)), f"{values['num_calls']:,}", *times)
    return table


def _memory(rows: Sequence[MemoryRow]) -> Table:
    table = _table("Memory", "rank", "device", "peak", "in step", "growth a step")
    for row in rows[:_MOST_RANKS]:
        cells = (row.rank, "host" if row.device is None else row.device)
        growth = "" if row.growth_bytes_per_step is None else memory_size(row.growth_bytes_per_step)
        peak_step = "" if row.peak_step is None else str(row.peak_step)
        table.add_row(
            *("" if cell is None else str(cell) for cell in cells), memory_size(row.peak_bytes), peak_step, growth
        )
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=None, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _shortened(name: str, longest: int) -> str:
    """A name from a trace, safe to print, of at most so many letters."""
    text = printable(name)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _ms(time_ns: float | None) -> str:
    if time_ns is None:
        return ""
    return f"{time_ns / 1e6:,.{1 if time_ns >= 1e7 else 2 if time_ns >= 1e5 else 3}f}"
