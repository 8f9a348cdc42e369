"""report: what got slower or larger between two runs, on a screen. Names from traces are plain text there."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.run_report import RunFacts, ending
from kinetoscope.core.text.wording import format_count, sanitize, sanitize_sentence, shorten_distinctly, shorten_name
from kinetoscope.report.words import DEVICE_PARTS, HOST_PARTS, VERDICTS

_MOST_CHANGED, _MOST_ROWS = 30, 16
_MAX_WORSE, _MAX_FINDINGS = 3, 5
_LONGEST_NAME, _SHORTEST_NAME = 100, 12
_GAP = 2
_MANY_TIMES = 9
_MOST_TIMES = 1000
_KINDS = {"operator on device": "on device"}
_NUMBERS = ("before", "after", "change", "between, %")
COLUMNS = ("kind", "name", *_NUMBERS, "verdict")
_WHOLES = ("step", "phase", "memory")
_SPARED = ("between, %", "before", "after", "change")
"""The columns that a narrow screen lacks, the first of them first."""

UNITS = "times in ms, memory in MiB; n.s.: no significant change"
_CELLS = {"same": "n.s."}
"""Labels of verdicts that are too long for a column."""

_LARGER = {"slower": "larger", "faster": "smaller"}
_STYLES = {"slower": "red", "faster": "green", "new": "yellow", "gone": "yellow"}


def render_comparison(comparison: Comparison, width: int = 100, *, with_details: bool = False) -> RenderableType:
    """Return the verdict on the step, its phases, and findings fixed and new, in ``width`` characters.

    Args:
        with_details: show operators and kernels too, what changed first.
    """
    parts: list[RenderableType] = [
        *(Text(sentence, style="bold" if index == 0 else "") for index, sentence in enumerate(_said(comparison))),
        Text(f"before: {about_run(comparison.before)}"),
        Text(f"after:  {about_run(comparison.after)}"),
        *(Text(sanitize_sentence(note), style="dim") for note in [*_endings(comparison), *comparison.notes]),
    ]
    if comparison.rows:
        rows = comparison.rows if with_details else _main_rows(comparison)
        parts += ["", _table(rows, width, num_all=len(comparison.rows), with_details=with_details)]
    for title, findings in (("Fixed", comparison.fixed_findings), ("New", comparison.new_findings)):
        if findings:
            parts += ["", Text(f"{title}: {format_count(len(findings), 'finding')}", style="bold")]
            parts += [Padding(Text(sanitize_sentence(found.title)), (0, 0, 0, 2)) for found in findings[:_MAX_FINDINGS]]
    return Group(*parts)


def _main_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return the step, its phases and memory, and the first of the other rows that got worse."""
    whole = [row for row in comparison.rows if row.kind in _WHOLES]
    worse = [row for row in comparison.worse if row.kind not in _WHOLES]
    return [*sorted(whole, key=lambda row: _WHOLES.index(row.kind)), *worse[:_MAX_WORSE]]


def comparison_sentences(comparison: Comparison) -> list[str]:
    """What is said of two runs before the rows: first what became of the step. Names in it are those of traces."""
    said = list(_said(comparison)) if comparison.step else []
    nothing = ["One of the runs has no steps, so their steps cannot be compared."]
    return [*(said or nothing), *_endings(comparison), *comparison.notes]


def _endings(comparison: Comparison) -> list[str]:
    runs = {"Before": comparison.before, "After": comparison.after}
    return [f"{when}: {said}" for when, run in runs.items() if (said := ending(run))]


def about_run(run: RunFacts) -> str:
    """Which of two runs it is."""
    name = sanitize(run["title"] or "run")
    return f"{name}, {format_count(len(run['ranks']) or 1, 'rank')}, {format_count(run['num_steps'], 'step')}"


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
    num_rows, num_worse = format_count(len(comparison.rows), "row"), len(comparison.worse)
    unsure = [row for row in comparison.rows if _may_be_worse(row, comparison.threshold)]
    if num_worse:
        yield f"{num_worse} of {num_rows} got slower or larger by more than {percent}."
    elif any(row.grew_by(comparison.threshold) for row in comparison.rows):
        yield f"Only waits got longer by more than {percent}."
    elif not unsure:
        yield f"Nothing got slower or larger by more than {percent}."
    if unsure:
        worst = max(unsure, key=_most_change)
        most = _most_change(worst)
        up_to = f"up to {_bound(most)}" if worst.interval and most < _MANY_TIMES else _bound(most)
        result = f"inconclusive: they may be slower or larger by more than {percent}"
        name = shorten_name(_whole_name(worst), _LONGEST_NAME)
        yield f"{len(unsure)} of {num_rows} are {result}, such as {name} ({up_to})."


def _may_be_worse(row: ComparisonRow, threshold: float) -> bool:
    """Whether a row that is unsure may have got slower by more than the threshold."""
    return row.verdict == "unsure" and _most_change(row) > threshold


def _most_change(row: ComparisonRow) -> float:
    return row.interval[1] if row.interval else row.change or 0.0


def _step_said(step: ComparisonRow, percent: str) -> str:
    return {
        "slower": "The typical step got slower",
        "faster": "The typical step got faster",
        "same": f"No significant change of the typical step, within {percent}",
    }.get(step.verdict, "Inconclusive: the typical step may or may not have changed")


def _range(row: ComparisonRow) -> str:
    if row.interval is None:
        return ""
    low, high = row.interval
    return f", {_percent(row.change)} (between {_bound(low)} and {_bound(high)})"


def _how_to_tell(more_steps: int | None) -> str:
    if more_steps is not None:
        return f"About {format_count(more_steps, 'more step')} of each run would tell."
    return (
        "More steps would not tell: what did not change differs as much between these recordings. Record both again, "
        "one right after the other, on a machine that does nothing else."
    )


def _table(rows: Sequence[ComparisonRow], width: int, *, num_all: int, with_details: bool) -> RenderableType:
    chosen = shown_rows(rows) if with_details else rows
    lacks, room = _narrowed(chosen, width)
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        if name not in lacks:
            table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=name != "name")
    for row, texts in zip(chosen, cells_of(chosen, room), strict=True):
        cells = (cell for name, cell in zip(COLUMNS, texts, strict=True) if name not in lacks)
        table.add_row(
            *(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells), style=_STYLES.get(row.verdict, "")
        )
    num_left = num_all - len(chosen)
    where = "--json has all" if with_details else "--details"
    left = f"; {format_count(num_left, 'more row')}: {where}" if num_left else ""
    columns = ", ".join(name.removesuffix(", %") for name in lacks)
    narrow = f"; {format_count(len(lacks), 'column')} hidden at this width: {columns}" if lacks else ""
    return Group(table, Text(f"{UNITS}{left}{narrow}", style="dim"))


def _narrowed(rows: Sequence[ComparisonRow], width: int) -> tuple[list[str], int]:
    """The columns that do not fit, so that no number is cut, and how many letters of a name fit beside the others."""
    columns = zip(COLUMNS, *cells_of(rows), strict=True)
    widths = {column[0]: _GAP + max(map(len, column)) for column in columns if column[0] != "name"}
    lacks: list[str] = []
    for name in _SPARED:
        if width - sum(widths.values()) >= _SHORTEST_NAME:
            break
        lacks.append(name)
        del widths[name]
    return lacks, max(_SHORTEST_NAME, min(_LONGEST_NAME, width - sum(widths.values())))


def shown_rows(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows that changed, and the first of the others.

    Where there are phases, these stand for the operators and kernels in them that did not change.
    """
    changed = [row for row in rows if row.verdict in _STYLES][:_MOST_CHANGED]
    others = [row for row in rows if row.verdict not in _STYLES]
    if any(row.kind == "phase" for row in rows):
        others = [row for row in others if row.kind in _WHOLES]
    return changed + others[: max(_MOST_ROWS - len(changed), _MOST_ROWS // 2)]


def cells_of(rows: Sequence[ComparisonRow], longest: int = _LONGEST_NAME) -> list[list[str]]:
    """The `COLUMNS` of each row; a name has at most ``longest`` letters."""
    names = shorten_distinctly([_whole_name(row) for row in rows], longest)
    return [_cells(row, name) for row, name in zip(rows, names, strict=True)]


def _cells(row: ComparisonRow, name: str) -> list[str]:
    is_memory = row.unit == "bytes"
    low, high = row.interval or (None, None)
    between = f"{_bound(low, '')} {_bound(high, '')}" if row.interval else ""
    verdict = (VERDICTS | _CELLS | (_LARGER if is_memory else {}))[row.verdict]
    values = [_in_unit(row.before, row.unit), _in_unit(row.after, row.unit), _percent(row.change, "%"), between]
    return [_KINDS.get(row.kind, row.kind), name, *values, verdict]


def _whole_name(row: ComparisonRow) -> str:
    """Return the name with shapes and module; of a phase the label of the time breakdown."""
    if row.kind == "phase":
        return _phase_label(row.name)
    where = " ".join(filter(None, (row.name, row.shapes)))
    return f"{where} in {row.module}" if row.module else where


def _phase_label(name: str) -> str:
    if (part := f"{name.removeprefix('device_')}_ns") in DEVICE_PARTS and name.startswith("device_"):
        return f"GPU {DEVICE_PARTS[part]}"
    return HOST_PARTS.get(f"{name}_ns", name.replace("_", " "))


def _in_unit(value: float | None, unit: str) -> str:
    """Nanoseconds as milliseconds, bytes as MiB."""
    if value is None:
        return ""
    chosen = value / (2**20 if unit == "bytes" else 1e6)
    return f"{chosen:,.3f}" if chosen < 1 else f"{chosen:,.2f}"


def _percent(part: float | None, sign: str = " %") -> str:
    if part is None:
        return ""
    if part >= _MOST_TIMES:
        return f"x{_MOST_TIMES:,}+"
    if part >= _MANY_TIMES:
        return f"x{1 + part:,.0f}"
    return f"{part:+,.0%}".rstrip("%") + sign if abs(part) >= 1 else f"{part * 100:+.1f}{sign}"


def _bound(part: float | None, sign: str = " %") -> str:
    """Return an end of an interval, capped: those of times near zero reach far beyond anything that was measured."""
    if part is None or part < _MANY_TIMES:
        return _percent(part, sign)
    return "more than 10x" if sign else ">10x"


def _plain_percent(part: float) -> str:
    return f"{part * 100:g} %"
