"""Instants and counters of a window: allocations, and records of sources."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import polars as pl

from kinetoscope.analysis.windows.columns import drop_null_rows, filter_rows, null_unless, select_columns
from kinetoscope.formats.trace_names import NOTES
from kinetoscope.frames.trace import Trace

_IS_SOURCE_INSTANT = pl.col("category").is_in(list(NOTES))
_MEMORY = "[memory]"
_CPU_DEVICE_TYPE = 0  # c10::DeviceType


@dataclass(frozen=True)
class Instants:
    """The instants and counters of a window. ``trace_with_warmup`` also has those of warm-up batches."""

    trace: Trace
    trace_with_warmup: Trace

    @cached_property
    def allocations(self) -> pl.DataFrame:
        """The allocations and releases of memory; of the CPU's memory, only those of the window are in ``total``."""
        columns = ("ts", "track", "bytes", "address", "total_allocated", "device", "device_type")
        found = self.trace.instants.filter(pl.col("name") == _MEMORY).select(columns).collect()
        found = drop_null_rows(found, "ts", "bytes")
        device = null_unless(found["device"], found["device_type"] != _CPU_DEVICE_TYPE)
        found = select_columns(found, "ts", "track", "bytes", "address", total="total_allocated").hstack([device])
        return _rebase_cpu_totals(found if found["ts"].is_sorted() else found.sort("ts", maintain_order=True))

    @cached_property
    def of_sources(self) -> pl.DataFrame:
        """The instants of sources, as `schemas.SOURCE_INSTANTS`, in order, including those of warm-up batches."""
        found = (
            self.trace_with_warmup.instants.filter(_IS_SOURCE_INSTANT)
            .select("ts", "track", "category", "name", "args")
            .collect()
        )
        return found.with_columns(pl.col("args").cast(pl.String)).sort("ts", maintain_order=True)

    @cached_property
    def counters(self) -> pl.DataFrame:
        """The trace's counters, one row per value."""
        return self.trace.counters.collect()

    def args_of(self, category: str) -> list[dict[str, Any]]:
        """Return the args of the instants that a source recorded, in order, without malformed ones."""
        return decode_args(self.of_category(category))

    def of_category(self, category: str) -> pl.DataFrame:
        """Return the instants that a source recorded, in order."""
        return (
            filter_rows(self.of_sources, self.of_sources["category"] == category)
            if len(self.of_sources)
            else self.of_sources
        )


def decode_args(notes: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the args of instants, without malformed ones."""
    texts = (text for text in notes["args"] if text is not None)
    return [args for text in texts if isinstance(args := _decode_json(text), dict)]


def _decode_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _rebase_cpu_totals(allocations: pl.DataFrame) -> pl.DataFrame:
    """Subtract memory from before the window from the totals of the CPU's memory.

    Torch's totals run on from window to window, and still contain what was released in between.
    """
    if not allocations["device"].has_nulls():
        return allocations
    is_host = pl.col("device").is_null()
    host = allocations.filter(is_host).drop_nulls("total")
    if not len(host):
        return allocations
    held_before = pl.col("bytes").filter((pl.col("bytes") < 0) & pl.col("address").is_first_distinct()).sum()
    least = pl.col("bytes").cum_sum().min()  # where addresses are unknown
    known = host.select(-pl.min_horizontal(held_before, least)).item()
    not_seen = host["total"][0] - host["bytes"][0] - known
    return allocations.with_columns(pl.col("total") - pl.when(is_host).then(not_seen).otherwise(0))
