"""Results of `kinetoscope try`, on a terminal and as sentences beside findings."""

import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.core.text.wording import format_count, format_memory, format_ms, sanitize_sentence
from kinetoscope.formats.experiments import Experiment, ExperimentRow
from kinetoscope.report.labels import RESULT_LABELS, VERDICT_LABELS, format_change, format_interval

_UNKNOWN = "\N{EN DASH}"
_COLUMNS = {"": "left", "step ms": "right", "change": "right", "95 % CI": "right", "verdict": "left", "memory": "right"}
_COLUMNS |= {"results": "left"}


def render_experiment(experiment: Experiment) -> RenderableType:
    """Return a table with a row per variant, and below it the reasons and the code to write."""
    table = Table(box=None, pad_edge=False)
    for name, justify in _COLUMNS.items():
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=name == "95 % CI")
    if experiment.step_ns is not None:
        peaks = [row.peak_before_bytes for row in experiment.rows if row.peak_before_bytes]
        peak = format_memory(peaks[0]) if peaks else _UNKNOWN
        table.add_row("unmodified", format_ms(experiment.step_ns), "", "", "", peak, "")
    for row in experiment.rows:
        table.add_row(*_format_row(row))
    parts: list[RenderableType] = [table, Text(_summarize(experiment))]
    parts += [Text(sanitize_sentence(line)) for line in (*_describe_reasons(experiment.rows), *experiment.notes)]
    if codes := list(_list_code(experiment.rows)):
        parts += [Text(), Text("To make a gain permanent:"), *(Text(f"  {line}", overflow="fold") for line in codes)]
    return Group(*parts)


def _format_row(row: ExperimentRow) -> list[Text]:
    cells = [
        row.label,
        _UNKNOWN if row.step_after_ns is None else format_ms(row.step_after_ns),
        _UNKNOWN if row.change is None else format_change(row.change),
        _UNKNOWN if row.interval is None else format_interval(row.interval),
        VERDICT_LABELS[row.verdict],
        _UNKNOWN if row.peak_bytes is None else format_memory(row.peak_bytes),
        _UNKNOWN if row.results is None else RESULT_LABELS[row.results],
    ]
    return [Text(sanitize_sentence(cell)) for cell in cells]


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
    return f"; two starts of the unmodified program differ by about {100 * math.sqrt(2) * experiment.noise:.1f} %"


def _describe_reasons(rows: Iterable[ExperimentRow]) -> Iterable[str]:
    for row in rows:
        parts = [row.reason, f"results: {row.results_reason}" if row.results_reason else ""]
        yield f"{row.label}: {'; '.join(filter(None, parts))}."


def _list_code(rows: Iterable[ExperimentRow]) -> Iterable[str]:
    """Yield the code of each variant that gains, with its best value: rows come with the largest gain first."""
    faster = [row for row in rows if row.verdict == "faster" and len(row.variants) == 1]
    best = {row.variants[0].name: row for row in reversed(faster)}
    yield from (row.code for row in faster if best[row.variants[0].name] is row)


def render_variants(rows: Sequence[tuple[str, str, bool]]) -> RenderableType:
    """Return the list of variants: name, code, and whether they are tried on request only."""
    table = Table(box=None, pad_edge=False)
    for name in ("variant", "code", "tried"):
        table.add_column(name, overflow="fold")
    for name, code, on_request in rows:
        table.add_row(Text(name), Text(code), Text("if named by --fix" if on_request else "if it applies"))
    return table
