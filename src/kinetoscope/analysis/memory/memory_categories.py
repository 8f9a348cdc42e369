"""Categories of allocations: the part of a step that allocated them, and their lifetimes.

A trace does not show to which tensor memory belongs. Lasting memory of a forward pass is mostly activations, of a
backward pass gradients, and of an optimizer its state.
"""

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.windows.columns import add_constant_column, constant_column, drop_null_rows, select_columns
from kinetoscope.analysis.windows.nesting import find_innermost, interval_index
from kinetoscope.analysis.windows.window import RankWindow

BEFORE = "before_recording"
CATEGORIES = (BEFORE, "data", "forward", "backward", "optimizer", "evaluation", "other")
"""The categories of memory. The first is for what was allocated before torch recorded, as parameters mostly are."""


def memory_allocations(window: RankWindow, loop: TrainingLoop) -> pl.DataFrame:
    """Return each allocation of a window with its category and lifetime.

    Memory from before the window is included. There is no row of a device whose events do not show which memory was
    freed, as in old traces. Where torch saw all events, the live bytes after an event add up to its ``total``.

    Returns:
        A frame with ``device``, ``category`` (of `CATEGORIES`), ``begin``, null if before the window, ``end``, null if
            not freed in it, and ``bytes``; ``row`` and ``end_row`` are the same as rows of that device's part of
            `RankWindow.allocations`.
    """
    schema = pl.Schema({"device": pl.Int64, "category": pl.String, "row": pl.UInt32, "end_row": pl.UInt32})
    schema.update(dict.fromkeys(("begin", "end", "bytes"), pl.Int64()))
    found = [pl.DataFrame(schema=schema)]
    for events in window.instants.allocations.drop_nulls("total").partition_by("device"):
        if not events["address"].has_nulls():
            lives = lifetimes(events)
            allocated = lives.filter(pl.col("bytes") > 0)
            found += [
                _allocations_before_window(events, lives),
                allocated.with_columns(classify_allocations(window, loop, allocated)),
            ]
    return pl.concat([pieces.select(*schema).cast(schema) for pieces in found])


def lifetimes(events: pl.DataFrame) -> pl.DataFrame:
    """Add the lifetimes of the allocations of one device to its events, sorted by address.

    Returns:
        The events with ``row``, that of ``events``, ``begin``, and ``end`` and ``end_row``, those of the next event of
            the same address, null for its last. ``is_first`` is true for the first event of an address.
    """
    events = drop_null_rows(events.with_row_index("row"), "address").rename({"ts": "begin"})
    events = events.sort("address", "begin", maintain_order=True)
    is_next = pl.col("address").shift(-1) == pl.col("address")
    return events.with_columns(
        end=pl.when(is_next).then(pl.col("begin").shift(-1)),
        end_row=pl.when(is_next).then(pl.col("row").shift(-1)),
        is_first=(pl.col("address").shift(1) != pl.col("address")).fill_null(True),
    )


def _allocations_before_window(events: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
    """Return the memory from before all events: each block that one of them frees, and one for the rest."""
    freed = lives.filter(pl.col("is_first") & (pl.col("bytes") < 0))
    freed = freed.select("device", -pl.col("bytes"), end="begin", end_row="row")
    before = events.head(1).select("device", (pl.col("total") - pl.col("bytes") - freed["bytes"].sum()).alias("bytes"))
    pieces = pl.concat([before.filter(pl.col("bytes") > 0), freed], how="diagonal")
    return pieces.with_columns(category=pl.lit(BEFORE), begin=None, row=None)


def classify_allocations(window: RankWindow, loop: TrainingLoop, allocated: pl.DataFrame) -> pl.Series:
    """Return the category of each allocation.

    Without spans of ours, forward is the rest of the loop's thread in a step, as for the time of a step.
    """
    by_category = {
        "data": loop.loader.fetches,
        "forward": loop.phases.forward,
        "backward": loop.phases.backward,
        "optimizer": loop.phases.optimizer,
        "evaluation": loop.loader.evaluations,
    }
    in_closures = add_constant_column(loop.phases.closures, "track", window.loop_track, pl.UInt32)
    of_phases = [
        add_constant_column(spans[["begin", "end", "track"]], "category", category, pl.String)
        for category, spans in (*by_category.items(), ("forward", in_closures))
        if len(spans)
    ]
    within = constant_column("category", None, pl.String, len(allocated))
    if of_phases:
        spans = pl.concat(of_phases)
        within = spans["category"][find_innermost(spans, select_columns(allocated, "track", ts="begin"))]
    is_in_step = interval_index(window.steps, allocated["begin"]).is_not_null() & (
        allocated["track"] == window.loop_track
    )
    rest = pl.when(is_in_step & (not len(loop.phases.forward))).then(pl.lit("forward")).otherwise(pl.lit("other"))
    return allocated.select(pl.coalesce(within, rest).alias("category"))["category"]
