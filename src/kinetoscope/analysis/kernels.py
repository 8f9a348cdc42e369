"""analysis: kernels and copies by name, on all devices."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kinetoscope.analysis.call_times import add_calls, sum_calls, with_quantiles
from kinetoscope.analysis.window import RankWindow, around
from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl


_KEY = ("name", "kind")
_SUMS = ("bytes", "flops")


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """All runs of one kernel, or copies of one kind, on all devices. Times are nanoseconds.

    ``kind`` is ``compute``, ``communication`` or ``copy``; ``bytes`` is what copies moved, None where that is unknown;
    ``flops`` is the number of operations, of runs whose shapes give it, None if none do.
    """

    name: str
    kind: str
    num_calls: int
    total_ns: int
    self_ns: int
    mean_ns: float
    p50_ns: int
    p95_ns: int
    max_ns: int
    flops: int | None = None
    bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def kernel_sums(window: RankWindow) -> "pl.DataFrame":
    """The device events of one window by name, for `kernel_rows`."""
    pl = import_polars()
    operators = window.operators.filter(pl.col("name").is_in(list(_PRODUCTS)))
    launching = around(operators, window.device["launch_track"], window.device["launch_begin"])
    flops = _flops(launching["name"], launching["shapes"])
    runs = window.device.select("name", "kind", "bytes", flops, dur=pl.col("end") - pl.col("begin"))
    return sum_calls(runs, _KEY, _SUMS)


def add_kernels(sums: "Sequence[pl.DataFrame]") -> "pl.DataFrame":
    """The sums of several windows as those of one."""
    return add_calls(sums, _KEY, _SUMS)


def kernel_rows(sums: "pl.DataFrame") -> list[KernelRow]:
    """The device events, those that took the most time first."""
    rows = with_quantiles(sums).with_columns(self_ns="total_ns")
    rows = rows.sort("total_ns", "name", "kind", descending=[True, False, False])
    return [KernelRow(**row) for row in rows.iter_rows(named=True)]


_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Products of matrices, whose kernels' operations their shapes give: where the first factor is among the arguments."""


def _flops(names: "pl.Series", shapes: "pl.Series") -> "pl.Series":
    """The floating-point operations of each product: two for each pair of elements that meet; null for other rows."""
    pl = import_polars()
    rows = pl.DataFrame({"name": names, "shapes": shapes.cast(pl.String)})
    known = rows.unique().drop_nulls()
    counts = [_product_flops(name, text) for name, text in known.iter_rows()]
    known = known.with_columns(pl.Series("flops", counts, dtype=pl.Int64))
    return rows.join(known, on=["name", "shapes"], how="left", maintain_order="left")["flops"]


def _product_flops(name: str, shapes: str) -> int | None:
    try:
        first, second = msgspec.json.decode(shapes, type=list[Any])[_PRODUCTS[name] :][:2]
        return 2 * math.prod(first) * second[-1]
    except (msgspec.DecodeError, ValueError, IndexError, TypeError):
        return None
