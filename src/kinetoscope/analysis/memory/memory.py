"""Memory of each device and rank: peak, by category, and growth per step."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.memory.memory_categories import BEFORE, CATEGORIES, classify_allocations, lifetimes
from kinetoscope.analysis.memory.memory_growth import MemoryGrowth, MemoryHolder
from kinetoscope.analysis.memory.memory_owners import MemoryOwner, memory_owners
from kinetoscope.analysis.modules.calls import ModuleCalls
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.windows.columns import drop_null_rows, filter_rows
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.window import RankWindow


@dataclass(frozen=True, kw_only=True)
class MemoryRow(PlainData):
    """The memory of one device of one rank; that of its CPU has no device. Sizes are bytes.

    ``peak_bytes`` is the most that was allocated while torch recorded, in any window. Of the CPU's memory, torch
    records what is allocated and freed in a window: memory from before it that is not freed in it does not count.
    ``growth_bytes_per_step`` is of what is live at the end of each step, counted from after the first optimizer step;
    None where fewer than `MIN_STEPS` steps follow each other, or where addresses are missing, as in old traces.
    ``holders`` are the operators that allocated the growing memory, the most first, and ``growth_module`` is the module
    whose calls allocated at least half of it, None if there is none, or modules were not recorded. ``owners`` are
    variables and attributes that reference it, where `GrowingMemory` searched for them, else None. ``by_category``
    shares ``peak_bytes`` out to what allocated it (`CATEGORIES`), without those that have none; it is empty where
    addresses are missing. A trace does not show to which tensor memory belongs: `kinetoscope.torch` exports a timeline
    of that.
    """

    _pairs = ("by_category",)

    rank: int | None
    device: int | None
    peak_bytes: int
    peak_step: int | None
    by_category: tuple[tuple[str, int], ...] = ()
    growth_bytes_per_step: int | None = None
    holders: tuple[MemoryHolder, ...] = ()
    owners: tuple[MemoryOwner, ...] | None = None
    growth_module: str | None = None


def memory_rows(window: RankWindow, loop: TrainingLoop, modules: ModuleCalls | None) -> list[MemoryRow]:
    """Return a row per device of one window's rank.

    Args:
        window: the window.
        loop: its training loop.
        modules: its calls of modules, if they were recorded.
    """
    events = drop_null_rows(window.instants.allocations, "total")
    if not len(events):
        return []
    growth = MemoryGrowth(window, loop, modules)
    rows = [_row(window, loop, growth, of_device) for of_device in events.partition_by("device", maintain_order=True)]
    owners = memory_owners(window) if any(row.growth_bytes_per_step for row in rows) else None
    if owners is None:
        return rows
    return [replace(row, owners=tuple(one for one in owners if one.device == row.device)) for row in rows]


def _row(window: RankWindow, loop: TrainingLoop, growth: MemoryGrowth, events: pl.DataFrame) -> MemoryRow:
    """Return the row of one device, from its ``events``."""
    peak_row = events["total"].arg_max() or 0
    peak_bytes, device = int(events["total"][peak_row]), events["device"][0]
    index = interval_index(window.steps, events["ts"][peak_row : peak_row + 1])[0] if len(window.steps) else None
    lives = lifetimes(events)
    growing = growth.find(events, lives)
    is_known = not events["address"].has_nulls()
    return MemoryRow(
        rank=window.rank,
        device=device,
        peak_bytes=peak_bytes,
        peak_step=None if index is None else window.steps["step"][index],
        by_category=_by_category(window, loop, _live_allocations_at(lives, peak_row), peak_bytes) if is_known else (),
        growth_bytes_per_step=None if growing is None else sum(holder.bytes_per_step for holder in growing.holders),
        holders=() if growing is None else growing.holders,
        growth_module=None if growing is None else growing.module,
    )


def _live_allocations_at(lives: pl.DataFrame, row: int) -> pl.DataFrame:
    """Return the allocations before an event of a device that were not freed by then."""
    lives = filter_rows(lives, (lives["bytes"] > 0) & (lives["row"] <= row))
    return lives.filter((lives["end_row"] > row).fill_null(True))


def _by_category(
    window: RankWindow, loop: TrainingLoop, alive: pl.DataFrame, total_bytes: int
) -> tuple[tuple[str, int], ...]:
    """Return the bytes of live allocations by category.

    The rest of the total was allocated before the recording. The result is empty where there is more than the total,
    since some of it was freed without a record.
    """
    spans_in_category = (
        alive.with_columns(classify_allocations(window, loop, alive)).group_by("category").agg(pl.col("bytes").sum())
    )
    sums = dict(spans_in_category.iter_rows())
    sums[BEFORE] = total_bytes - sum(sums.values())
    if sums[BEFORE] < 0:
        return ()
    return tuple((category, sums[category]) for category in CATEGORIES if sums.get(category))


def combine_memory_rows(rows: Iterable[MemoryRow]) -> list[MemoryRow]:
    """Combine the rows of all windows, in the order of time, into one for each rank and device.

    The growth is that of the last window with a known one.
    """
    joined: dict[tuple[int | None, int | None], MemoryRow] = {}
    for row in rows:
        key = (row.rank, row.device)
        joined[key] = _merge_rows(joined[key], row) if key in joined else row
    return sorted(joined.values(), key=lambda row: (row.rank is None, row.rank or 0, row.device is None, row.device))


def _merge_rows(one: MemoryRow, later: MemoryRow) -> MemoryRow:
    highest = max(one, later, key=lambda row: row.peak_bytes)
    latest = one if later.growth_bytes_per_step is None else later
    return replace(
        highest,
        growth_bytes_per_step=latest.growth_bytes_per_step,
        holders=latest.holders,
        owners=latest.owners,
        growth_module=latest.growth_module,
    )


def peak_memory_by_step(window: RankWindow) -> pl.Series | None:
    """Return the peak allocated bytes during each step: on the device where the trace has that, else on the CPU."""
    events = drop_null_rows(window.instants.allocations, "total")
    if not len(events):
        return None
    on_device = drop_null_rows(events, "device")
    events = on_device if len(on_device) else events
    steps = window.steps[["begin", "end"]].with_row_index("index")
    before = steps.join_asof(events[["ts", "total"]], left_on="begin", right_on="ts", strategy="backward")
    within = (
        events.hstack([interval_index(window.steps, events["ts"])]).group_by("index").agg(most=pl.col("total").max())
    )
    return before.join(within, on="index", how="left", maintain_order="left").select(
        pl.max_horizontal("total", "most")
    )["total"]
