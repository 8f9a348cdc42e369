"""The module with at least half of a cost: of the time of some spans, or of amounts at moments such as launches."""

import polars as pl

from kinetoscope.analysis.modules.calls import ModuleCalls, find_self_overlap_ns
from kinetoscope.analysis.windows.columns import drop_null_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.schemas import MODULE_COSTS


def share_spans(calls: ModuleCalls, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the time of spans of threads (``begin``, ``end``, ``track``) by module, as `share_moments` does."""
    threads = [(IntervalUnion(of_track), of_track["track"][0]) for of_track in spans.partition_by("track")]
    parts = calls.parts
    own = [parts.select("call", amount=find_self_overlap_ns(parts, *thread)) for thread in threads]
    outside_ns = sum(time.total_ns for time, _ in threads) - sum(int(one["amount"].sum()) for one in own)
    outside = pl.DataFrame({"call": [None], "amount": [outside_ns]}, schema={"call": pl.UInt32, "amount": pl.Int64})
    return _sum_up(calls, pl.concat([*own, outside]).with_columns(name=pl.lit(None, pl.String)))


def share_moments(calls: ModuleCalls, moments: pl.DataFrame) -> pl.DataFrame:
    """Return amounts at moments of threads by ``module``, as `schemas.MODULE_COSTS`.

    The row of a name without a module is the whole of its amounts.

    Args:
        calls: the calls of modules.
        moments: ``track`` and ``ts`` of each, its ``amount``, and the ``name`` that it is counted for.
    """
    parts = calls.find_parts(moments["track"], moments["ts"])
    return _sum_up(calls, moments.select("amount", "name").hstack([parts["call"]]))


def _sum_up(calls: ModuleCalls, own: pl.DataFrame) -> pl.DataFrame:
    """Return the amount of each ``name`` and module from the ``amount`` in each ``call`` itself."""
    own = own.group_by("name", "call").agg(pl.col("amount").sum().cast(pl.Int64))
    levels = calls.ancestors.group_by("call").agg(pl.len().cast(pl.Int64).alias("level"))
    levels = levels.select("level", module=calls.calls["name"].cast(pl.String)[levels["call"]])
    levels = levels.group_by("module").agg(pl.col("level").max())
    modules = calls.ancestors.select("call", module=pl.col("name").cast(pl.String))
    sums = drop_null_rows(own, "call").join(modules, on="call").group_by("name", "module").agg(pl.col("amount").sum())
    whole = own.group_by("name").agg(pl.col("amount").sum()).with_columns(module=None, level=0)
    sums = sums.filter(pl.col("amount") > 0).join(levels, on="module")
    return pl.concat([each.select(MODULE_COSTS.names()).cast(MODULE_COSTS) for each in (whole, sums)])


def find_module(costs: pl.DataFrame) -> str | None:
    """Return the innermost module with at least half of the whole; None where there is none.

    Args:
        costs: amounts by module of one or more windows, from `share_spans` or `share_moments`.
    """
    sums = costs.group_by("module").agg(pl.col("amount").sum(), pl.col("level").max())
    whole = sums.filter(pl.col("module").is_null())["amount"].sum()
    found = sums.drop_nulls("module").filter((pl.col("amount") > 0) & (2 * pl.col("amount") >= whole))
    found = found.sort("amount", "level", "module", descending=[False, True, False])
    return found["module"][0] if len(found) else None
