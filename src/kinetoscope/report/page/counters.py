"""Counters below the tracks of the timeline."""

from typing import Any

import polars as pl

from kinetoscope.pages.page_data import Counter
from kinetoscope.report.page.columns import encode_deltas
from kinetoscope.report.page.downsampling import select_extremes

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
_RESOLUTION = 1e6
MAX_POINTS = 4000
"""Limit of the values of a counter."""


def build_counters(values: pl.DataFrame, origin_ns: int) -> list[Counter]:
    """Return counters from values by ``rank``, ``name``, ``series``, ``ts`` and ``value``."""
    values = values.filter(pl.col("value").is_finite()).sort("rank", "name", "series", "ts", nulls_last=True)
    return [
        _build_counter(of_one, origin_ns)
        for of_one in values.partition_by("rank", "name", "series", maintain_order=True)
    ]


def _build_counter(values: pl.DataFrame, origin_ns: int) -> Counter:
    rank, name, series = values.select("rank", "name", "series").row(0)
    values = values[select_extremes(values["value"], MAX_POINTS)]
    max_value: Any = values["value"].abs().max()
    is_whole = (values["value"] == values["value"].round()).all() and max_value < 2**53
    scale = 1.0 if is_whole or not max_value else max_value / _RESOLUTION
    return Counter(
        rank=rank,
        name=name if series in ("", name) else f"{name} {_strip_unit(series)}".rstrip(),
        unit=_find_unit(series),
        scale=scale,
        times=encode_deltas(values["ts"] - origin_ns),
        values=encode_deltas((values["value"] / scale).round().cast(pl.Int64)),
    )


def _find_unit(series: str) -> str:
    return _UNITS.get(series.rpartition("_")[2].lower(), "")


def _strip_unit(series: str) -> str:
    return series.rpartition("_")[0] if _find_unit(series) else series
