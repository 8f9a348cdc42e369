"""report: counters, as the timeline draws them below its tracks."""

from typing import Any

import polars as pl

from kinetoscope.pages.page_data import Counter
from kinetoscope.report.page.columns import differences
from kinetoscope.report.page.thinning import highest_and_lowest

_UNITS = {
    "percent": "%",
    "ns": "ns",
    "gib": "GiB",
    "bytes": "B",
    "mib": "MiB",
    "ms": "ms",
    "s": "s",
    "w": "W",
    "c": "°C",
}
_DIGITS = 1e6
MOST_POINTS = 4000
"""Of a counter with more values, that many are shown."""


def build_counters(values: pl.DataFrame, origin_ns: int) -> list[Counter]:
    """Counters of values (``rank``, ``name``, ``series``, ``ts``, ``value``)."""
    values = values.filter(pl.col("value").is_finite()).sort("rank", "name", "series", "ts", nulls_last=True)
    return [
        _counter(of_one, origin_ns) for of_one in values.partition_by("rank", "name", "series", maintain_order=True)
    ]


def _counter(values: pl.DataFrame, origin_ns: int) -> Counter:
    rank, name, series = values.select("rank", "name", "series").row(0)
    values = values[highest_and_lowest(values["value"], MOST_POINTS)]
    most: Any = values["value"].abs().max()
    is_whole = (values["value"] == values["value"].round()).all() and most < 2**53
    scale = 1.0 if is_whole or not most else most / _DIGITS
    return Counter(
        rank=rank,
        name=name if series in ("", name) else f"{name} {_without_unit(series)}".rstrip(),
        unit=_unit(series),
        scale=scale,
        times=differences(values["ts"] - origin_ns),
        values=differences((values["value"] / scale).round().cast(pl.Int64)),
    )


def _unit(series: str) -> str:
    return _UNITS.get(series.rpartition("_")[2].lower(), "")


def _without_unit(series: str) -> str:
    return series.rpartition("_")[0] if _unit(series) else series
