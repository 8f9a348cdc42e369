"""analysis: kernels and copies by name, on all devices."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kinetoscope.analysis.operators import call_statistics
from kinetoscope.analysis.window import RankWindow
from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """All runs of one kernel, or copies of one kind, on all devices. Times are nanoseconds.

    ``kind`` is ``compute``, ``communication`` or ``copy``; ``bytes`` is what copies moved, None where that is unknown;
    ``flops`` is None where shapes do not give it.
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


def kernel_runs(window: RankWindow) -> "pl.DataFrame":
    """One row per device event: ``name``, ``kind``, ``dur`` and ``bytes``."""
    pl = import_polars()
    return window.device.select("name", "kind", "bytes", dur=pl.col("end") - pl.col("begin"))


def kernel_rows(runs: "pl.DataFrame") -> list[KernelRow]:
    """The device events of all windows by name, those that took the most time first."""
    pl = import_polars()
    moved = runs.group_by("name", "kind").agg(pl.col("bytes").sum(), known=pl.col("bytes").is_not_null().any())
    moved = moved.with_columns(pl.when("known").then("bytes")).drop("known")
    statistics = call_statistics(runs, ["name", "kind"]).with_columns(self_ns="total_ns")
    rows = statistics.join(moved, on=["name", "kind"]).sort("total_ns", "name", descending=[True, False])
    return [KernelRow(**row) for row in rows.iter_rows(named=True)]
