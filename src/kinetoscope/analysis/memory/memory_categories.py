"""analysis: what memory was allocated for, told by the part of a step that allocated it, and how long it lived.

To which tensor memory belongs, a trace does not say. What lasts of the memory of a forward pass is mostly activations,
of a backward pass gradients, and of an optimizer its state.
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
    """Each piece of memory that was allocated at some moment of a window: ``device``, ``category`` (of `CATEGORIES`),
    ``begin``, ``end`` and ``bytes``.

    ``begin`` is null for what was allocated before the window, ``end`` for what was not freed in it; ``row`` and
    ``end_row`` are the same as rows of that device's part of `RankWindow.allocations`. Where torch saw all that
    happened, what is alive after an event adds up to its ``total``. There is no piece of a device whose events do not
    say which memory was freed, as in old traces.
    """
    schema = pl.Schema({"device": pl.Int64, "category": pl.String, "row": pl.UInt32, "end_row": pl.UInt32})
    schema.update(dict.fromkeys(("begin", "end", "bytes"), pl.Int64()))
    found = [pl.DataFrame(schema=schema)]
    for events in window.allocations.drop_nulls("total").partition_by("device"):
        if not events["address"].has_nulls():
            lives = lifetimes(events)
            allocated = lives.filter(pl.col("bytes") > 0)
            found += [
                _allocations_before_window(events, lives),
                allocated.with_columns(classify_allocations(window, loop, allocated)),
            ]
    return pl.concat([pieces.select(*schema).cast(schema) for pieces in found])


def lifetimes(events: pl.DataFrame) -> pl.DataFrame:
    """The events of one device, sorted by address: ``row``, that of ``events``, ``begin``, and ``end`` and ``end_row``,
    those of the next event of the same address, null for its last. ``is_first`` is whether there was none before."""
    events = drop_null_rows(events.with_row_index("row"), "address").rename({"ts": "begin"})
    events = events.sort("address", "begin", maintain_order=True)
    is_next = pl.col("address").shift(-1) == pl.col("address")
    return events.with_columns(
        end=pl.when(is_next).then(pl.col("begin").shift(-1)),
        end_row=pl.when(is_next).then(pl.col("row").shift(-1)),
        is_first=(pl.col("address").shift(1) != pl.col("address")).fill_null(True),
    )


def _allocations_before_window(events: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
    """What was allocated before all events: each piece that one of them frees, and one piece for all others."""
    freed = lives.filter(pl.col("is_first") & (pl.col("bytes") < 0))
    freed = freed.select("device", -pl.col("bytes"), end="begin", end_row="row")
    before = events.head(1).select("device", (pl.col("total") - pl.col("bytes") - freed["bytes"].sum()).alias("bytes"))
    pieces = pl.concat([before.filter(pl.col("bytes") > 0), freed], how="diagonal")
    return pieces.with_columns(category=pl.lit(BEFORE), begin=None, row=None)


def classify_allocations(window: RankWindow, loop: TrainingLoop, allocated: pl.DataFrame) -> pl.Series:
    """The category of each allocation. Forward is, as for the time of a step, what is left of the loop's thread in a
    step, where no spans of ours tell it."""
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
