"""analysis: how much memory was allocated, and what of it grows from step to step."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kinetoscope.analysis.window import RankWindow, place_in
from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl

_MEMORY = "[memory]"
_CPU = 0


@dataclass(frozen=True, kw_only=True)
class MemoryRow:
    """The memory of one device of one rank; a rank's own memory has no device. Sizes are bytes.

    ``growth_bytes_per_step`` is of what is alive at the same place of each step, None where steps are too few to tell.
    ``by_category`` and ``holders``, who allocated what grows, are pairs of a name and bytes.
    """

    rank: int | None
    device: int | None
    peak_bytes: int
    peak_step: int | None
    by_category: tuple[tuple[str, int], ...] = ()
    growth_bytes_per_step: int | None = None
    holders: tuple[tuple[str, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self) | {"by_category": dict(self.by_category), "holders": dict(self.holders)}


def allocations(window: RankWindow) -> "pl.DataFrame":
    """Every allocation and release, in the order of time."""
    pl = import_polars()
    instants = window.trace.instants.filter(pl.col("name") == _MEMORY)
    return (
        instants.select("ts", "bytes", "address", "total_allocated", "device_type", "device", "track")
        .sort("ts")
        .collect()
    )


def peaks(window: RankWindow) -> "pl.Series | None":
    """The most that was allocated during each step, bytes: on the device where the trace has that, else on the host."""
    pl = import_polars()
    events = allocations(window).drop_nulls(("ts", "total_allocated"))
    on_device = events.filter(pl.col("device_type") != _CPU)
    events = on_device if len(on_device) else events
    if not len(events):
        return None
    steps = window.steps.select("begin", "end").with_row_index("place")
    before = steps.join_asof(
        events.select("ts", "total_allocated"), left_on="begin", right_on="ts", strategy="backward"
    )
    within = (
        events.with_columns(place=place_in(window.steps, events["ts"]))
        .group_by("place")
        .agg(most=pl.col("total_allocated").max())
    )
    return before.join(within, on="place", how="left", maintain_order="left").select(
        pl.max_horizontal("total_allocated", "most")
    )["total_allocated"]
