"""Time of the calls of each operator, kernel and module in each step, for the intervals of `compare`."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from kinetoscope.analysis.modules.calls import ModuleCalls
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.windows.columns import add_constant_column, build_frame, drop_null_rows, select_columns
from kinetoscope.analysis.windows.intervals import count_up_to
from kinetoscope.analysis.windows.nesting import find_enclosing
from kinetoscope.analysis.windows.span_names import MODULE
from kinetoscope.analysis.windows.window import RankWindow

_MIN_SHARE_OF_NAME, _MIN_SHARE_OF_SHAPE = 0.001, 0.0001
"""Names with a smaller share of a window's time, and shapes and modules with less than the second, are left out of
summaries."""

_KEY = ("kind", "name", "shapes", "module")
_NOTHING = pl.lit(None, dtype=pl.String)


@dataclass(frozen=True, kw_only=True)
class StepTimes(PlainData):
    """The time of all calls with one name in each step, on the average rank: nanoseconds, in the order of steps.

    ``kind`` is ``operator`` (self time on the CPU), ``operator on device`` (kernels that it launched itself),
    ``kernel``, or ``module`` and ``module on device`` (the same of a torch module, forward and backward). ``module`` is
    the module that called an operator. It and ``shapes`` are None if not recorded.
    """

    kind: str
    name: str
    shapes: str | None
    module: str | None
    times_ns: tuple[int, ...]


def times_by_step(
    window: RankWindow, operators: pl.DataFrame, modules: ModuleCalls | None, whole_ns: float
) -> pl.DataFrame:
    """Return a row per name of an operator, kernel or module, with the time of its calls in each step.

    A call belongs to the last step that began before it, a device event to that of its launch.

    Args:
        window: a window of one rank.
        operators: its calls of operators, from `operator_calls`.
        modules: its calls of modules, if they were recorded.
        whole_ns: time of its steps.

    Returns:
        A frame with ``kind``, ``name``, ``shapes``, ``module``, and the lists ``step`` and ``time`` (ns).
    """
    calls = _add_step(window, operators[["name", "shapes", "track", "begin", "self_ns", "self_device_ns"]])
    calls = calls.with_columns(_find_modules(window, calls))
    lengths = (window.device["end"] - window.device["begin"]).alias("time")
    device = select_columns(window.device, "name", begin="launch_begin").hstack([lengths])
    device = add_constant_column(add_constant_column(device, "shapes", None, pl.String), "module", None, pl.String)
    parts = [
        _sum_by_step(select_columns(calls, *_KEY[1:], "step", time="self_ns"), "operator", whole_ns),
        _sum_by_step(select_columns(calls, *_KEY[1:], "step", time="self_device_ns"), "operator on device", whole_ns),
        _sum_by_step(_add_step(window, drop_null_rows(device, "begin")), "kernel", whole_ns),
    ]
    return pl.concat([*parts, *(_times_of_modules(modules, whole_ns) if modules is not None else [])])


def _times_of_modules(modules: ModuleCalls, whole_ns: float) -> list[pl.DataFrame]:
    """Return the times of modules without the modules inside; those of devices without communication."""
    window, names = modules.window, modules.calls["name"].cast(pl.String)
    device = window.device.filter(pl.col("kind") != "communication")
    parts = modules.find_parts(device["launch_track"], device["launch_begin"])
    lengths = (device["end"] - device["begin"]).alias("time")
    calls = {
        "module": modules.parts.select("begin", "call", time="self_ns"),
        "module on device": build_frame(device["launch_begin"].alias("begin"), parts["call"], lengths),
    }
    sums = []
    for kind, times in calls.items():
        known = drop_null_rows(times, "begin", "call")
        named = known.select("begin", "time", name=names[known["call"]], shapes=_NOTHING, module=_NOTHING)
        sums.append(_sum_by_step(_add_step(window, named), kind, whole_ns, _MIN_SHARE_OF_SHAPE))
    return sums


def _find_modules(window: RankWindow, calls: pl.DataFrame) -> pl.Expr | pl.Series:
    """Return the ``module`` of each call."""
    modules = window.cpu.named(MODULE)[["name", "track", "begin", "end"]]
    if not len(modules):
        return pl.lit(None, dtype=pl.String).alias("module")
    found = find_enclosing(modules, calls["track"], calls["begin"])["name"]
    return found.str.strip_prefix("nn.Module: ").alias("module")


def _add_step(window: RankWindow, calls: pl.DataFrame) -> pl.DataFrame:
    """Add the number of the ``step`` to calls that belong to one, in the order of ``begin``."""
    steps = window.steps
    calls = calls if calls["begin"].is_sorted() else calls.sort("begin")
    outer = pl.concat([steps["begin"].head(1), steps["end"].tail(1)])
    first, behind = calls["begin"].search_sorted(outer, side="left") if len(steps) else (0, 0)
    calls = calls.slice(first, behind - first)
    return calls.hstack([steps["step"][count_up_to(steps["begin"], calls["begin"]) - 1].alias("step")])


def _sum_by_step(
    calls: pl.DataFrame, kind: str, whole_ns: float, min_share: float = _MIN_SHARE_OF_NAME
) -> pl.DataFrame:
    """Sum up the time of calls by name and step, without names below a share of the whole time."""
    calls = drop_null_rows(calls, "time")
    if not len(calls):
        lists = pl.List(pl.Int64)
        return pl.DataFrame(schema={**dict.fromkeys(_KEY, pl.String), "step": lists, "time": lists})
    known = [name for name in _KEY[1:] if calls[name].count()]  # often no shapes or modules were recorded
    sums = calls.group_by(*known, "step").agg(pl.col("time").sum())
    sums = sums.group_by(known, maintain_order=True).agg("step", "time", all_ns=pl.col("time").sum())
    is_long = pl.col("all_ns").sum().over("name") >= max(1, min_share * whole_ns)
    sums = sums.filter(is_long & (pl.col("all_ns") >= _MIN_SHARE_OF_SHAPE * whole_ns))
    keys = [(pl.col(name) if name in known else pl.lit(None)).cast(pl.String).alias(name) for name in _KEY[1:]]
    return sums.select(pl.lit(kind).alias("kind"), *keys, "step", "time")


def combine_step_times(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Combine the times in several windows as those in one."""
    if len(parts) == 1:
        return parts[0]
    sums = pl.concat(parts).explode("step", "time").group_by(*_KEY, "step").agg(pl.col("time").sum())
    return sums.group_by(_KEY).agg("step", "time")


def step_times(sums: pl.DataFrame, ranks_by_step: dict[int, int]) -> list[StepTimes]:
    """Return the times on the average rank, the longest first.

    Args:
        sums: times of all ranks, from `combine_step_times`.
        ranks_by_step: number of ranks that recorded each step, in the order of steps.
    """
    schema = {"step": pl.Int64, "ranks": pl.Int64}
    steps = pl.DataFrame(list(ranks_by_step.items()), schema=schema, orient="row").with_row_index("index")
    sums = sums.explode("step", "time").join(steps, on="step")
    means = sums.with_columns((pl.col("time") / pl.col("ranks")).round().cast(pl.Int64))
    found = [
        StepTimes(**dict(zip(_KEY, key, strict=True)), times_ns=_fill_steps(indices, times, len(steps)))
        for *key, indices, times in means.group_by(_KEY).agg("index", "time").iter_rows()
    ]
    return sorted(found, key=lambda row: (row.kind, -sum(row.times_ns), row.name, row.shapes or "", row.module or ""))


def _fill_steps(indices: Sequence[int], times_ns: Sequence[int], num_steps: int) -> tuple[int, ...]:
    """Return the times at their indices, and 0 elsewhere."""
    values = [0] * num_steps
    for index, time_ns in zip(indices, times_ns, strict=True):
        values[index] = time_ns
    return tuple(values)
