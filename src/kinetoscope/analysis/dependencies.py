"""analysis: what waited for what in one window of one rank, as nodes and edges of a `ReplayGraph`."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.window import RankWindow
from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl

COINCIDES_WITHIN_NS = 30_000
"""An event that begins so soon after one of another stream has ended is taken to have waited for it."""


LONGEST_LATENCY_NS = 30_000
"""If no event began so soon after its launch, all waited in a queue, and what a launch takes is not known."""


@dataclass(frozen=True)
class Dependencies:
    """``nodes`` and ``edges`` as `ReplayGraph` has them, without the edges of collectives. Row ``i`` of the window's
    device events begins at node ``2 * i`` and ends at the next one."""

    nodes: "pl.DataFrame"
    edges: "pl.DataFrame"


def find_dependencies(window: RankWindow, host: HostTime) -> Dependencies:
    """The graph of one window."""
    pl = import_polars()
    finder = _Finder(window, host)
    rank = pl.lit(window.rank, dtype=pl.Int64)
    return Dependencies(finder.nodes().with_columns(rank=rank), finder.edges().with_columns(rank=rank))


class _Finder:
    def __init__(self, window: RankWindow, host: HostTime) -> None:
        pl = import_polars()
        row = pl.int_range(pl.len(), dtype=pl.UInt32)
        self._window, self._host = window, host
        events = window.device if len(window.device) else host.calls_as_events
        self._device = events.with_columns(begin_node=2 * row, end_node=2 * row + 1)

    def nodes(self) -> "pl.DataFrame":
        """Device events first, then the moments of host threads."""
        pl = import_polars()
        device = self._device
        begins = device.select(node="begin_node", time="begin", is_end=pl.lit(False))
        ends = device.select(node="end_node", time="end", is_end=pl.lit(len(self._window.device) > 0))
        is_end = pl.col("is_step_end") & pl.lit(not len(self._window.device))
        host = self._points.select("node", "time", is_end=is_end)
        return pl.concat([begins, ends, host], how="vertical_relaxed").sort("node").drop("node")

    def edges(self) -> "pl.DataFrame":
        """The edges, one kind after the other."""
        pl = import_polars()
        edges = [self._host_edges(), self._thread_edges(), self._sync_edges()]
        if len(self._device):
            edges += [self._launch_edges(), self._stream_edges(), self._other_stream_edges(), self._device_edges()]
        return pl.concat(edges, how="diagonal_relaxed")

    # -- threads of the host --

    @cached_property
    def _points(self) -> "pl.DataFrame":
        """The moments of threads, in order: ``track``, ``time``, ``node``, ``is_step_end``."""
        pl = import_polars()
        steps = self._window.steps
        launches = self._device.drop_nulls("launch_begin").select(track="launch_track", time="launch_begin")
        stretches = [steps, self._syncs, self._pauses, self._host.visits]
        sides = [frame.select("track", time=side) for frame in stretches for side in ("begin", "end")]
        points = pl.concat([launches, *sides]).unique().sort("track", "time")
        is_step_end = pl.col("time").is_in(steps["end"].implode()) & (pl.col("track") == self._window.loop_track)
        node = pl.int_range(2 * len(self._device), 2 * len(self._device) + pl.len(), dtype=pl.UInt32)
        return points.with_columns(node=node, is_step_end=is_step_end)

    def _with_node(self, rows: "pl.DataFrame", node: str, track: str, time: str) -> "pl.DataFrame":
        """The rows with the node of a moment of a thread."""
        points = self._points.select("track", "time", "node").rename({"track": track, "time": time, "node": node})
        return rows.join(points, on=[track, time], how="inner", maintain_order="left")

    def _host_edges(self) -> "pl.DataFrame":
        """From each moment of a thread to its next. Time in which the thread waits for somebody else is not its own."""
        pl = import_polars()
        following = self._points.select(pl.col("node", "time").shift(-1).over("track"))
        edges = self._points.select("track", source="node", begin="time")
        edges = edges.hstack(following.rename({"node": "target", "time": "end"})).drop_nulls("target")
        waits = pl.concat([self._syncs.select("track", "begin", "end"), self._pauses.select("track", "begin", "end")])
        waits = waits.unique().with_columns(is_wait=True)
        edges = edges.join(waits, on=["track", "begin", "end"], how="left", maintain_order="left")
        starts = self._host.visits.select("track", end="begin")  # what the thread did before has nothing to do with it
        edges = edges.join(starts, on=["track", "end"], how="anti", maintain_order="left")
        own_ns = pl.when("is_wait").then(0).otherwise(pl.col("end") - pl.col("begin"))
        parts = self._host.parts(edges)
        return edges.select("source", "target", kind=pl.lit("host"), weight=own_ns).hstack(parts)

    @cached_property
    def _pauses(self) -> "pl.DataFrame":
        """When the loop's thread waited for others."""
        pl = import_polars()
        track = pl.lit(self._window.loop_track, dtype=pl.UInt32)
        return self._host.visits.select(track=track, begin="paused_from", end="paused_until").unique()

    def _thread_edges(self) -> "pl.DataFrame":
        """The loop's thread starts a visit, and goes on when it has ended."""
        pl = import_polars()
        loop = pl.lit(self._window.loop_track, dtype=pl.UInt32)
        visits = self._host.visits.with_columns(loop=loop)
        starts = self._with_node(self._with_node(visits, "source", "loop", "paused_from"), "target", "track", "begin")
        ends = self._with_node(self._with_node(visits, "source", "track", "end"), "target", "loop", "paused_until")
        return pl.concat([frame.select("source", "target") for frame in (starts, ends)]).with_columns(
            kind=pl.lit("thread"), weight=pl.lit(0, dtype=pl.Int64)
        )

    # -- calls that wait for the device --

    @cached_property
    def _syncs(self) -> "pl.DataFrame":
        """Calls and pauses in which a thread waited: ``track``, ``begin``, ``end``, ``event``, the node of the end that
        it waited for, and ``kind``.

        A copy waits for itself, any other call for the last event that ended before it returned, if that was launched
        before it.
        """
        pl = import_polars()
        calls = self._host.synchronising.select("track", "begin", "end", "name", "correlation")
        is_copy = ~pl.col("name").str.ends_with("Synchronize")
        copies = self._device.filter(pl.col("kind") == "copy")
        own = copies.select("correlation", event="end_node", event_end="end", launch_begin="launch_begin")
        ended = self._device.sort("end").select("launch_begin", event="end_node", event_end="end")
        found = [
            calls.filter(is_copy).join(own, on="correlation"),
            calls.filter(~is_copy).sort("end").join_asof(ended, left_on="end", right_on="event_end", coalesce=False),
        ]
        columns = ("track", "begin", "end", "event", "event_end", "launch_begin")
        of_device = pl.concat([frame.select(columns) for frame in found])
        of_device = of_device.filter(pl.col("launch_begin").fill_null(0) <= pl.col("begin"))
        of_calls = self._host.waits_for_calls.select(
            "track", "begin", "end", event=(2 * pl.col("row") + 1).cast(pl.UInt32), event_end="waited_until"
        )
        waits = [of_device.with_columns(kind=pl.lit("sync")), of_calls.with_columns(kind=pl.lit("thread"))]
        waited = pl.concat([frame.select(*columns[:5], "kind") for frame in waits])
        in_call = (pl.col("event_end") > pl.col("begin")) & (pl.col("event_end") <= pl.col("end"))
        return waited.filter(in_call).unique(["track", "begin", "end"], keep="last", maintain_order=True)

    def _sync_edges(self) -> "pl.DataFrame":
        pl = import_polars()
        edges = self._with_node(self._syncs, "target", "track", "end")
        return edges.select("target", "kind", source="event", weight=pl.lit(0, dtype=pl.Int64))

    # -- streams of the device --

    def _launch_edges(self) -> "pl.DataFrame":
        """From each launch to its event, which takes at least as long as from any other launch to its own, if that was
        not in a queue all the time."""
        pl = import_polars()
        launched = self._device.drop_nulls("launch_begin").with_columns(
            latency=pl.col("begin") - pl.col("launch_begin")
        )
        least = pl.col("latency").min()
        least = pl.when(least.is_between(0, LONGEST_LATENCY_NS)).then(least).otherwise(0)
        edges = self._with_node(launched, "source", "launch_track", "launch_begin")
        return edges.select(
            "source", target="begin_node", kind=pl.lit("launch"), weight=pl.min_horizontal("latency", least)
        )

    @cached_property
    def _after_own_stream(self) -> "pl.DataFrame":
        """Device events with ``before`` and ``before_end``, the last event of their stream, if that has ended."""
        pl = import_polars()
        before = pl.col("end_node", "end").shift(1).over("device", "stream")
        events = self._device.hstack(self._device.select(before).rename({"end_node": "before", "end": "before_end"}))
        is_over = pl.col("before_end") <= pl.col("begin")
        return events.with_columns(pl.when(is_over).then(name).alias(name) for name in ("before", "before_end"))

    def _stream_edges(self) -> "pl.DataFrame":
        """From each event to the next one of its stream, which follows at least as long after as any other does."""
        pl = import_polars()
        events = self._after_own_stream.drop_nulls("before")
        gap = pl.col("begin") - pl.col("before_end")
        return events.select(source="before", target="begin_node", kind=pl.lit("stream"), weight=gap.min())

    def _other_stream_edges(self) -> "pl.DataFrame":
        """Communication waits for the last compute kernel launched before it; any event for one of another stream that
        ended just before it began, where neither its launch nor its own stream say why it began then."""
        pl = import_polars()
        events = self._after_own_stream.with_columns(
            explained=pl.max_horizontal("before_end", "launch_begin").fill_null(-(2**62))
        )
        ends = self._last_ends_of_other_streams(events)
        is_near = (pl.col("begin") - pl.col("other_end") <= COINCIDES_WITHIN_NS) & (
            pl.col("other_end") > pl.col("explained")
        )
        near = ends.filter(is_near).select(source="other", target="begin_node")
        compute = self._device.filter(pl.col("kind") == "compute").drop_nulls("launch_begin").sort("launch_begin")
        communication = self._device.filter(pl.col("kind") == "communication").drop_nulls("launch_begin")
        after_compute = communication.sort("launch_begin").join_asof(
            compute.select("launch_begin", "device", source="end_node", compute_end="end"),
            on="launch_begin",
            by="device",
            check_sortedness=False,
        )
        after_compute = after_compute.filter(pl.col("compute_end") <= pl.col("begin")).select(
            "source", target="begin_node"
        )
        edges = pl.concat([near, after_compute]).unique()
        return edges.with_columns(kind=pl.lit("other_stream"), weight=pl.lit(0, dtype=pl.Int64))

    def _last_ends_of_other_streams(self, events: "pl.DataFrame") -> "pl.DataFrame":
        """Each event with ``other`` and ``other_end``, the last end before it began on another stream of its device."""
        pl = import_polars()
        ends = self._device.select("device", "stream", other="end_node", other_end="end").sort("other_end")
        run = pl.col("stream").rle_id().over("device")
        of_run = pl.col("other", "other_end", "stream").shift(1).over("device")
        firsts = ends.with_columns(run=run).hstack(
            ends.select(of_run).rename({"other": "last_other", "other_end": "last_end", "stream": "last_stream"})
        )
        firsts = firsts.with_columns(pl.col("last_other", "last_end", "last_stream").first().over("device", "run"))
        found = events.join_asof(
            firsts.select(
                "device",
                "last_other",
                "last_end",
                nearest="other",
                nearest_end="other_end",
                nearest_stream="stream",
                key="other_end",
            ),
            left_on="begin",
            right_on="key",
            by="device",
            check_sortedness=False,
        )
        is_other = pl.col("nearest_stream") != pl.col("stream")
        return found.with_columns(
            other=pl.when(is_other).then("nearest").otherwise("last_other"),
            other_end=pl.when(is_other).then("nearest_end").otherwise("last_end"),
        ).drop_nulls("other")

    def _device_edges(self) -> "pl.DataFrame":
        """From each event's begin to its end. What was launched before the recording began is as it was, whatever is
        changed: it has no name."""
        pl = import_polars()
        is_launched = pl.col("launch_begin").is_not_null()
        return self._device.select(
            source="begin_node",
            target="end_node",
            kind=pl.lit("device"),
            weight=pl.col("end") - pl.col("begin"),
            name=pl.when(is_launched).then("name"),
            is_communication=(pl.col("kind") == "communication") & is_launched,
        )
