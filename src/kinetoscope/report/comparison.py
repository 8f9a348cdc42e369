"""Comparison of two runs as sentences and cells of tables. Names from traces are plain text."""

from collections.abc import Iterable, Sequence

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.run_report import RunFacts, unfinished_notice
from kinetoscope.core.text.wording import format_count, sanitize, shorten_distinctly, shorten_name
from kinetoscope.report.labels import DEVICE_PART_LABELS, HOST_PART_LABELS, VERDICT_LABELS

_MAX_CHANGED_ROWS, _MAX_ROWS = 30, 16
MAX_NAME_LENGTH = 100
_FACTOR_THRESHOLD = 9
_MAX_FACTOR = 1000
_KINDS = {"operator on device": "on device"}
INTERVAL = "95 % CI, %"
NUMBERS = ("before", "after", "change", INTERVAL)
COLUMNS = ("kind", "name", *NUMBERS, "verdict")
WHOLES = ("step", "phase", "memory")
"""Kinds of rows that are a step as a whole, or parts of it."""

UNITS = "times in ms, memory in MiB; n.s.: no significant change"
_SHORT_VERDICTS = {"same": "n.s."}
"""Labels of verdicts that are too long for a column."""

_LARGER = {"slower": "larger", "faster": "smaller"}
VERDICT_STYLES = {"slower": "red", "faster": "green", "new": "yellow", "gone": "yellow"}
_NO_STEPS = "Nothing to compare: one of the runs has no steps."


def describe_comparison(comparison: Comparison) -> list[str]:
    """Return sentences on two runs, first the verdict on the step; they contain names from traces."""
    return [
        describe_verdict(comparison),
        *filter(None, [comparison.why_unsure]),
        *(describe_worse(comparison) if comparison.step else []),
        *describe_endings(comparison),
        *comparison.notes,
    ]


def describe_verdict(comparison: Comparison) -> str:
    """Return the verdict on the typical step in one line, with its change and the interval of that."""
    step = comparison.step
    if step is None:
        return _NO_STEPS
    label = VERDICT_LABELS[step.verdict].capitalize()
    times = f"{_format_value(step.before, step.unit)} -> {_format_value(step.after, step.unit)} ms/step"
    return f"{label}: {times}{_format_range(step)}"


def describe_endings(comparison: Comparison) -> list[str]:
    """Return sentences on runs that did not end normally."""
    runs = {"Before": comparison.before, "After": comparison.after}
    return [f"{when}: {sentence}" for when, run in runs.items() if (sentence := unfinished_notice(run))]


def describe_run(run: RunFacts) -> str:
    """Return the name, ranks and steps of a run."""
    name = sanitize(run["title"] or "run")
    return f"{name}, {format_count(len(run['ranks']) or 1, 'rank')}, {format_count(run['num_steps'], 'step')}"


def describe_worse(comparison: Comparison) -> Iterable[str]:
    """Yield sentences on the number of regressions, and of rows that are inconclusive."""
    percent = f"{100 * comparison.threshold:g} %"
    num_rows, num_worse = format_count(len(comparison.rows), "row"), len(comparison.worse)
    unsure = [
        row for row in comparison.rows if row.verdict == "unsure" and _find_max_change(row) > comparison.threshold
    ]
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
        name = shorten_name(_format_name(worst), MAX_NAME_LENGTH)
        yield f"{len(unsure)} of {num_rows} are {result}, such as {name} ({up_to})."


def _find_max_change(row: ComparisonRow) -> float:
    """Return the upper end of the interval of a change."""
    return row.interval[1] if row.interval else row.change or 0.0


def _format_range(row: ComparisonRow) -> str:
    """Return the change of the step and its interval."""
    if row.change is None:
        return ""
    change = f", {_format_percent(row.change)}"
    if row.interval is None:
        return change
    low, high = map(_format_interval_end, row.interval)
    return f"{change} (95 % CI {low.removesuffix(' %') if high.endswith('%') else low} to {high})"


def select_rows(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows that changed, and the first of the others.

    Where there are phases, these stand for the operators, kernels and modules in them that did not change.
    """
    changed = [row for row in rows if row.verdict in VERDICT_STYLES][:_MAX_CHANGED_ROWS]
    others = [row for row in rows if row.verdict not in VERDICT_STYLES]
    if any(row.kind == "phase" for row in rows):
        others = [row for row in others if row.kind in WHOLES]
    return changed + others[: max(_MAX_ROWS - len(changed), _MAX_ROWS // 2)]


def format_rows(rows: Sequence[ComparisonRow], max_name_length: int = MAX_NAME_LENGTH) -> list[list[str]]:
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
