"""Collectives that run on the CPU, and the loop's waits for them."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.windows.columns import select_columns
from kinetoscope.analysis.windows.span_names import C10D_CALLS, COMMUNICATION_CALLS, CPU_COLLECTIVES
from kinetoscope.analysis.windows.window import RankWindow

_MAX_LATE_NS, _MAX_LATE_SHARE = 5_000_000, 0.1
"""A collective on the CPU may end up to this time, and up to this share of the pause, after the pause of the loop that
waited for it."""


@dataclass(frozen=True, eq=False)
class CollectiveWaits:
    """The loop's collectives, where they run on the CPU.

    ``pauses`` are between operators and runtime calls of the loop; ``backward`` are spans of the backward pass.
    """

    window: RankWindow
    pauses: pl.DataFrame
    backward: pl.DataFrame

    @cached_property
    def calls(self) -> pl.DataFrame:
        """The loop's calls of collectives."""
        return self.window.on_loop_thread(self.window.cpu.named(COMMUNICATION_CALLS))

    @cached_property
    def waits(self) -> pl.DataFrame:
        """The loop's waits for a collective on the CPU.

        A row is a call, or a pause, that ends after the end of a collective: ``track``, ``begin`` and ``end``; ``row``,
        that of the collective; and ``waited_until``, its end. A pause counts if most of it was before that end, or if
        it follows the backward pass, at whose end DDP waits for its buckets; else the loop may have run Python.
        """
        if len(self.window.device):
            times = dict.fromkeys(("begin", "end", "waited_until"), pl.Int64)
            return pl.DataFrame(schema={**times, "track": pl.UInt32, "row": pl.UInt32})
        track = pl.lit(self.window.loop_track, dtype=pl.UInt32)
        pauses = self.pauses.select("begin", "end", track=track)
        moments = pl.concat([self.calls[["begin", "end", "track"]], pauses]).sort("end")
        events = self.events.with_row_index("row").select("row", waited_until="end", at="end").sort("at")
        waits = moments.join_asof(events, left_on="end", right_on="at", strategy="backward").drop("at")
        is_long = pl.col("waited_until") - pl.col("begin") >= pl.col("end") - pl.col("waited_until")
        is_in = pl.col("waited_until") > pl.col("begin")
        return waits.filter(is_in & (is_long | pl.col("begin").is_in(self.backward["end"].implode())))

    @cached_property
    def time(self) -> pl.DataFrame:
        """The loop's time in calls of collectives, and its waits for them."""
        calls, waits = self.calls[["begin", "end"]], self.waits
        return pl.concat([calls, select_columns(waits, "begin", end="waited_until")]) if len(waits) else calls

    @cached_property
    def events(self) -> pl.DataFrame:
        """Collectives on the CPU as if they were a device's events: each of their threads is a stream."""
        window = self.window
        calls = self._clip_to_waits(window.cpu.named(CPU_COLLECTIVES)).sort("begin")
        launches = window.cpu.named(C10D_CALLS).select(
            launch_begin="begin", launch_end="end", launch_track="track", launch_name="name"
        )
        events = _add_launches(calls, launches.sort("launch_begin"))
        return events.with_columns(
            kind=pl.lit("communication"), device=pl.lit(-1, dtype=pl.Int64), stream=pl.col("track").cast(pl.Int64)
        ).select(window.device.columns)

    def _clip_to_waits(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Return collectives of other threads, clipped to the end of the pause in which the loop waited for each.

        Such a thread wakes the loop before its own span ends, and on a busy machine the loop may continue first.
        """
        ends = calls.select(ended="end").sort("ended")
        pauses = self.pauses.sort("end").join_asof(ends, left_on="end", right_on="ended", coalesce=False)
        pauses = pauses.filter((pl.col("ended") <= pl.col("begin")).fill_null(True))[["begin", "end"]]
        calls = calls.with_row_index("call")
        next_ends = calls.select("call", called="begin", ended="end").sort("ended")
        pauses = pauses.join_asof(next_ends, left_on="end", right_on="ended", strategy="forward", coalesce=False)
        tolerance_ns = _MAX_LATE_SHARE * (pl.col("end") - pl.col("begin"))
        is_late = pl.col("ended") - pl.col("end") <= pl.min_horizontal(tolerance_ns, _MAX_LATE_NS)
        is_of_call = pl.col("called") - pl.col("begin") <= tolerance_ns
        woken = pauses.filter(is_late & is_of_call).group_by("call").agg(woken=pl.col("end").min())
        calls = calls.join(woken, on="call", how="left")
        return calls.with_columns(end=pl.coalesce("woken", "end")).drop("call", "woken")


def _add_launches(calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Add the call on the loop's thread that launched each collective.

    They wait in a queue: the first call launched the first collective. Collectives without a call were in flight when
    the recording began. Where that is impossible, the call is the last one before.
    """
    num_in_flight = len(calls) - len(launches)
    if len(launches) and num_in_flight >= 0:
        launched = calls[num_in_flight:].hstack(launches)
        if (launched["launch_begin"] <= launched["begin"]).all():
            return pl.concat([calls[:num_in_flight], launched], how="diagonal")
    return calls.join_asof(launches, left_on="begin", right_on="launch_begin")
