"""report: a `RunReport` on one screen of a terminal. Names from traces are plain text there, whatever they hold."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.replay import CAUSES, Change
from kinetoscope.analysis.steps import StepRow
from kinetoscope.training.wording import counted, printable

_MOST_RANKS, _MOST_ROWS = 16, 8
_LONGEST_NAME = 60
_PHASES = {
    "step": "duration_ns",
    "between": "between_ns",
    "data": "data_wait_ns",
    "forward": "forward_ns",
    "backward": "backward_ns",
    "optimizer": "optimizer_ns",
    "sync": "sync_ns",
    "collectives": "communication_wait_ns",
    "python": "python_ns",
    "device busy": "device_busy_ns",
    "device idle": "device_idle_ns",
}
_WITHOUT = {
    "data": "no waiting for data",
    "sync": "no waiting for the device",
    "launch": "launches that take no time",
    "transfer": "collectives that only wait for the last rank",
    "python": "no Python between operators",
    "gc": "no garbage collection",
    "compile": "no compilation",
}


def render_report(report: RunReport) -> RenderableType:
    """What a run's time went to, and what would shorten it."""
    parts: list[RenderableType] = [Text(_headline(report))]
    parts += [Text(f"  {printable(note)}") for note in report.run["notes"]]
    if report.steps:
        parts += ["", _step_table(report), "", _savings(report)]
    parts += [Text(line) for line in _stragglers(report)]
    parts += ["", _calls("Operators", report.operators, ("self_ns", "total_ns")), ""]
    if report.kernels:
        parts.append(_calls("Kernels and copies", report.kernels, ("total_ns", "mean_ns")))
    return Group(*parts)


def _headline(report: RunReport) -> str:
    run = report.run
    of = f" of {run['world_size']}" if run["world_size"] else ""
    steps = counted(run["num_steps"], "step") if run["num_steps"] else "no step was recorded"
    typical = f", {_ms(median(_step_ns(row) for row in report.steps))} ms each" if report.steps else ""
    return f"{printable(run['name'] or 'run')}: {counted(len(run['ranks']) or 1, 'rank')}{of}, {steps}{typical}"


def _step_ns(row: StepRow) -> int:
    return row.duration_ns + (row.between_ns or 0)


def _step_table(report: RunReport) -> Table:
    """The mean step of each rank, in milliseconds."""
    by_rank: dict[int | None, list[StepRow]] = {}
    for row in report.steps:
        by_rank.setdefault(row.rank, []).append(row)
    means = {rank: {name: _mean(rows, field) for name, field in _PHASES.items()} for rank, rows in by_rank.items()}
    names = [name for name in _PHASES if any(values[name] is not None for values in means.values())]
    table = _table("A step of each rank, in ms", "rank", *names)
    for rank, values in list(means.items())[:_MOST_RANKS]:
        table.add_row("" if rank is None else str(rank), *(_ms(values[name]) for name in names))
    if len(means) > _MOST_RANKS:
        table.caption = f"and {len(means) - _MOST_RANKS} more ranks; --json has all, --ranks chooses"
    return table


def _mean(rows: Iterable[StepRow], field: str) -> float | None:
    values = [value for row in rows if (value := getattr(row, field)) is not None]
    return sum(values) / len(values) if values else None


def _savings(report: RunReport) -> Table:
    """What a step would take with something changed, by a replay, the most gained first."""
    table = _table("What a step would gain, by replaying the run", "with", "ms", "of the step")
    step_ns = median(map(_step_ns, report.steps))
    changes = [(_WITHOUT[cause], Change(frozenset([cause]))) for cause in CAUSES]
    changes += [(f"rank {row.rank} on time", Change(on_time=row.rank)) for row in report.stragglers]
    found = [(what, report.saving_ns_per_step(change)) for what, change in changes]
    for what, saving_ns in sorted(found, key=lambda pair: -(pair[1] or 0)):
        if saving_ns is not None and saving_ns >= 0.001 * step_ns:
            table.add_row(what, _ms(saving_ns), f"{saving_ns / step_ns:.1%}")
    table.caption = "each alone: they do not add up"
    return table


def _stragglers(report: RunReport) -> Iterable[str]:
    for row in report.stragglers:
        how_often = f"every {_ordinal(row.period)} step" if (row.period or 0) > 1 else counted(len(row.steps), "step")
        yield (
            f"Rank {row.rank} is late ({row.cause}) in {how_often}: "
            f"each other rank waits {_ms(row.cost_ns_per_step)} ms a step for it."
        )


def _ordinal(number: int | None) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{endings.get(number, 'th')}" if number is not None else ""


def _calls(title: str, rows: Sequence[Any], fields: Sequence[str]) -> Table:
    table = _table(title, "name", "calls", *(f"{field.removesuffix('_ns')} ms" for field in fields))
    for row in rows[:_MOST_ROWS]:
        name = row.name if len(row.name) <= _LONGEST_NAME else f"{row.name[: _LONGEST_NAME - 3]}..."
        table.add_row(Text(printable(name)), f"{row.num_calls:,}", *(_ms(getattr(row, field)) for field in fields))
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=None, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _ms(time_ns: float | None) -> str:
    return "" if time_ns is None else f"{time_ns / 1e6:,.2f}" if time_ns < 1e7 else f"{time_ns / 1e6:,.1f}"
