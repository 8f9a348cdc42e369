"""analysis: where threads of the host wait for the device, or for a collective on the CPU."""

from functools import cached_property

import polars as pl

from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.replay.device_begins import NEAR_NS

OWN_SYNC_NS = 2_500
"""What a synchronising call is taken to need by itself, where none is seen that waited for nothing."""

_COLUMNS = ("track", "begin", "end", "event", "event_end", "own_ns", "kind", "is_guessed")


class HostWaits:
    """The calls and pauses of threads in which they wait for events, which are rows of ``device`` with ``end_node``.

    Frames have ``track``, ``begin``, ``end``; ``event``, the node of the end that a thread waits for, and its
    ``event_end``; ``own_ns``, what it takes even if it need not wait; ``kind``, ``sync`` or ``thread``; and whether the
    event ``is_guessed``: a call that never had to wait does not show for which event it would.
    """

    def __init__(self, device: pl.DataFrame, host: HostTime) -> None:
        self._device, self._host = device, host

    @cached_property
    def waits(self) -> pl.DataFrame:
        """Those in which a thread did wait."""
        found = (self._for_copies(), self._calls.filter("has_waited"), self._for_collectives())
        waits = pl.concat([frame[[*_COLUMNS[:-1]]] for frame in found]).with_columns(is_guessed=pl.lit(False))
        in_call = (pl.col("event_end") > pl.col("begin")) & (pl.col("event_end") <= pl.col("end"))
        return waits.filter(in_call).unique(["track", "begin", "end"], keep="last", maintain_order=True)

    @cached_property
    def in_time(self) -> pl.DataFrame:
        """Those calls whose event had ended before. Where calls of the name waited, it is as many launches back as for
        them; else what was launched before the last `EventRecord` that was over before each of them."""
        back = pl.col("num_launched") - pl.col("place")
        is_usual = 2 * back.unique_counts().max() >= pl.len()
        usual = self._calls.filter("has_waited").group_by("name").agg(back=pl.when(is_usual).then(back.mode().max()))
        others = self._calls.filter(~pl.col("has_waited")).drop("event", "event_end", "place")
        if not len(others):
            return self.waits.clear()
        as_elsewhere = others.join(usual, on="name").with_columns(place=pl.col("num_launched") - pl.col("back"))
        found = [
            as_elsewhere.join(self._launched, on="place").with_columns(is_guessed=pl.lit(False)),
            self._for_records(others.join(usual, on="name", how="anti")).with_columns(is_guessed=pl.lit(True)),
        ]
        in_time = pl.concat([frame.select(_COLUMNS) for frame in found])
        return in_time.filter(pl.col("event_end") <= pl.col("begin"))

    def _for_records(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Calls that never waited, each with the event of the record that is as many back as for all of its name."""
        name = pl.col("name").str
        is_for_stream = pl.col("name").shift(-1).over("track").str.ends_with("StreamWaitEvent").fill_null(False)
        records = self._host.window.runtime_calls.sort("begin").filter(name.contains("EventRecord") & ~is_for_stream)
        records = records.select(recorded="begin").sort("recorded")
        records = records.join_asof(self._launched, left_on="recorded", right_on="launch_begin").drop_nulls("event")
        records = records.select("recorded", "event", "event_end", place=pl.int_range(pl.len(), dtype=pl.Int64))
        before = records.select("recorded", num_records=pl.col("place") + 1)
        over = records.sort("event_end").select(over_at="event_end", over="place")
        calls = calls.sort("begin").join_asof(before, left_on="begin", right_on="recorded")
        calls = calls.join_asof(over, left_on="begin", right_on="over_at")
        back = (pl.col("num_records") - pl.col("over")).max().over("name")
        return calls.with_columns(place=pl.col("num_records") - back).join(records, on="place")

    @cached_property
    def _launched(self) -> pl.DataFrame:
        """Events in the order of their launches: ``place``, ``launch_begin``, ``event`` and ``event_end``."""
        launched = self._device.select("launch_begin", event="end_node", event_end="end")
        launched = launched.drop_nulls("launch_begin").sort("launch_begin")
        return launched.select("launch_begin", "event", "event_end", place=pl.int_range(pl.len(), dtype=pl.Int64))

    @cached_property
    def _calls(self) -> pl.DataFrame:
        """Synchronising calls with the last event that ended before each returned, and whether it ``has_waited``."""
        calls = self._host.synchronising.filter(pl.col("name").str.ends_with("Synchronize"))
        calls = calls.select("track", "begin", "end", "name", kind=pl.lit("sync")).sort("begin")
        launched = self._launched.select("launch_begin", num_launched=pl.col("place") + 1)
        calls = calls.join_asof(launched, left_on="begin", right_on="launch_begin", coalesce=False).drop("launch_begin")
        ended = self._device.select(event="end_node", event_end="end").sort("event_end")
        found = calls.sort("end").join_asof(ended, left_on="end", right_on="event_end", coalesce=False)
        places = self._launched[["event", "place", "launch_begin"]]
        found = found.join(places, on="event", how="left", maintain_order="left")
        was_launched = pl.col("launch_begin").fill_null(pl.col("begin")) <= pl.col("begin")
        is_in_call = ((pl.col("event_end") > pl.col("begin")) & was_launched).fill_null(False)
        taken = pl.col("end") - pl.col("begin")
        own_ns = taken.filter(~is_in_call & (taken <= NEAR_NS)).median().cast(pl.Int64).fill_null(OWN_SYNC_NS)
        return found.with_columns(own_ns=own_ns, has_waited=is_in_call & (taken > own_ns))

    def _for_copies(self) -> pl.DataFrame:
        """A copy's call waits for the copy."""
        usual_ns = self._device.select((pl.col("launch_end") - pl.col("launch_begin")).median()).item()
        copies = self._device.filter(pl.col("kind") == "copy")
        copies = copies.select("correlation", event="end_node", event_end="end")
        calls = self._host.synchronising.filter(~pl.col("name").str.ends_with("Synchronize"))
        own_ns = pl.lit(int(usual_ns or 0), dtype=pl.Int64)
        return calls.join(copies, on="correlation").with_columns(kind=pl.lit("sync"), own_ns=own_ns)

    def _for_collectives(self) -> pl.DataFrame:
        """The loop's thread waits for a collective on the CPU."""
        event = (2 * pl.col("row") + 1).cast(pl.UInt32)
        waits = self._host.waits_for_calls.select("track", "begin", end="waited_until", event=event)
        own_ns = pl.lit(0, dtype=pl.Int64)
        return waits.with_columns(event_end="end", own_ns=own_ns, kind=pl.lit("thread"))
