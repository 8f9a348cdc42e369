"""Comparison of two runs on a terminal, and as sentences. Names from traces are plain text."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.run_report import RunFacts, unfinished_notice
from kinetoscope.core.text.wording import format_count, sanitize, sanitize_sentence, shorten_distinctly, shorten_name
from kinetoscope.report.labels import DEVICE_PART_LABELS, HOST_PART_LABELS, VERDICT_LABELS

_MAX_CHANGED_ROWS, _MAX_ROWS = 30, 16
_MAX_WORSE, _MAX_FINDINGS = 3, 5
_MAX_NAME_LENGTH, _MIN_NAME_LENGTH = 100, 12
_GAP = 2
_FACTOR_THRESHOLD = 9
_MAX_FACTOR = 1000
_KINDS = {"operator on device": "on device"}
_NUMBERS = ("before", "after", "change", "between, %")
COLUMNS = ("kind", "name", *_NUMBERS, "verdict")
_WHOLES = ("step", "phase", "memory")
_HIDDEN_FIRST = ("between, %", "before", "after", "change")
"""Columns that a narrow screen hides, in this order."""

UNITS = "times in ms, memory in MiB; n.s.: no significant change"
_SHORT_VERDICTS = {"same": "n.s."}
"""Labels of verdicts that are too long for a column."""

_LARGER = {"slower": "larger", "faster": "smaller"}
_STYLES = {"slower": "red", "faster": "green", "new": "yellow", "gone": "yellow"}


def render_comparison(comparison: Comparison, width: int = 100, *, with_details: bool = False) -> RenderableType:
    """Return the verdict on the step, its phases, and findings fixed and new, in ``width`` characters.

    Args:
        comparison: the comparison of two runs.
        width: width of the screen in characters.
        with_details: show operators and kernels too, what changed first.
    """
    parts: list[RenderableType] = [
        *(Text(sentence, style="bold" if index == 0 else "") for index, sentence in enumerate(_describe(comparison))),
        Text(f"before: {describe_run(comparison.before)}"),
        Text(f"after:  {describe_run(comparison.after)}"),
        *(Text(sanitize_sentence(note), style="dim") for note in [*_describe_endings(comparison), *comparison.notes]),
    ]
    if comparison.rows:
        rows = comparison.rows if with_details else _select_main_rows(comparison)
        parts += ["", _render_table(rows, width, num_all=len(comparison.rows), with_details=with_details)]
    for title, findings in (("Fixed", comparison.fixed_findings), ("New", comparison.new_findings)):
        if findings:
            parts += ["", Text(f"{title}: {format_count(len(findings), 'finding')}", style="bold")]
            parts += [Padding(Text(sanitize_sentence(found.title)), (0, 0, 0, 2)) for found in findings[:_MAX_FINDINGS]]
    return Group(*parts)


def _select_main_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return the step, its phases and memory, and the first of the other rows that got worse."""
    whole = [row for row in comparison.rows if row.kind in _WHOLES]
    worse = [row for row in comparison.worse if row.kind not in _WHOLES]
    return [*sorted(whole, key=lambda row: _WHOLES.index(row.kind)), *worse[:_MAX_WORSE]]


def describe_comparison(comparison: Comparison) -> list[str]:
    """Return sentences on two runs, first on the step time; they contain names from traces."""
    sentences = list(_describe(comparison)) if comparison.step else []
    nothing = ["One of the runs has no steps, so their steps cannot be compared."]
    return [*(sentences or nothing), *_describe_endings(comparison), *comparison.notes]


def _describe_endings(comparison: Comparison) -> list[str]:
    """Return sentences on runs that did not end normally."""
    runs = {"Before": comparison.before, "After": comparison.after}
    return [f"{when}: {sentence}" for when, run in runs.items() if (sentence := unfinished_notice(run))]


def describe_run(run: RunFacts) -> str:
    """Return the name, ranks and steps of a run."""
    name = sanitize(run["title"] or "run")
    return f"{name}, {format_count(len(run['ranks']) or 1, 'rank')}, {format_count(run['num_steps'], 'step')}"


def _describe(comparison: Comparison) -> Iterable[str]:
    """Yield sentences on the step time and on regressions."""
    step, percent = comparison.step, _format_threshold(comparison.threshold)
    if step is not None:
        times = (
            f"{_format_value(step.before, step.unit)} ms before, {_format_value(step.after, step.unit)} ms after"
            f"{_format_range(step)}"
        )
        yield f"{_describe_step(step, percent)}: {times}."
        if step.verdict == "unsure":
            yield _advise_more_steps(comparison.more_steps)
    yield from _describe_worse(comparison, percent)


def _describe_worse(comparison: Comparison, percent: str) -> Iterable[str]:
    """Yield sentences on the number of regressions, and of rows that are inconclusive."""
    num_rows, num_worse = format_count(len(comparison.rows), "row"), len(comparison.worse)
    unsure = [row for row in comparison.rows if _is_maybe_worse(row, comparison.threshold)]
    if num_worse:
        yield f"{num_worse} of {num_rows} got slower or larger by more than {percent}."
    elif any(row.grew_by(comparison.threshold) for row in comparison.rows):
        yield f"Only waits got longer by more than {percent}."
    elif not unsure:
        yield f"Nothing got slower or larger by more than {percent}."
    if unsure:
        worst = max(unsure, key=_find_max_change)
        max_change = _find_max_change(worst)
        up_to = (
            f"up to {_format_interval_end(max_change)}"
            if worst.interval and max_change < _FACTOR_THRESHOLD
            else _format_interval_end(max_change)
        )
        result = f"inconclusive: they may be slower or larger by more than {percent}"
        name = shorten_name(_format_name(worst), _MAX_NAME_LENGTH)
        yield f"{len(unsure)} of {num_rows} are {result}, such as {name} ({up_to})."


def _is_maybe_worse(row: ComparisonRow, threshold: float) -> bool:
    """Return whether an inconclusive row may have got slower by more than the threshold."""
    return row.verdict == "unsure" and _find_max_change(row) > threshold


def _find_max_change(row: ComparisonRow) -> float:
    """Return the upper end of the interval of a change."""
    return row.interval[1] if row.interval else row.change or 0.0


def _describe_step(step: ComparisonRow, percent: str) -> str:
    """Return the verdict on the step time."""
    return {
        "slower": "The typical step got slower",
        "faster": "The typical step got faster",
        "same": f"No significant change of the typical step, within {percent}",
    }.get(step.verdict, "Inconclusive: the typical step may or may not have changed")


def _format_range(row: ComparisonRow) -> str:
    """Return the change of the step and its interval."""
    if row.interval is None:
        return ""
    low, high = row.interval
    return f", {_format_percent(row.change)} (between {_format_interval_end(low)} and {_format_interval_end(high)})"


def _advise_more_steps(more_steps: int | None) -> str:
    """Return a sentence on how to get a conclusive result."""
    if more_steps is not None:
        return f"About {format_count(more_steps, 'more step')} of each run would tell."
    return (
        "More steps would not tell: what did not change differs as much between these recordings. Record both again, "
        "one right after the other, on a machine that does nothing else."
    )


def _render_table(rows: Sequence[ComparisonRow], width: int, *, num_all: int, with_details: bool) -> RenderableType:
    chosen = select_rows(rows) if with_details else rows
    hidden, name_length = _fit_columns(chosen, width)
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        if name not in hidden:
            table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=name != "name")
    for row, texts in zip(chosen, format_rows(chosen, name_length), strict=True):
        cells = (cell for name, cell in zip(COLUMNS, texts, strict=True) if name not in hidden)
        table.add_row(
            *(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells), style=_STYLES.get(row.verdict, "")
        )
    num_left = num_all - len(chosen)
    where = "--json has all" if with_details else "--details"
    left = f"; {format_count(num_left, 'more row')}: {where}" if num_left else ""
    columns = ", ".join(name.removesuffix(", %") for name in hidden)
    narrow = f"; {format_count(len(hidden), 'column')} hidden at this width: {columns}" if hidden else ""
    return Group(table, Text(f"{UNITS}{left}{narrow}", style="dim"))


def _fit_columns(rows: Sequence[ComparisonRow], width: int) -> tuple[list[str], int]:
    """Return the columns that do not fit, and the characters that are left for names."""
    columns = zip(COLUMNS, *format_rows(rows), strict=True)
    widths = {column[0]: _GAP + max(map(len, column)) for column in columns if column[0] != "name"}
    hidden: list[str] = []
    for name in _HIDDEN_FIRST:
        if width - sum(widths.values()) >= _MIN_NAME_LENGTH:
            break
        hidden.append(name)
        del widths[name]
    return hidden, max(_MIN_NAME_LENGTH, min(_MAX_NAME_LENGTH, width - sum(widths.values())))


def select_rows(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows that changed, and the first of the others.

    Where there are phases, these stand for the operators and kernels in them that did not change.
    """
    changed = [row for row in rows if row.verdict in _STYLES][:_MAX_CHANGED_ROWS]
    others = [row for row in rows if row.verdict not in _STYLES]
    if any(row.kind == "phase" for row in rows):
        others = [row for row in others if row.kind in _WHOLES]
    return changed + others[: max(_MAX_ROWS - len(changed), _MAX_ROWS // 2)]


def format_rows(rows: Sequence[ComparisonRow], max_name_length: int = _MAX_NAME_LENGTH) -> list[list[str]]:
    """Return the cells of each row by `COLUMNS`; a name has at most ``max_name_length`` characters."""
    names = shorten_distinctly([_format_name(row) for row in rows], max_name_length)
    return [_format_row(row, name) for row, name in zip(rows, names, strict=True)]


def _format_row(row: ComparisonRow, name: str) -> list[str]:
    is_memory = row.unit == "bytes"
    low, high = row.interval or (None, None)
    between = f"{_format_interval_end(low, '')} {_format_interval_end(high, '')}" if row.interval else ""
    verdict = (VERDICT_LABELS | _SHORT_VERDICTS | (_LARGER if is_memory else {}))[row.verdict]
    values = [
        _format_value(row.before, row.unit),
        _format_value(row.after, row.unit),
        _format_percent(row.change, "%"),
        between,
    ]
    return [_KINDS.get(row.kind, row.kind), name, *values, verdict]


def _format_name(row: ComparisonRow) -> str:
    """Return the name with shapes and module; of a phase the label of the time breakdown."""
    if row.kind == "phase":
        return _label_phase(row.name)
    where = " ".join(filter(None, (row.name, row.shapes)))
    return f"{where} in {row.module}" if row.module else where


def _label_phase(name: str) -> str:
    if (part := f"{name.removeprefix('device_')}_ns") in DEVICE_PART_LABELS and name.startswith("device_"):
        return f"GPU {DEVICE_PART_LABELS[part]}"
    return HOST_PART_LABELS.get(f"{name}_ns", name.replace("_", " "))


def _format_value(value: float | None, unit: str) -> str:
    """Return nanoseconds as milliseconds, or bytes as MiB."""
    if value is None:
        return ""
    chosen = value / (2**20 if unit == "bytes" else 1e6)
    return f"{chosen:,.3f}" if chosen < 1 else f"{chosen:,.2f}"


def _format_percent(part: float | None, sign: str = " %") -> str:
    """Return a relative change in percent; as a factor if it is large."""
    if part is None:
        return ""
    if part >= _MAX_FACTOR:
        return f"x{_MAX_FACTOR:,}+"
    if part >= _FACTOR_THRESHOLD:
        return f"x{1 + part:,.0f}"
    return f"{part:+,.0%}".rstrip("%") + sign if abs(part) >= 1 else f"{part * 100:+.1f}{sign}"


def _format_interval_end(part: float | None, sign: str = " %") -> str:
    """Return an end of an interval, capped: those of times near zero reach far beyond anything that was measured."""
    if part is None or part < _FACTOR_THRESHOLD:
        return _format_percent(part, sign)
    return "more than 10x" if sign else ">10x"


def _format_threshold(part: float) -> str:
    return f"{part * 100:g} %"
