"""Results of `kinetoscope try`, on a terminal and as sentences beside findings."""

import math
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.core.text.wording import format_count, format_memory, format_ms, sanitize_sentence
from kinetoscope.formats.experiments import Experiment, ExperimentRow
from kinetoscope.report.labels import RESULT_LABELS, VERDICT_LABELS, format_change, format_interval

_UNKNOWN = "\N{EN DASH}"
_COLUMNS = {"": "left", "step ms": "right", "change": "right", "95 % CI": "right", "verdict": "left", "memory": "right"}
_COLUMNS |= {"results": "left"}
_NUM_NARROW_COLUMNS = 5
"""Columns of a table that would be wider than the screen: memory and results are below it."""

_MAX_WIDTH = 1000


def render_experiment(experiment: Experiment, width: int) -> RenderableType:
    """Return a table with a row per variant, and below it the reasons and the code to write."""
    if not experiment.rows and experiment.step_ns is None:
        return Group(*(Text(sanitize_sentence(line)) for line in ("Nothing was measured.", *experiment.notes)))
    table = _build_table(experiment, len(_COLUMNS))
    is_narrow = Console(width=_MAX_WIDTH).measure(table).maximum > width
    if is_narrow:
        table = _build_table(experiment, _NUM_NARROW_COLUMNS)
    reasons = _describe_reasons(experiment.rows, with_memory=is_narrow)
    parts: list[RenderableType] = [table, Text(_summarize(experiment))]
    parts += [Text(sanitize_sentence(line)) for line in (*reasons, *experiment.notes)]
    gains = _find_gains(experiment.rows)
    parts += _render_code("To make the best gain permanent:", gains[:1])
    parts += _render_code("Alternatives, measured alone:", gains[1:])
    return Group(*parts)


def _build_table(experiment: Experiment, num_columns: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, justify in list(_COLUMNS.items())[:num_columns]:
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=True)
    if experiment.step_ns is not None:
        peaks = [row.peak_before_bytes for row in experiment.rows if row.peak_before_bytes]
        peak = format_memory(peaks[0]) if peaks else _UNKNOWN
        table.add_row(*["unmodified", format_ms(experiment.step_ns), "", "", "", peak, ""][:num_columns])
    for row in experiment.rows:
        table.add_row(*_format_row(row)[:num_columns])
    return table


def _format_row(row: ExperimentRow) -> list[Text]:
    cells = [
        _UNKNOWN if row.step_after_ns is None else format_ms(row.step_after_ns),
        _UNKNOWN if row.change is None else format_change(row.change),
        _UNKNOWN if row.interval is None else format_interval(row.interval),
        VERDICT_LABELS[row.verdict],
        _UNKNOWN if row.peak_bytes is None else format_memory(row.peak_bytes),
        _UNKNOWN if row.results is None else RESULT_LABELS[row.results],
    ]
    label = " +\n".join(sanitize_sentence(one.label) for one in row.variants)
    return [Text(label), *(Text(sanitize_sentence(cell)) for cell in cells)]


def _summarize(experiment: Experiment) -> str:
    ranks = f" of {format_count(experiment.num_ranks, 'rank')}" if experiment.num_ranks > 1 else ""
    return (
        f"{format_count(experiment.num_starts, 'start')}{ranks} in {format_count(experiment.num_rounds, 'round')} of "
        f"{format_count(experiment.num_steps, 'step')} each, {experiment.duration_s:.0f} s"
        f"{_describe_noise(experiment)}."
    )


def _describe_noise(experiment: Experiment) -> str:
    if experiment.noise is None:
        return ""
    return f"; two unmodified starts of one round differ by about {100 * math.sqrt(2) * experiment.noise:.1f} %"


def _describe_reasons(rows: Iterable[ExperimentRow], *, with_memory: bool) -> Iterable[str]:
    for row in rows:
        memory = f"peak memory {format_memory(row.peak_bytes)}" if with_memory and row.peak_bytes else ""
        parts = [row.reason, memory, f"results: {row.results_reason}" if row.results_reason else ""]
        yield f"{row.label}: {'; '.join(filter(None, parts))}."


def _find_gains(rows: Iterable[ExperimentRow]) -> list[ExperimentRow]:
    """Return the row with the largest gain, which comes first, and the best rows of single variants that are not in it.

    A pair may be slower than its best variant alone, so codes of several rows are no recommendation together.
    """
    gains, names = list[ExperimentRow](), set[str]()
    for row in rows:
        if row.verdict == "faster" and (not gains or (len(row.variants) == 1 and row.variants[0].name not in names)):
            gains.append(row)
            names.update(one.name for one in row.variants)
    return gains


def _render_code(title: str, rows: Sequence[ExperimentRow]) -> list[Text]:
    lines = [line for row in rows for line in row.code.splitlines()]
    return [Text(), Text(title), *(Text(f"  {line}", overflow="fold") for line in lines)] if lines else []


def render_variants(rows: Sequence[tuple[str, str, str, str]]) -> RenderableType:
    """Return the list of variants: name, code, whether results stay bitwise equal, and when they are tried."""
    table = Table(box=None, pad_edge=False)
    for name in ("variant", "code", "results", "tried"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
