"""Stalls of the loop in one window of one rank, and the samples of stacks that were taken in them."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.cpu.python_time import ORDINARY_PYTHON_NS
from kinetoscope.analysis.cpu.thread_states import is_waiting
from kinetoscope.analysis.windows.columns import add_constant_column, constant_column, filter_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion, count_up_to, latest_end_before
from kinetoscope.analysis.windows.kernel_names import COPY_TO_DEVICE
from kinetoscope.analysis.windows.nesting import find_enclosing, find_outermost
from kinetoscope.analysis.windows.schemas import SAMPLED, STALLS
from kinetoscope.analysis.windows.source_lines import source_lines
from kinetoscope.analysis.windows.window import RankWindow

_MATMULS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution")
_ITEM = "aten::item"
_DOUBLE = '"double"'
_KEYS = ("name", "line", "library", "guard", "step")
_MAX_PAUSES = 50
"""Rows that are kept on pauses of Python, the longest."""

Spans = Mapping[str, pl.DataFrame]
"""Spans by kind of stall: ``begin``, ``end``, ``track``, ``name``, and the ``line``, ``library`` and ``guard`` that
some have themselves."""


def find_items(window: RankWindow) -> pl.DataFrame:
    """Return the loop's calls of ``.item()`` that no other operator made."""
    if not len(calls := window.cpu.operators_named(_ITEM)):
        return calls
    operators = window.loop_operators.filter(pl.col("name").cast(pl.String).str.starts_with("aten::"))
    return find_outermost(operators).filter(pl.col("name").cast(pl.String) == _ITEM)


def find_stall_spans(window: RankWindow, loop: TrainingLoop, items: pl.DataFrame) -> Spans:
    """Return the spans of each kind of stall."""
    columns = ("begin", "end", "track", "name", "line", "library", "guard")
    found = {
        "gc": loop.interruptions.program_gc_runs,
        "compile": loop.interruptions.compilations,
        "profiler": window.on_loop_thread(loop.interruptions.profiling),
        "data": loop.loader.fetches,
        "double": _find_float64_matmuls(window),
        "python": _name_pauses(window, loop.python_time.avoidable_python),
        "blocked": _name_pauses(window, loop.python_time.python_by_state.blocked),
        "loop": _name_pauses(window, loop.python_time.running_without_operators),
        "small": loop.python_time.small_operators,
        "item": _find_item_runs(window, items),
    } | _find_blocking_calls(window, loop)
    found |= {
        part: spans.with_columns(begin=pl.col("end") - pl.col("idle_ns")) for part, spans in loop.cpu_operators.items()
    }
    return {kind: spans[[name for name in columns if name in spans.columns]] for kind, spans in found.items()}


def sum_stalls(window: RankWindow, spans: Spans) -> pl.DataFrame:
    """Return the stalls: a row per kind, name, line, library, guard and step, with ``num_calls`` and ``total_ns``."""
    found = [_sum_kind(window, kind, of_kind) for kind, of_kind in spans.items() if len(of_kind)]
    stalls = pl.concat([pl.DataFrame(schema=STALLS), *found])
    if len(stalls) <= _MAX_PAUSES or max(map(len, spans.values())) <= _MAX_PAUSES:
        return stalls
    is_long = pl.col("total_ns").rank("ordinal", descending=True).over("kind") <= _MAX_PAUSES
    return stalls.filter(~pl.col("kind").is_in(["python", "blocked"]) | is_long)


def _sum_kind(window: RankWindow, kind: str, spans: pl.DataFrame) -> pl.DataFrame:
    if kind != "profiler":  # after the last step the recording itself is stopped
        last: Any = window.steps["end"].max()
        spans = filter_rows(spans, spans["begin"] < last) if last is not None else spans.clear()
    spans = spans.hstack([_steps_of(window, spans["begin"])])
    if len(window.cpu.python_functions):
        lines = source_lines(window, spans.select("track", ts="begin"))
        known = [pl.col("line")] if "line" in spans.columns else []
        spans = spans.with_columns(line=pl.coalesce(*known, lines))
    total = (pl.col("end") - pl.col("begin")).sum()
    stalls = spans.group_by([name for name in _KEYS if name in spans.columns], maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("num_calls"), total.alias("total_ns")
    )
    texts = [(pl.col(key) if key in spans.columns else pl.lit(None)).cast(pl.String).alias(key) for key in _KEYS[:-1]]
    return stalls.select(pl.lit(kind).alias("kind"), *texts, "step", "num_calls", "total_ns")


def sum_samples(window: RankWindow, loop: TrainingLoop, spans: Spans) -> pl.DataFrame:
    """Return the samples that were taken in stalls, by kind, line, call, state and step.

    Spans that have a line themselves need no samples. Where workers build the batches, the loop's own lines do not
    explain its waits for them.
    """
    of_loop, workers = loop.python_time.samples
    found = [of_loop.clear().with_columns(kind=pl.lit(""))]
    if not len(of_loop) and not len(workers):
        return pl.DataFrame(schema=SAMPLED)
    stalls_by_kind = {
        kind: stalls.filter(pl.col("line").is_null()) if "line" in stalls.columns else stalls
        for kind, stalls in spans.items()
    }
    whole = {
        "python": loop.python_time.avoidable_python,
        "loop": loop.python_time.running_without_operators,
        "blocked": loop.python_time.python_by_state.blocked,
    }
    stalls_by_kind |= {kind: pieces.select(begin="since", end="until") for kind, pieces in whole.items()}
    for kind, stalls in stalls_by_kind.items():
        if not len(stalls):
            continue
        is_then = IntervalUnion(stalls).covers(of_loop["at"])
        samples = workers if kind == "data" and (loop.loader.num_workers or len(workers)) else of_loop.filter(is_then)
        if kind in ("python", "loop"):
            samples = samples.filter(~is_waiting().fill_null(False))
        elif kind == "blocked":
            samples = samples.filter(is_waiting())
        found.append(samples.with_columns(kind=pl.lit(kind)))
    samples = pl.concat(found)
    samples = samples.with_columns(_steps_of(window, samples["at"]).alias("step")).drop_nulls("step")
    totals = pl.len().alias("num_samples"), pl.col("lasts_ns").sum().alias("total_ns")
    return samples.group_by("kind", "line", "call", "state", "step", maintain_order=True).agg(*totals)


def _steps_of(window: RankWindow, times: pl.Series) -> pl.Series:
    """Return the step of each time, or the next one; null after the last."""
    steps = window.steps["step"]
    return pl.concat([steps, constant_column("step", None, steps.dtype, 1)])[count_up_to(window.steps["end"], times)]


def _find_blocking_calls(window: RankWindow, loop: TrainingLoop) -> dict[str, pl.DataFrame]:
    """Return calls that wait, by kind, with the name of the operator around each.

    ``data_sync`` are those whose data the CPU needs, ``copy`` those of copies to the device, ``sync`` all others.
    """
    calls = loop.sync_calls
    operators = find_enclosing(window.cpu.operators[["begin", "end", "track", "name"]], calls["track"], calls["begin"])
    calls = calls.with_columns(name=pl.coalesce(operators["name"], "name"))
    found = {"data_sync": filter_rows(calls, loop.are_for_data)}
    calls = filter_rows(calls, ~loop.are_for_data)
    copies = window.device["correlation"].filter(window.device["name"].str.contains(COPY_TO_DEVICE))
    if not len(copies):
        return found | {"copy": calls.clear(), "sync": filter_rows(calls, calls["correlation"].is_not_null())}
    is_copy = calls["correlation"].is_in(copies.implode()) & (calls["correlation"] > 0)
    return found | {"copy": filter_rows(calls, is_copy), "sync": filter_rows(calls, ~is_copy)}


def _find_item_runs(window: RankWindow, items: pl.DataFrame) -> pl.DataFrame:
    """Return intervals in which the loop reads one value after the other, each from the end of the operator before."""
    before = window.loop_operators.select("begin", before=latest_end_before()).unique("begin", keep="first")
    runs = items.select("begin", "end", "name", "track").join(before, on="begin", how="left")
    since = pl.max_horizontal("before", pl.col("begin") - ORDINARY_PYTHON_NS)
    return runs.select(pl.min_horizontal(since, "begin").alias("begin"), "end", "name", "track")


def _name_pauses(window: RankWindow, intervals: pl.DataFrame) -> pl.DataFrame:
    """Return intervals of the loop's thread without an operator, under the name of the operator after each."""
    return add_constant_column(intervals, "track", window.loop_track, pl.UInt32)


def _find_float64_matmuls(window: RankWindow) -> pl.DataFrame:
    """Return matmuls of 64 bits on the CPU."""
    if len(window.device):
        return window.cpu.operators.clear()
    products = window.cpu.operators_named(*_MATMULS)
    is_double = pl.col("types").cast(pl.String).str.contains(_DOUBLE, literal=True).fill_null(False)
    return products.filter(is_double)
