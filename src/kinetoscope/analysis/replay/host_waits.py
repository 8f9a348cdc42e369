"""Waits of CPU threads for the device, or for a collective on the CPU."""

from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.replay.device_starts import MAX_CAUSE_DELAY_NS, MAX_OVERLAP_NS
from kinetoscope.analysis.windows.columns import (
    add_constant_column,
    build_frame,
    drop_null_rows,
    filter_rows,
    select_columns,
    sort_rows,
)

DEFAULT_SYNC_CALL_NS = 2_500
"""Time of a blocking call without a wait, where no such call was recorded."""

_COLUMNS = ("track", "begin", "end", "event", "event_end", "no_wait_ns", "kind", "is_guessed")


class HostWaits:
    """The calls and pauses of threads in which they wait for events, which are rows of ``device`` with ``end_node``.

    Frames have ``track``, ``begin``, ``end``, and:

    - ``event``, the node of the end that a thread waits for, and its ``event_end``.
    - ``no_wait_ns``, the time of the call without a wait.
    - ``kind``, ``sync`` or ``thread``.
    - ``is_guessed``: the event of a call that never had to wait is a guess.
    """

    def __init__(self, device: pl.DataFrame, loop: TrainingLoop) -> None:
        self._device, self._loop = device, loop

    @cached_property
    def waits(self) -> pl.DataFrame:
        """The calls in which a thread waited."""
        found = (self._for_copies(), self._waiting_calls, self._for_collectives())
        waits = pl.concat([frame[[*_COLUMNS[:-1]]] for frame in found if len(frame)] or [found[1][[*_COLUMNS[:-1]]]])
        in_call = (waits["event_end"] > waits["begin"]) & (waits["event_end"] <= waits["end"] + MAX_OVERLAP_NS)
        waits = add_constant_column(filter_rows(waits, in_call), "is_guessed", False, pl.Boolean)
        return waits.unique(["track", "begin", "end"], keep="last", maintain_order=True)

    @cached_property
    def _waiting_calls(self) -> pl.DataFrame:
        return filter_rows(self._calls, self._calls["has_waited"])

    @cached_property
    def without_wait(self) -> pl.DataFrame:
        """The calls whose event had ended before.

        Where calls of the name waited, the event is as many launches back as for them; else the one launched before the
        last `EventRecord` that was over before each of them.
        """
        num_back = pl.col("num_launched") - pl.col("index")
        is_usual = 2 * num_back.unique_counts().max() >= pl.len()
        others = filter_rows(self._calls, ~self._calls["has_waited"])
        if not len(others):
            return self.waits.clear()
        usual = self._waiting_calls.group_by("name").agg(num_back=pl.when(is_usual).then(num_back.mode().max()))
        others = others.drop("event", "event_end", "index")
        as_elsewhere = others.join(usual, on="name").with_columns(index=pl.col("num_launched") - pl.col("num_back"))
        found = [
            as_elsewhere.join(self._launched, on="index").with_columns(is_guessed=pl.lit(False)),
            self._for_records(others.join(usual, on="name", how="anti")).with_columns(is_guessed=pl.lit(True)),
        ]
        without_wait = pl.concat([frame.select(_COLUMNS) for frame in found])
        return filter_rows(without_wait, without_wait["event_end"] <= without_wait["end"])

    def _for_records(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Return calls that never waited, with the event of the record as many back as for all calls of their name."""
        name = pl.col("name").str
        is_for_stream = pl.col("name").shift(-1).over("track").str.ends_with("StreamWaitEvent").fill_null(False)
        records = self._loop.window.cpu.runtime_calls.sort("begin").filter(
            name.contains("EventRecord") & ~is_for_stream
        )
        records = records.select(recorded="begin").sort("recorded")
        records = records.join_asof(self._launched, left_on="recorded", right_on="launch_begin").drop_nulls("event")
        records = records.select("recorded", "event", "event_end", index=pl.int_range(pl.len(), dtype=pl.Int64))
        before = records.select("recorded", num_records=pl.col("index") + 1)
        over = records.sort("event_end").select(over_at="event_end", over="index")
        calls = calls.sort("begin").join_asof(before, left_on="begin", right_on="recorded")
        calls = calls.join_asof(over, left_on="begin", right_on="over_at")
        num_back = (pl.col("num_records") - pl.col("over")).max().over("name")
        return calls.with_columns(index=pl.col("num_records") - num_back).join(records, on="index")

    @cached_property
    def _launched(self) -> pl.DataFrame:
        """Events in the order of their launches: ``index``, ``launch_begin``, ``event`` and ``event_end``."""
        launched = select_columns(self._device, "launch_begin", event="end_node", event_end="end")
        launched = sort_rows(drop_null_rows(launched, "launch_begin"), "launch_begin")
        return launched.hstack([pl.int_range(len(launched), dtype=pl.Int64, eager=True).alias("index")])

    @cached_property
    def _calls(self) -> pl.DataFrame:
        """Blocking calls with the last event that ended before each returned, and whether it ``has_waited``."""
        calls = filter_rows(self._loop.sync_calls[["track", "begin", "end", "name"]], self._is_for_all)
        calls = sort_rows(add_constant_column(calls, "kind", "sync", pl.String), "begin")
        launched = build_frame(self._launched["launch_begin"], (self._launched["index"] + 1).alias("num_launched"))
        calls = calls.join_asof(launched, left_on="begin", right_on="launch_begin", coalesce=False)
        calls = calls[["track", "begin", "end", "name", "kind", "num_launched"]]
        found = self._add_event(calls.sort("end"))
        indexes = self._launched[["event", "index", "launch_begin"]]
        found = found.join(indexes, on="event", how="left", maintain_order="left")
        was_launched = pl.col("launch_begin").fill_null(pl.col("begin")) <= pl.col("begin")
        is_in_call = ((pl.col("event_end") > pl.col("begin")) & was_launched).fill_null(False)
        taken = pl.col("end") - pl.col("begin")
        not_waiting = taken.filter(~is_in_call & (taken <= MAX_CAUSE_DELAY_NS))
        no_wait_ns = not_waiting.median().cast(pl.Int64).fill_null(DEFAULT_SYNC_CALL_NS)
        return found.with_columns(no_wait_ns=no_wait_ns, has_waited=is_in_call & (taken > no_wait_ns))

    def _add_event(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Add ``event`` and ``event_end``: the last event that ended before each call returned, or just after that.

        Just after counts if it was launched before the call, and no other one ended as shortly before the return as
        usual.
        """
        events = select_columns(self._device, "launch_begin", "stream", event="end_node", event_end="end")
        events = sort_rows(events, "event_end")
        found = calls.join_asof(events, left_on="end", right_on="event_end", coalesce=False)
        delay = found["end"] - found["event_end"]
        usual: Any = delay.filter((found["event_end"] > found["begin"]) & (delay <= MAX_CAUSE_DELAY_NS)).median()
        until = (found["end"] + MAX_OVERLAP_NS).alias("until")
        late = calls.hstack([until]).join_asof(events, left_on="until", right_on="event_end", coalesce=False)
        is_late = (late["event_end"] > late["end"]) & (late["launch_begin"] < late["begin"])
        is_late &= (delay > (usual or 0) + MAX_OVERLAP_NS) | (late["stream"] == found["stream"])
        columns = [late[name].zip_with(is_late, found[name]) for name in ("event", "event_end")]
        return calls.hstack(columns)

    def _for_copies(self) -> pl.DataFrame:
        """Return the waits of copies' calls for the copy."""
        usual_ns: Any = (self._device["launch_end"] - self._device["launch_begin"]).median()
        copies = select_columns(self._device, "correlation", event="end_node", event_end="end")
        copies = filter_rows(copies, self._device["kind"] == "copy")
        calls = filter_rows(self._loop.sync_calls, ~self._is_for_all)
        found = add_constant_column(calls.join(copies, on="correlation"), "kind", "sync", pl.String)
        return add_constant_column(found, "no_wait_ns", int(usual_ns or 0), pl.Int64)

    @cached_property
    def _is_for_all(self) -> pl.Series:
        """True for each blocking call that waits for all launched work, not for a copy of its own."""
        return self._loop.sync_calls["name"].str.ends_with("Synchronize")

    def _for_collectives(self) -> pl.DataFrame:
        """Return the waits of the loop's thread for collectives on the CPU."""
        event = (2 * pl.col("row") + 1).cast(pl.UInt32)
        waits = self._loop.collectives.waits
        if not len(waits):
            return waits
        waits = waits.select("track", "begin", end="waited_until", event=event)
        no_wait_ns = pl.lit(0, dtype=pl.Int64)
        return waits.with_columns(event_end="end", no_wait_ns=no_wait_ns, kind=pl.lit("thread"))
