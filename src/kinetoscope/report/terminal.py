"""report: a `RunReport` on one screen of a terminal. Names from traces are plain text there, whatever they hold."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.findings.finding import Finding, Where, is_minor
from kinetoscope.analysis.memory import MemoryRow
from kinetoscope.analysis.ranks import RankRow
from kinetoscope.analysis.run_report import RunFacts, ending
from kinetoscope.analysis.stragglers import StragglerRow
from kinetoscope.pages.page_data import CallSums, DeviceTimes, LedgerPart
from kinetoscope.report.calls import kernels_by_name, operators_by_name
from kinetoscope.report.words import (
    LEAD_LOST,
    NOT_KNOWN,
    bound,
    device_ledger,
    device_times,
    host_ledger,
    share_of_step,
)
from kinetoscope.training.wording import counted, memory_size, ordinal, printable, shortened, shown

_MOST_FINDINGS, _MOST_RANKS, _MOST_ROWS, _MOST_STEPS = 5, 16, 8, 6
_LONGEST_NAME, _SHORTEST_NAME = 60, 20
_INDENT = 3
_FLOP = ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1, "FLOP"))
_COLUMNS = {
    "data_wait_ns": "data",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "communication_wait_ns": "collectives",
    "sync_ns": "sync",
    "gc_ns": "gc",
    "python_ns": "python",
    "evaluation_ns": "evaluation",
    "between_ns": "between",
    "unknown_ns": "not known",
    "ahead_ns": "ahead",
    "compute_ns": "computing",
    "exposed_communication_ns": "communicating",
    "exposed_copy_ns": "copying",
    "idle_ns": "idle",
}
"""The parts of both ledgers in a few letters: of the host, then of the device."""

_OF_DEVICES = {
    "recorded": "window_ns",
    "busy": "busy_ns",
    "computing": "compute_ns",
    "communicating": "communication_ns",
    "exposed": "exposed_communication_ns",
    "copying": "copy_ns",
    "idle": "idle_ns",
}
_FIRST = "step"
_LEAST_NS = 500
"""What takes less of a step would be told as 0.000 ms."""

_NOT_TELLING = re.compile(r"^void |at::native::(\(anonymous namespace\)::)?")
"""What the names of most kernels begin with, and which would be all that is left of them."""

_SMALL_SHARE = 0.001
"""A phase that takes less of a step on every rank is left out."""


def render_report(report: RunReport, width: int = 100) -> RenderableType:
    """What is wrong with a run, and what its time went to, in ``width`` columns."""
    parts: list[RenderableType] = [*_heads(report)]
    parts += [Padding(Text(printable(note)), (0, 0, 0, 2)) for note in report.run["notes"]]
    if report.steps:
        parts += ["", *_findings(report), "", *_step_table(report, width)]
    elif any(row.window_ns is not None for row in report.ranks):
        parts += ["", _devices(report.ranks)]
    parts += [Text(line) for line in map(_straggler, report.stragglers)]
    operators = operators_by_name(report.operators)
    parts += ["", _calls("Operators", operators, ("self_ns", "total_ns", "device_ns"), width)]
    if report.kernels:
        kernels = [replace(row, name=_NOT_TELLING.sub("", row.name)) for row in kernels_by_name(report.kernels)]
        parts += ["", _calls("Kernels and copies", kernels, ("total_ns", "mean_ns"), width)]
    if report.memory:
        parts += ["", _memory(report.memory)]
    return Group(*parts)


def _heads(report: RunReport) -> Iterable[RenderableType]:
    """What is said first: which run it is, how it ended, what its step takes its time for, and what it computes."""
    run = report.run
    yield Text(_headline(run))
    if said := ending(run):
        yield Text(said, style="bold")
    if run["parts"] is not None and run["step_ns"] is not None:
        host, device = host_ledger(run["parts"], run["step_ns"]), device_ledger(run["parts"], run["step_ns"])
        yield Padding(Text(_in_ms("Host, ms a step", host)), (0, 0, 0, 2))
        if device is not None:
            yield Padding(Text(_in_ms("Device, ms a step", device)), (0, 0, 0, 2))
    elif devices := device_times(report.ranks):
        yield Padding(Text(_without_steps(devices)), (0, 0, 0, 2))
    yield from map(Text, _counted(run))
    yield from map(Text, _computed(run))


def _in_ms(title: str, ledger: Iterable[LedgerPart]) -> str:
    """One ledger of a step: its parts add up to it."""
    parts = ", ".join(f"{part.word} {_ms(part.time_ns)}" for part in ledger if abs(part.time_ns or 0) >= _LEAST_NS)
    unknown = ", ".join(part.word for part in ledger if part.time_ns is None and part.is_phase)
    return f"{title}: {parts}" + (f"; {NOT_KNOWN}: {unknown}" if unknown else "")


def _without_steps(devices: Sequence[DeviceTimes]) -> str:
    """What devices did over all that was recorded, where no step says what it was for."""
    whole, num_devices = devices[0], len(devices) - 1
    of = "Device" if num_devices == 1 else f"{num_devices:,} devices, on average"
    busy = NOT_KNOWN if whole.busy_share is None else f"{whole.busy_share:.1%}"
    times = {part.part: part.time_ns for part in whole.parts}
    return (
        f"{of}, ms of the {_ms(whole.window_ns)} recorded: busy {_ms(whole.busy_ns)} ({busy}), computing "
        f"{_ms(times['compute_ns'])}, communicating {_ms(whole.communication_ns)}, only copying "
        f"{_ms(times['exposed_copy_ns'])}, idle {_ms(whole.idle_ns)}"
    )


def _headline(run: RunFacts) -> str:
    of = f" of {run['world_size']}" if run["world_size"] else ""
    steps = counted(run["num_steps"], "step") if run["num_steps"] else "no step was recorded"
    typical = f", {_ms(run['step_ns'])} ms each" if run["step_ns"] is not None else ""
    why = f", {said}" if typical and (said := bound(run)) else ""
    return f"{shown(run['name'] or 'run')}: {counted(len(run['ranks']) or 1, 'rank')}{of}, {steps}{typical}{why}"


def _counted(run: RunFacts) -> Iterable[str]:
    """How many samples and tokens a rank's loop takes, where it counts them."""
    rates = {"samples": run["samples_per_s"], "tokens": run["tokens_per_s"]}
    told = [f"{rate:,.4g} {what} a second" for what, rate in rates.items() if rate is not None]
    if told:
        yield f"A rank's loop counts {' and '.join(told)}"


def _computed(run: RunFacts) -> Iterable[str]:
    """A line on what a rank computes, where that is known, with the share of the time that it is known of."""
    if run["flops_per_step"] is None:
        return
    rate = f"{_flop(run['flops_per_s'])}/s" if run["flops_per_s"] is not None else f"FLOP/s {NOT_KNOWN}"
    share = f", {run['mfu']:.1%} of its device's peak (MFU)" if run["mfu"] is not None else ""
    covered = run["mfu_coverage"]
    of = f"; of {covered:.0%} of the time of its matrix products" if covered is not None else ""
    yield f"A rank computes {_flop(run['flops_per_step'])} in a step: {rate}{share}{of}"


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
    step_ns = report.run["step_ns"]
    for place, finding in enumerate(report.findings[:_MOST_FINDINGS], start=1):
        if is_minor(finding, step_ns):
            yield Text(f"{place}. {printable(finding.title)}: {_worth(finding, report.run)}")
            continue
        yield Text(f"{place}. {printable(finding.title)}", style="bold")
        yield Padding(Text("\n".join(_about(finding, report.run))), (0, 0, 0, _INDENT))
    if len(report.findings) > _MOST_FINDINGS:
        yield Text(f"and {counted(len(report.findings) - _MOST_FINDINGS, 'more finding')}; --json has all")
    if sum(finding.saving_ns_per_step is not None for finding in report.findings) > 1:
        yield Text("Each saving stands alone: they do not add up.")


def _about(finding: Finding, run: RunFacts) -> Iterable[str]:
    """The lines below the title of a finding."""
    yield _worth(finding, run)
    if place := _place(finding.where):
        yield place
    yield printable(finding.advice)
    yield finding.link


def _worth(finding: Finding, run: RunFacts) -> str:
    """What it costs and saves, and how sure that is."""
    parts = {"costs": finding.cost_ns_per_step, "mending saves": finding.saving_ns_per_step}
    known = {what: time_ns for what, time_ns in parts.items() if time_ns is not None}
    shares = {what: share_of_step(time_ns, run) for what, time_ns in known.items()}
    times = [
        f"{what} {_ms(time_ns)} ms" + ("" if shares[what] is None else f" ({shares[what]:.0%})")
        for what, time_ns in known.items()
    ]
    return "; ".join([*([f"{', '.join(times)} of a step"] if times else []), f"confidence {finding.confidence}"])


def _place(where: Where) -> str:
    steps = [*map(str, where.steps[:_MOST_STEPS]), *(["..."] if len(where.steps) > _MOST_STEPS else [])]
    ranks = [str(rank) for rank in where.ranks[:_MOST_RANKS]]
    named = {"rank": ranks, "step": steps, "at": where.spans, "line": where.lines}
    return "; ".join(
        f"{what}{'s' if what != 'at' and len(names) > 1 else ''} "
        + ", ".join(shortened(name, _LONGEST_NAME) for name in names)
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


def _step_table(report: RunReport, width: int) -> Iterable[RenderableType]:
    """The step of each rank and its parts, in milliseconds, with as many columns as fit, the longest ones."""
    means = {row.rank: _parts_of(row) for row in report.ranks}
    names = _fitting(means.values(), width)
    table = _table("A step of each rank, in ms", "rank", *names)
    for rank, values in list(means.items())[:_MOST_RANKS]:
        table.add_row("" if rank is None else str(rank), *(_known_ms(values.get(name, 0.0)) for name in names))
    yield table
    if len(means) > _MOST_RANKS:
        yield Text(f"and {counted(len(means) - _MOST_RANKS, 'more rank')}; --json has all, --ranks chooses")


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
        left -= 2 + max(len(name), len(_ms(-most[name])))
        if left >= 0:
            shown.append(name)
    return [name for name in all_names if name in shown]


def _devices(rows: Sequence[RankRow]) -> Table:
    """What devices did over all that was recorded, where no step says what it was for. Idle is the rest."""
    known = [row for row in rows if row.window_ns is not None]
    shown = {word: name for word, name in _OF_DEVICES.items() if any(getattr(row, name) for row in known)}
    table = _table("The device of each rank over all that was recorded, in ms", "rank", "device", *shown)
    for row in known[:_MOST_RANKS]:
        places = ("" if place is None else str(place) for place in (row.rank, row.device))
        table.add_row(*places, *(_ms(getattr(row, name)) for name in shown.values()))
    return table


def _calls(title: str, rows: Sequence[CallSums], fields: Sequence[str], width: int) -> Table:
    shown = [field for field in fields if any(getattr(row, field) is not None for row in rows)] or fields[:1]
    table = _table(title, "name", "calls", *(f"{field.removesuffix('_ns')} ms" for field in shown))
    longest = min(_LONGEST_NAME, max(_SHORTEST_NAME, width - 12 - 14 * len(shown)))
    for row in rows[:_MOST_ROWS]:
        times = (_ms(getattr(row, field)) for field in shown)
        table.add_row(Text(shortened(row.name, longest)), f"{row.num_calls:,}", *times)
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
    table.add_column(first, no_wrap=True, min_width=len(first))
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _known_ms(time_ns: float | None) -> str:
    return NOT_KNOWN if time_ns is None else _ms(time_ns)


def _ms(time_ns: float | None) -> str:
    if time_ns is None:
        return ""
    return f"{time_ns / 1e6:,.{1 if abs(time_ns) >= 1e7 else 2 if abs(time_ns) >= 1e5 else 3}f}"
