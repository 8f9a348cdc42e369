"""report: what got slower or larger between two runs, on a screen. Names from traces are plain text there."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.run_report import RunFacts, ending
from kinetoscope.training.wording import counted, printable, shortened, shown

_MOST_CHANGED, _MOST_ROWS = 30, 16
_LONGEST_NAME = 100
_MANY_TIMES = 9
_KINDS = {"operator on device": "on device"}
_NUMBERS = ("before", "after", "change", "between, %")
_COLUMNS = ("kind", "name", *_NUMBERS, "verdict")
_LARGER = {"slower": "larger", "faster": "smaller"}
_STYLES = {"slower": "red", "faster": "green", "new": "yellow", "gone": "yellow"}


def render_comparison(comparison: Comparison) -> RenderableType:
    """What changed, what changed first; then what did not."""
    parts: list[RenderableType] = [
        Text(f"before: {_about(comparison.before)}"),
        Text(f"after:  {_about(comparison.after)}"),
        *(Text(f"  {printable(note)}") for note in [*_endings(comparison), *comparison.notes]),
    ]
    if comparison.rows:
        parts += ["", *map(Text, _said(comparison)), "", _table(comparison)]
    return Group(*parts)


def comparison_sentences(comparison: Comparison) -> list[str]:
    """What is said of two runs before the rows: first what became of the step. Names in it are those of traces."""
    said = list(_said(comparison)) if comparison.step else []
    nothing = ["One of the runs has no steps, so their steps cannot be compared."]
    return [*(said or nothing), *_endings(comparison), *comparison.notes]


def _endings(comparison: Comparison) -> list[str]:
    runs = {"Before": comparison.before, "After": comparison.after}
    return [f"{when}: {said}" for when, run in runs.items() if (said := ending(run))]


def _about(run: RunFacts) -> str:
    name = shown(run["name"] or "run")
    return f"{name}, {counted(len(run['ranks']) or 1, 'rank')}, {counted(run['num_steps'], 'step')}"


def _said(comparison: Comparison) -> Iterable[str]:
    step, percent = comparison.step, _plain_percent(comparison.threshold)
    if step is not None:
        times = (
            f"{_in_unit(step.before, step.unit)} ms before, {_in_unit(step.after, step.unit)} ms after{_range(step)}"
        )
        yield f"{_step_said(step, percent)}: {times}."
        if step.verdict == "unsure":
            yield _how_to_tell(comparison.more_steps)
    yield from _worse_said(comparison, percent)


def _worse_said(comparison: Comparison, percent: str) -> Iterable[str]:
    """How many rows got worse, and of how many that cannot be told. Nothing did only where that is sure of all."""
    num_rows, num_worse = counted(len(comparison.rows), "row"), len(comparison.worse)
    unsure = [row for row in comparison.rows if _may_be_worse(row, comparison.threshold)]
    if num_worse:
        yield f"{num_worse} of {num_rows} got slower or larger by more than {percent}."
    elif not unsure:
        yield f"Nothing got slower or larger by more than {percent}."
    if unsure:
        worst = max(unsure, key=_most_change)
        up_to = f"{'up to ' if worst.interval else ''}{_percent(_most_change(worst))}"
        told = f"it cannot be told whether they got slower or larger by more than {percent}"
        yield f"Of {len(unsure)} of {num_rows} {told}, such as {_name(worst)} ({up_to})."


def _may_be_worse(row: ComparisonRow, threshold: float) -> bool:
    """Whether a row that is unsure may have got slower by more than the threshold."""
    return row.verdict == "unsure" and _most_change(row) > threshold


def _most_change(row: ComparisonRow) -> float:
    return row.interval[1] if row.interval else row.change or 0.0


def _step_said(step: ComparisonRow, percent: str) -> str:
    return {
        "slower": "The step got slower",
        "faster": "The step got faster",
        "same": f"The step is the same, within {percent}",
    }.get(step.verdict, "Cannot tell whether the step changed")


def _range(row: ComparisonRow) -> str:
    if row.interval is None:
        return ""
    low, high = row.interval
    return f", {_percent(row.change)} (between {_percent(low)} and {_percent(high)})"


def _how_to_tell(more_steps: int | None) -> str:
    if more_steps is not None:
        return f"About {counted(more_steps, 'more step')} of each run would tell."
    return (
        "More steps would not tell: what did not change differs as much between these recordings. Record both again, "
        "one right after the other, on a machine that does nothing else."
    )


def _table(comparison: Comparison) -> Table:
    shown = _shown(comparison.rows)
    table = Table(box=None, pad_edge=False, caption_justify="left")
    for name in _COLUMNS:  # the names become shorter where the screen is narrow
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=name != "name")
    for row in shown:
        cells = [Text(cell, no_wrap=True, overflow="ellipsis") for cell in _cells(row)]
        table.add_row(*cells, style=_STYLES.get(row.verdict, ""))
    num_left = len(comparison.rows) - len(shown)
    left = f"; {counted(num_left, 'more row')}: --json has all" if num_left else ""
    table.caption = f"times in ms, memory in MiB{left}"
    return table


def _shown(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    changed = [row for row in rows if row.verdict in _STYLES][:_MOST_CHANGED]
    others = [row for row in rows if row.verdict not in _STYLES]
    return changed + others[: max(_MOST_ROWS - len(changed), _MOST_ROWS // 2)]


def _cells(row: ComparisonRow) -> list[str]:
    is_memory = row.unit == "bytes"
    low, high = row.interval or (None, None)
    between = f"{_percent(low, '')} {_percent(high, '')}" if row.interval else ""
    verdict = _LARGER.get(row.verdict, row.verdict) if is_memory else row.verdict
    values = [_in_unit(row.before, row.unit), _in_unit(row.after, row.unit), _percent(row.change), between]
    return [_KINDS.get(row.kind, row.kind), _name(row), *values, verdict]


def _name(row: ComparisonRow) -> str:
    where = " ".join(
        part for part in (row.name.replace("_", " ") if row.kind == "phase" else row.name, row.shapes) if part
    )
    text = f"{where} in {row.module}" if row.module else where
    return shortened(text, _LONGEST_NAME)


def _in_unit(value: float | None, unit: str) -> str:
    """Nanoseconds as milliseconds, bytes as MiB."""
    if value is None:
        return ""
    shown = value / (2**20 if unit == "bytes" else 1e6)
    return f"{shown:,.3f}" if shown < 1 else f"{shown:,.2f}"


def _percent(part: float | None, sign: str = "%") -> str:
    if part is None:
        return ""
    if part >= _MANY_TIMES:
        return f"x{1 + part:,.0f}"
    return f"{part:+,.0%}".rstrip("%") + sign if abs(part) >= 1 else f"{part * 100:+.1f}{sign}"


def _plain_percent(part: float) -> str:
    return f"{part * 100:g}%"
