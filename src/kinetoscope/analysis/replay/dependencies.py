"""Dependencies in one window of one rank: nodes and edges of a `ReplayGraph`."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.cpu_operators import are_of_cpu_optimizer
from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.replay.delayed_batches import DelayedBatches
from kinetoscope.analysis.replay.device_starts import MAX_CAUSE_DELAY_NS, DeviceStarts
from kinetoscope.analysis.replay.host_waits import HostWaits
from kinetoscope.analysis.replay.loader_slack import LoaderSlack, loader_slack
from kinetoscope.analysis.replay.operator_intervals import OperatorIntervals
from kinetoscope.analysis.windows.columns import (
    add_constant_column,
    build_frame,
    clip_negative,
    drop_null_rows,
    select_columns,
)
from kinetoscope.analysis.windows.intervals import IntervalUnion, zeros
from kinetoscope.analysis.windows.nesting import find_enclosing, interval_index
from kinetoscope.analysis.windows.window import RankWindow

_KINDS = {"compute": "other_stream", "wait": "other_stream", "order": "stream"}
"""The kind of edge for a cause, where it has another name."""

_THREAD_EDGE_COLUMNS = ("source", "target", "track", "begin", "end")


@dataclass(frozen=True)
class Dependencies:
    """Nodes and edges of a window, as in `ReplayGraph`, without edges of collectives.

    Attributes:
        nodes: row ``i`` of the window's device events starts at node ``2 * i`` and ends at the next one.
        edges: the edges, without columns for parts of time that no edge has.
        waiting_ns: time between two device events.
        unexplained_ns: the part of it that the graph does not explain.
        hidden_ns: unexplained waits of computations while the device communicated.
        loader: slack of the loader.
        first_wait_ns: by how much the wait for the first batch, before the first step, exceeds later ones.
    """

    nodes: pl.DataFrame
    edges: pl.DataFrame
    waiting_ns: int
    unexplained_ns: int
    hidden_ns: int = 0
    loader: LoaderSlack = field(default_factory=LoaderSlack)
    first_wait_ns: int = 0

    def of_sample(self) -> "Dependencies":
        """Return the same for a replay of some ranks only: a joined collective needs two of its ranks, not all."""
        if "group_size" not in self.edges.columns:
            return self
        return replace(self, edges=self.edges.with_columns(pl.col("group_size").clip(upper_bound=2)))


def find_dependencies(
    window: RankWindow, loop: TrainingLoop, operators: Iterable[str] = (), pace: float = 1.0
) -> Dependencies:
    """Return the graph of one window.

    Args:
        window: the window.
        loop: its training loop.
        operators: names of operators; edges have the part of them that is inside of each.
        pace: that of `DelayedBatches`.
    """
    late = DelayedBatches(loop, pace)
    finder = _Finder(window, loop, OperatorIntervals(window, operators), late)
    return Dependencies(
        add_constant_column(finder.nodes(), "rank", window.rank, pl.Int64),
        add_constant_column(finder.edges(), "rank", window.rank, pl.Int64),
        *finder.begins.waiting,
        loader=loader_slack(loop, late),
        first_wait_ns=_find_first_wait_ns(window, loop),
    )


def _find_first_wait_ns(window: RankWindow, loop: TrainingLoop) -> int:
    """Return `Dependencies.first_wait_ns`; 0 where a step fetches its own batch."""
    begins, ends, fetches = window.steps["begin"], window.steps["end"], loop.loader.fetching
    if len(begins) < 2 or not fetches:
        return 0
    others: Any = fetches.overlap_ns(ends[:-1], begins[1:]).mean()
    return max(0, round(fetches.covered_before(begins[:1])[0] - others))


class _Finder:
    def __init__(
        self, window: RankWindow, loop: TrainingLoop, operators: OperatorIntervals, late: DelayedBatches
    ) -> None:
        self._late, self._late_fetches = late, late.fetches
        row = pl.int_range(pl.len(), dtype=pl.UInt32)
        self._window, self._loop, self._operators = window, loop, operators
        events = window.device if len(window.device) else loop.collectives.events
        self._device = events.with_columns(begin_node=2 * row, end_node=2 * row + 1)

    def nodes(self) -> pl.DataFrame:
        """Return device events first, then the moments of CPU threads."""
        device = self._device
        has_device = len(self._window.device) > 0
        begins, ends = (select_columns(device, node=f"{side}_node", time=side) for side in ("begin", "end"))
        begins = add_constant_column(begins, "is_end", False, pl.Boolean)
        ends = add_constant_column(ends, "is_end", has_device, pl.Boolean)
        host = select_columns(self._points, "node", "time", is_end="is_step_end")
        host = host if not has_device else add_constant_column(host[["node", "time"]], "is_end", False, pl.Boolean)
        return pl.concat([begins, ends, host], how="vertical_relaxed").sort("node")[["time", "is_end"]]

    def edges(self) -> pl.DataFrame:
        """Return the edges, one kind after the other."""
        edges = [self._host_edges_with_parts(), self._build_sync_edges()]
        if len(self._late_fetches):
            edges.append(self._build_loader_edges())
        if len(self._device):
            edges += [*self._build_start_edges(), self._build_device_edges()]
        return pl.concat(edges, how="diagonal_relaxed")

    # -- threads of the host --

    @cached_property
    def _points(self) -> pl.DataFrame:
        """The moments of threads, in order: ``track``, ``time``, ``node``, ``is_step_end``."""
        steps = self._window.steps
        waits = (self._waits.waits, self._waits.without_wait, self._pauses)
        intervals = [steps, self._loop.loader.fetches, *waits, self._loop.awaited_work]
        moments = [(frame["track"], frame[side].alias("time")) for frame in intervals for side in ("begin", "end")]
        moments.append((self._device["launch_track"].alias("track"), self._device["launch_begin"].alias("time")))
        points = build_frame(*(pl.concat(side) for side in zip(*moments, strict=True)))
        points = drop_null_rows(points, "time").unique().sort("track", "time")
        is_step_end = pl.col("time").is_in(steps["end"].implode()) & (pl.col("track") == self._window.loop_track)
        node = pl.int_range(2 * len(self._device), 2 * len(self._device) + pl.len(), dtype=pl.UInt32)
        return points.with_columns(node=node, is_step_end=is_step_end)

    def _add_node(self, rows: pl.DataFrame, node: str, track: str, time: str) -> pl.DataFrame:
        """Return the rows with the node of a moment of a thread."""
        points = select_columns(self._points, **{track: "track", time: "time", node: "node"})
        return rows.join(points, on=[track, time], how="inner", maintain_order="left")

    def _host_edges_with_parts(self) -> pl.DataFrame:
        """Return the edges of threads with the parts of their time."""
        edges = (
            pl.concat([self._build_host_edges(), self._build_thread_edges()])
            if len(self._loop.awaited_work)
            else self._build_host_edges()
        )
        parts = [part for part in self._loop.parts(edges) if (part != 0).any()]
        parts += [self._avoidable_data(edges, part) for part in parts if part.name == "data"]
        plain = edges[[name for name in edges.columns if name not in ("track", "begin", "end")]]
        return plain.hstack([self._step_at(edges["begin"]), *parts, *self._operators.on_threads(edges)])

    def _avoidable_data(self, edges: pl.DataFrame, data: pl.Series) -> pl.Series:
        """Return the part of ``data`` that a loop could avoid.

        Fetching a batch that a worker has built always costs time; waits for workers have edges of their own.
        """
        if not self._late.has_workers:
            return data.alias("avoidable_data")
        cost = IntervalUnion(self._late.of_workers).overlap_ns(edges["begin"], edges["end"])
        return clip_negative(data - cost).alias("avoidable_data")

    def _build_host_edges(self) -> pl.DataFrame:
        """Return the edges from each moment of a thread to its next, without its waits for others."""
        target, end = (pl.col(name).shift(-1).over("track") for name in ("node", "time"))
        edges = self._points.select("track", source="node", begin="time", target=target, end=end)
        edges = drop_null_rows(edges, "target")
        if len(self._loop.awaited_work):  # work of the other thread before that is independent of it
            starts = select_columns(self._loop.awaited_work, "track", end="begin")
            edges = edges.join(starts, on=["track", "end"], how="anti", maintain_order="left")
        waits = pl.concat(
            [
                frame[["track", "begin", "end", "no_wait_ns"]]
                for frame in (self._waits.waits, self._pauses, self._late_fetches)
            ]
        )
        no_wait_ns = find_enclosing(waits.unique(["track", "begin"]), edges["track"], edges["begin"])["no_wait_ns"]
        weight = pl.min_horizontal(pl.col("end") - pl.col("begin"), no_wait_ns)
        return edges.select(*_THREAD_EDGE_COLUMNS, kind=pl.lit("host"), weight=weight)

    @cached_property
    def _pauses(self) -> pl.DataFrame:
        """Intervals in which the loop's thread waited for others."""
        track, nothing = pl.lit(self._window.loop_track, dtype=pl.UInt32), pl.lit(0, dtype=pl.Int64)
        times = {"begin": "paused_from", "end": "paused_until"}
        pauses = self._loop.awaited_work.select(track=track, **times, no_wait_ns=nothing)
        return pauses.unique()

    def _build_thread_edges(self) -> pl.DataFrame:
        """Return the edges between the loop's thread and others: it starts their work, and continues after it.

        Its time before and after that is in other edges.
        """
        loop_track, awaited_work = pl.lit(self._window.loop_track, dtype=pl.UInt32), self._loop.awaited_work
        last = pl.col("end").max().over("paused_from")
        starts = awaited_work.select(
            from_track=loop_track, since="paused_from", to_track="track", until="begin", begin="paused_from"
        )
        ends = awaited_work.select(
            from_track="track", since="end", to_track=loop_track, until="paused_until", begin=last
        )
        edges = pl.concat([starts, ends]).with_columns(track=loop_track, end="until")
        edges = self._add_node(self._add_node(edges, "source", "from_track", "since"), "target", "to_track", "until")
        weight = pl.col("end") - pl.col("begin")
        return edges.select(*_THREAD_EDGE_COLUMNS, kind=pl.lit("thread"), weight=weight)

    # -- workers of a loader --

    def _build_loader_edges(self) -> pl.DataFrame:
        """Return the edges to batches that came late: they are as late again, however fast the loop is."""
        first = self._points.filter(pl.col("track") == self._window.loop_track)["time"].min()
        late = self._late_fetches.with_columns(pl.col("since").fill_null(pl.lit(first, pl.Int64)))
        late = self._add_node(self._add_node(late, "target", "track", "end"), "source", "track", "since")
        return late.select("source", "target", kind=pl.lit("loader"), weight=pl.col("end") - pl.col("since"))

    # -- waits for the device --

    @cached_property
    def _waits(self) -> HostWaits:
        return HostWaits(self._device, self._loop)

    def _build_sync_edges(self) -> pl.DataFrame:
        edges = self._add_node(pl.concat([self._waits.waits, self._waits.without_wait]), "target", "track", "end")
        calls = self._loop.sync_calls[["track", "begin"]].hstack([self._loop.are_for_data])
        edges = edges.join(calls.unique(["track", "begin"]), on=["track", "begin"], how="left", maintain_order="left")
        delay = pl.col("end") - pl.col("event_end")
        weight = pl.when(pl.col("event_end") > pl.col("begin")).then(delay).otherwise(0)
        return edges.select(
            *("target", "kind", "is_guessed", "is_for_data"),
            source="event",
            weight=pl.when(delay <= MAX_CAUSE_DELAY_NS).then(weight).otherwise(0),
        )

    # -- streams of the device --

    @cached_property
    def begins(self) -> DeviceStarts:
        """Causes of the starts of the device's events."""
        return DeviceStarts(self._device, self._window.cpu.runtime_calls)

    def _build_start_edges(self) -> list[pl.DataFrame]:
        """Return the edges to the start of each event.

        They come from its launch, from the event before it on its stream, and from those of other streams that it
        waited for. An event overlaps one before it, but does not overtake it.
        """
        events = self.begins.events
        launched = events[["begin_node", "launch_ns", "launch_track", "launch_begin"]]
        launched = self._add_node(launched, "launch", "launch_track", "launch_begin")
        causes = [
            ("launch", "launch", launched),
            ("before", "stream", events),
            ("begin_before", "order", self.begins.overlapping),
            ("other", "other_stream", events),
            ("compute", "compute", events),
            ("waited", "wait", events),
        ]
        found = []
        for source, cause, rows in causes:
            if rows[source].count():
                edges = select_columns(rows, source=source, target="begin_node", weight=f"{cause}_ns")
                found.append(
                    add_constant_column(drop_null_rows(edges, "source"), "kind", _KINDS.get(cause, cause), pl.String)
                )
        return found

    def _build_device_edges(self) -> pl.DataFrame:
        """Return the edges from each event's start to its end.

        Events launched before the recording started stay unchanged: they have no name.
        """
        is_launched = pl.col("launch_begin").is_not_null()
        return self._device.select(
            source="begin_node",
            target="end_node",
            kind=pl.lit("device"),
            weight=pl.col("end") - pl.col("begin"),
            name=pl.when(is_launched).then("name"),
            is_communication=(pl.col("kind") == "communication") & is_launched,
            exposed_ns=self._exposed_ns(),
            step=self._step_at(self._device["launch_begin"]),
            group_size=pl.when(pl.col("kind") == "communication").then("group_size"),
            is_of_cpu_optimizer=are_of_cpu_optimizer(
                self._device, self._loop.cpu_operators, self._loop.phases.optimizing
            ),
        ).hstack(self._operators.on_device(self._device))

    def _step_at(self, times: pl.Series) -> pl.Series:
        """Return the step at each time; null where there is none."""
        steps = self._window.steps
        return steps["step"][interval_index(steps, times)].cast(pl.Int64)

    def _exposed_ns(self) -> pl.Series:
        """Return the time of each communication in which nothing is computed; 0 for other events."""
        begins, ends = self._device["begin"], self._device["end"]
        if len(self._window.device):
            exposed = ends - begins - self._window.devices.time.compute.overlap_ns(begins, ends)
        else:  # collectives on the CPU, on threads of their own
            exposed = IntervalUnion(self._loop.collectives.time).overlap_ns(begins, ends)
        return exposed.zip_with(self._device["kind"] == "communication", zeros(1))
