"""Replay of a run: the times of all its events after a change.

The graph has a node for each moment that another event may wait for: on a CPU thread the start of a launch, and start
and end of a blocking call and of a step; on a device start and end of each event. An edge is the minimum time of one
node after another. A node's time is the latest that its edges require, plus its lag, which the graph does not explain.
So without a change, each node keeps its recorded time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.cpu_operators import CPU_OPERATORS
from kinetoscope.analysis.notebook_repr import NotebookRepr
from kinetoscope.analysis.ranks.point_to_point import SEND
from kinetoscope.analysis.replay.dependencies import Dependencies
from kinetoscope.analysis.replay.initial_lateness import START_NS, Substitute, add_substitute, find_substitute
from kinetoscope.analysis.replay.load_balancing import balance_loads, cpu_load_rows, load_rows, reduce_to_usual_loads
from kinetoscope.analysis.replay.operator_intervals import inside_column
from kinetoscope.analysis.windows.columns import build_frame, clip_negative
from kinetoscope.analysis.windows.intervals import latest_end_before
from kinetoscope.core.text.wording import format_percent
from kinetoscope.native import native

EDGES = ("host", "launch", "stream", "other_stream", "sync", "device", "collective", "thread", "loader")
"""Kinds of edges: to the next moment of a thread; from a launch to its event; to the next event of a stream; from an
event to one of another stream that waited for it; from an event to the end of a call that waits for it; from an event's
start to its end; from the starts of a collective on its ranks, and to its ends; between two threads; to a batch that
came late, from its request, or from the late one before it."""

CAUSES = ("data", "sync", "launch", "transfer", "python", "blocked", "gc", "compile")
"""Causes of time that a replay can remove."""

PARTS = ("data", "launch", "python", "blocked", "gc", "compile", "profiler")
"""Parts of the time of a CPU edge, in columns of these names; the rest is operators and other calls."""

_HOST_PARTS = frozenset(PARTS) - {"data"}
"""Parts that only shorten CPU edges; removing waits for data also removes edges of loaders."""

MAX_UNEXPLAINED_SHARE = 0.05
"""A replay is not trusted if a larger share of the devices' waiting is unexplained."""

DROPPED = -(2**63)
"""The changed weight of a removed edge."""


@dataclass(frozen=True)
class Change(NotebookRepr):
    """The change of a replay.

    Attributes:
        without: causes, of `CAUSES`, that take no time.
        faster: speedup by the name of operators and kernels.
        on_time: ranks that no other rank waits for.
        balanced: ranks that compute their mean in each step, and between the all-to-alls of a step.
        at_usual_load: ranks whose devices and CPUs have no more work than those of the others.
    """

    without: frozenset[str] = frozenset()
    faster: Mapping[str, float] = field(default_factory=dict)
    on_time: frozenset[int] = frozenset()
    balanced: frozenset[int] = frozenset()
    at_usual_load: frozenset[int] = frozenset()


_SLACKS = {"rank": pl.Int64, "window": pl.UInt32, "slack_ns": pl.Int64}
_EXCHANGES = {"rank": pl.Int64, "time": pl.Int64, "piece": pl.UInt32}
_FIRST_WAITS = {"rank": pl.Int64, "window": pl.UInt32, "longer_ns": pl.Int64}


@dataclass(frozen=True)
class _ReplayCache:
    """Results that are the same in all variants of a graph, by the ranks on time."""

    substitutes: dict[frozenset[int], Substitute | None] = field(default_factory=dict)
    now_ns: dict[frozenset[int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplayGraph:
    """The graph of some windows.

    Attributes:
        nodes: ``rank``; ``time``; ``is_end``, for ends of work; and ``window``, the same for windows of several ranks
            that overlap.
        edges: ``source`` and ``target`` (rows of nodes), ``kind``, ``weight`` in ns, ``rank``, ``name`` and
            ``is_communication`` of device events, ``is_guessed`` of `HostWaits`, ``is_for_data`` of waits whose data
            the CPU needs, ``is_of_cpu_optimizer`` of its copies, `PARTS`, `CPU_OPERATORS`, and an `inside_column` of
            each requested operator.
        waiting_ns: time that devices waited between two events.
        unexplained_ns: the part of it that the graph does not explain.
        hidden_ns: unexplained waits of computations while their device communicated.
        unjoined_share: maximum share of a rank's time that was communication with ranks that did not record it, without
            computing.
        missing_share: share of the steps that a rank has not recorded and others have.
        slacks: ``slack_ns``, by which the loop of each ``rank`` could be faster in each ``window`` until it waits for
            its loader, where that is known.
        has_hidden_loader: True if the slack of some loader is unknown.
        first_waits: by ``rank`` and ``window``, ``longer_ns``, by which the wait for the first batch exceeds later
            ones. It is in no step's time, so no change saves it.
        exchanges: ends of all-to-alls: ``rank``, ``time`` and ``piece``, the number of the call.
    """

    nodes: pl.DataFrame
    edges: pl.DataFrame
    waiting_ns: int = 0
    unexplained_ns: int = 0
    hidden_ns: int = 0
    unjoined_share: float = 0.0
    missing_share: float = 0.0
    slacks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SLACKS))
    has_hidden_loader: bool = False
    first_waits: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_FIRST_WAITS))
    exchanges: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_EXCHANGES))
    known: _ReplayCache = field(default_factory=_ReplayCache, repr=False, compare=False)

    @classmethod
    def join(
        cls,
        parts: Sequence[Dependencies],
        calls: pl.DataFrame,
        *,
        is_complete: bool = True,
        missing_share: float = 0.0,
    ) -> "ReplayGraph":
        """Join the dependencies of several windows to a graph. All times are on one clock.

        Args:
            parts: the dependencies of each window.
            calls: the joined collectives: ``part``, an index in ``parts``; ``row``, that of the event in its window;
                ``name``; ``step``; ``call``, the same for all its parts.
            is_complete: True if all ranks were recorded; else calls of unknown size have further ranks.
            missing_share: see the attribute.
        """
        offsets = [0, *accumulate(len(part.nodes) for part in parts)]
        nodes = _add_windows([part.nodes for part in parts])
        edges = _concat_edges(
            part.edges.with_columns(pl.col("source", "target") + offset)
            for part, offset in zip(parts, offsets, strict=False)
        )
        first_node = pl.lit(pl.Series(offsets, dtype=pl.UInt32)).gather("part")
        begin_node = first_node + 2 * pl.col("row")
        calls = calls.with_columns(begin_node=begin_node, end_node=begin_node + 1)
        hubs, of_calls = _collective_edges(calls, offsets[-1])
        ends = edges.filter(pl.col("kind") == "device")
        ends = ends.select("target", "name", "exposed_ns", "group_size", launched_in="step")
        of_calls = of_calls.join(ends, on="target", how="left", maintain_order="left")
        is_message = pl.col("is_message").fill_null(False)
        of_calls = of_calls.with_columns(group_size=pl.when(is_message).then(2).otherwise("group_size"))
        is_call = of_calls.filter(~pl.col("is_entry")).select("target", kind=pl.lit("device"))
        edges = edges.join(is_call, on=["target", "kind"], how="anti")
        is_joined = (pl.col("kind") == "device") & pl.col("target").is_in(calls["end_node"].implode())
        edges = edges.with_columns(
            num_ranks=pl.when(is_joined).then("group_size").otherwise("num_ranks"),
            is_message=is_joined,
            launched_in=pl.when(is_joined).then("step"),
        )
        edges = pl.concat([edges, of_calls], how="diagonal_relaxed")
        all_nodes = pl.concat([nodes, hubs], how="diagonal_relaxed")
        return cls(
            nodes=all_nodes,
            edges=_remove_cycles(all_nodes["time"], edges),
            missing_share=missing_share,
            unjoined_share=_unjoined_share(nodes, edges, is_complete),
            waiting_ns=sum(part.waiting_ns for part in parts),
            unexplained_ns=sum(part.unexplained_ns for part in parts),
            hidden_ns=sum(part.hidden_ns for part in parts),
            slacks=_build_loop_facts(parts, nodes, [part.loader.slack_ns for part in parts], _SLACKS),
            first_waits=_build_loop_facts(parts, nodes, [part.first_wait_ns or None for part in parts], _FIRST_WAITS),
            has_hidden_loader=any(part.loader.is_hidden for part in parts),
            exchanges=calls.filter(pl.col("name") == "all_to_all").select("rank", time="end", piece="call"),
        )

    @property
    def unexplained_share(self) -> float:
        """The share of the time that devices waited without a known reason."""
        return self.unexplained_ns / self.waiting_ns if self.waiting_ns else 0.0

    @property
    def why_untrusted(self) -> str | None:
        """The reason not to trust the savings of a replay; None if there is none."""
        shares = {
            "of the time that devices waited was for nothing that the traces show": self.unexplained_share,
            "of the time was communication with ranks whose traces are missing": self.unjoined_share,
            "of the steps were not recorded on all ranks": self.missing_share,
        }
        for what, share in shares.items():
            if share > MAX_UNEXPLAINED_SHARE:
                limit = format_percent(MAX_UNEXPLAINED_SHARE)
                return f"{format_percent(share)} {what}; above {limit}, a replay is not trusted."
        return None

    def replay(self, change: Change | None = None) -> pl.Series:
        """Return the time of each node with a change."""
        change = change or Change()
        changed = _changed_weights(change, self.edges)
        if change.balanced:
            changed = balance_loads(self.load_rows(change.balanced), changed)
        if change.at_usual_load:
            for rows in (self.load_rows(self.ranks), cpu_load_rows(self.nodes, self.edges)):
                changed = reduce_to_usual_loads(rows, changed, change.at_usual_load)
        return replay_times(self.nodes["time"], self.edges[["source", "target", "weight"]].hstack([changed]))

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks with traces."""
        return frozenset(self.nodes["rank"].drop_nulls().unique().to_list())

    def load_rows(self, ranks: Collection[int]) -> pl.DataFrame:
        """Return the compute kernels of these ranks, as `load_balancing.load_rows` does."""
        return load_rows(self.nodes, self.edges, self.exchanges, sorted(ranks))

    def saving_ns(self, change: Change) -> int:
        """Return the time that the windows save with a change.

        Delays from before the recording remain, also those of ranks that are ``on_time``.
        """
        if not change.on_time:
            return self._limit_by_loaders(change, self._saving_ns(change))
        changed = self._add_substitute(change.on_time)
        saved_ns = max(0, self._now_ns(change.on_time) - changed.time_ns(changed.replay(change), change.on_time))
        return self._limit_by_loaders(change, saved_ns)

    def _limit_by_loaders(self, change: Change, saved_ns: int) -> int:
        """Return the part of a saving that loaders allow: loops cannot be faster than loaders that kept up before."""
        if "data" in change.without and len(self.first_waits):
            waits = self.first_waits.filter(~is_of_ranks(change.on_time)).group_by("window")
            return max(0, saved_ns - int(waits.agg(pl.col("longer_ns").max())["longer_ns"].sum()))
        if not len(self.slacks):
            return saved_ns
        slacks = self.slacks.filter(~is_of_ranks(change.on_time))
        if "data" in change.without or slacks["window"].n_unique() < self.nodes["window"].drop_nulls().n_unique():
            return saved_ns
        return min(saved_ns, int(slacks.group_by("window").agg(pl.col("slack_ns").min())["slack_ns"].sum()))

    def saving_if_never_late_ns(self, on_time: frozenset[int]) -> int:
        """Return the saving if no rank waits for some ranks, including delays from before the recording."""
        return self._saving_ns(Change(on_time=on_time))

    def _saving_ns(self, change: Change) -> int:
        return self._now_ns(change.on_time) - self.time_ns(self.replay(change), change.on_time)

    def _now_ns(self, without: frozenset[int]) -> int:
        """Return the recorded time of the windows."""
        if without not in self.known.now_ns:
            self.known.now_ns[without] = self.time_ns(self.nodes["time"], without)
        return self.known.now_ns[without]

    def without_guesses(self) -> "ReplayGraph":
        """Return the graph in which calls and loops that never waited never wait after a change.

        Its savings are upper bounds.
        """
        edges = self.edges.filter(~pl.col("is_guessed").fill_null(False))
        return replace(self, edges=edges, slacks=self.slacks.clear())

    def _add_substitute(self, on_time: frozenset[int]) -> "ReplayGraph":
        """Return the graph with one more rank in place of those ``on_time``, if they started late."""
        substitutes = self.known.substitutes
        if on_time not in substitutes:
            substitutes[on_time] = find_substitute(self.nodes, self.edges, on_time)
        if (substitute := substitutes[on_time]) is None:
            return self
        nodes, edges = add_substitute(self.nodes, self.edges, substitute)
        return replace(self, nodes=nodes, edges=edges, known=_ReplayCache())

    def gained_by_slice(self, change: Change, num_slices: int) -> list[int]:
        """Return the part of a saving in each of ``num_slices`` slices of each window, in nanoseconds.

        A slice gains what its last end of work moves ahead. Slices have equal numbers of ends, not equal times: a step
        with a long pause is one slice then, and a CPU that runs ahead does not start all its steps in the first one.
        """
        ends = self.nodes.select("window", "time", "is_end").hstack([self.replay(change).alias("replayed")])
        ends = ends.filter("is_end").sort("window", "time")
        part = (pl.int_range(pl.len()) * num_slices // pl.len()).over("window")
        saved = pl.col("time") - pl.col("replayed").cum_max().over("window")
        slices = ends.select("window", part=part, saved=saved).group_by("window", "part", maintain_order=True).last()
        gained = slices.select(pl.col("saved").diff().fill_null(pl.col("saved").first()).clip(0).over("window"))
        return gained["saved"].to_list()

    def lateness_by_rank(self, change: Change) -> dict[int, dict[int, float]]:
        """Return by rank and step the maximum delay of its collective after the first one of its ranks, in ns.

        Ranks that are ``on_time`` in the change are left out.
        """
        times = self.replay(change)
        entries = self.edges.filter(pl.col("is_entry").fill_null(False) & ~is_of_ranks(change.on_time))
        entries = entries.select("rank", "step", "target", begin=times.gather(entries["source"])).drop_nulls()
        after = (pl.col("begin") - pl.col("begin").min()).over("target")
        latest = entries.select("rank", "step", after=after).group_by("rank", "step").agg(pl.col("after").max())
        found: dict[int, dict[int, float]] = {}
        for rank, step, after_ns in latest.sort("rank", "step").iter_rows():
            found.setdefault(rank, {})[step] = float(after_ns)
        return found

    def time_ns(self, times: pl.Series, without: Collection[int] = ()) -> int:
        """Return the duration of the windows, from the first moment of each to its last end.

        Args:
            times: times of the nodes.
            without: ranks that do not count.
        """
        is_end, is_counted = pl.col("is_end"), ~is_of_ranks(without) if without else pl.lit(True)
        windows = (
            self.nodes.hstack([times.alias("replayed")])
            .group_by("window")
            .agg(pl.col("time").filter(is_counted).min(), end=pl.col("replayed").filter(is_counted & is_end).max())
        )
        return int((windows["end"] - windows["time"]).sum())


def _add_windows(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the nodes of all parts with ``window``, the number of the window that each is in.

    Parts that overlap are of one window. Where loops run so far ahead of each other that each rank has several parts in
    it, these are several windows: the first parts of all ranks are one, and so on.
    """
    spans = [
        part.select(begin=pl.col("time").min(), end=pl.col("time").max(), rank=pl.col("rank").first()).with_columns(
            part=pl.lit(index)
        )
        for index, part in enumerate(parts)
    ]
    is_new = (pl.col("begin") > latest_end_before()).fill_null(True)
    bounds = pl.concat(spans).sort("begin").with_columns(overlap=is_new.cum_sum())
    turn = pl.int_range(pl.len()).over("overlap", "rank")
    num_parts = pl.len().over("overlap", "rank")
    is_even = (num_parts.min() == num_parts.max()).over("overlap") & pl.col("rank").is_not_null()
    bounds = bounds.with_columns(turn=pl.when(is_even).then(turn).otherwise(0))
    windows = dict(bounds.select("part", pl.struct("overlap", "turn").rank("dense")).iter_rows())
    return pl.concat([part.with_columns(window=pl.lit(windows[index], pl.UInt32)) for index, part in enumerate(parts)])


def _build_loop_facts(
    parts: Sequence[Dependencies], nodes: pl.DataFrame, values: Iterable[int | None], schema: Mapping[str, Any]
) -> pl.DataFrame:
    """Return a value of the loop of each part, with its rank and window.

    Args:
        parts: the dependencies of each window.
        nodes: the nodes of all parts, in the same order.
        values: the value of each part; None where it is unknown.
        schema: columns of the frame.
    """
    rows, first = [], 0
    for part, value in zip(parts, values, strict=True):
        if value is not None and len(part.nodes):
            rows.append((*nodes.select("rank", "window").row(first), value))
        first += len(part.nodes)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _concat_edges(edges: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return all edges, with the columns that not every kind has."""
    joined = pl.concat(edges, how="diagonal_relaxed")
    columns = dict.fromkeys(
        (
            *(*PARTS, *CPU_OPERATORS, "avoidable_data", "avoidable_python"),
            *("exposed_ns", "group_size", "step", "launched_in"),
        ),
        pl.Int64,
    )
    columns |= {"num_ranks": pl.UInt32, "name": pl.String}
    flags = ("is_communication", "is_entry", "is_guessed", "is_message", "is_for_data", "is_of_cpu_optimizer")
    columns |= dict.fromkeys(flags, pl.Boolean)
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in columns.items() if name not in joined.columns]
    return joined.with_columns(missing)


def _remove_cycles(times: pl.Series, edges: pl.DataFrame) -> pl.DataFrame:
    """Return the edges; if nodes wait for each other, only those from an earlier node to a later one.

    Nodes do so where a kernel started before its launch, because clocks differ.
    """
    try:
        replay_times(times, edges.select("source", "target", "weight", changed="weight"))
    except ValueError:
        since, until = times.gather(edges["source"]), times.gather(edges["target"])
        is_tie = pl.lit(since == until) & (pl.col("source") < pl.col("target"))
        return edges.filter(pl.lit(since < until) | is_tie)
    return edges


def _unjoined_share(nodes: pl.DataFrame, edges: pl.DataFrame, is_complete: bool) -> float:
    """Return the maximum share of a rank's time in communication with ranks that did not record it.

    Where all ranks are there, a call in flight when the recording started does not count: its other ranks started to
    record after it.
    """
    size = pl.col("group_size").fill_null(0 if is_complete else 2**31)
    is_in_flight = pl.col("name").is_null() & pl.lit(is_complete)
    is_single_step = (pl.col("num_ranks").fill_null(1) < size) & ~is_in_flight
    alone = edges.filter(is_single_step).group_by("rank").agg(pl.col("exposed_ns").sum())
    length = pl.col("time").max() - pl.col("time").min()
    lengths = nodes.group_by("rank", "window").agg(length=length).group_by("rank").agg(pl.col("length").sum())
    shares = alone.join(lengths, on="rank", nulls_equal=True).select(pl.col("exposed_ns") / pl.col("length"))
    most: Any = shares["exposed_ns"].max()
    return float(most or 0)


def _collective_edges(calls: pl.DataFrame, first_node: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a node for each call, at its last start, and the edges to it from its starts, and from it to its ends.

    A send may be over before its receive starts: then it ended by itself. It is not late either, since no rank waits
    for it in a collective.
    """
    hub = (first_node + pl.col("call").rank("dense") - 1).cast(pl.UInt32)
    last_begin, num_ranks = pl.col("begin").max().over("call"), pl.len().over("call")
    calls = calls.with_columns(hub=hub, last_begin=last_begin, num_ranks=num_ranks)
    hubs = calls.unique("hub").sort("hub").select(time="last_begin", is_end=pl.lit(False))
    kind, is_message = pl.lit("collective"), (pl.col("name") == SEND).fill_null(False)
    entries = calls.select(
        "rank",
        source="begin_node",
        target="hub",
        kind=kind,
        step=pl.when(~is_message).then("step"),
        is_entry="is_launched",  # a rank was late for a call in flight before anything changed
        is_communication=pl.lit(False),
        num_ranks="num_ranks",
        weight=pl.lit(0, dtype=pl.Int64),
    )
    ends = calls.filter(~is_message | (pl.col("end") >= pl.col("last_begin"))).select(
        "rank",
        source="hub",
        target="end_node",
        kind=kind,
        is_entry=pl.lit(False),
        is_communication=pl.col("is_launched").all().over("call"),
        is_message=is_message,
        num_ranks="num_ranks",
        weight=pl.col("end") - pl.col("last_begin"),
    )
    return hubs, pl.concat([entries, ends], how="diagonal")


def replay_times(times: pl.Series, edges: pl.DataFrame) -> pl.Series:
    """Return the new time of each node.

    Args:
        times: the recorded times.
        edges: ``source``, ``target``, ``weight`` and ``changed``, the new weight.

    Raises:
        ValueError: if some nodes wait for each other.
    """
    schema = {"source": pl.UInt32, "target": pl.UInt32, "weight": pl.Int64, "changed": pl.Int64}
    edges = build_frame(*(edges[name].cast(dtype) for name, dtype in schema.items()))
    nodes = times.cast(pl.Int64).rename("time").to_frame().rechunk()
    found: list[Any] = native.replay_graph(nodes.__arrow_c_stream__(), edges.rechunk().__arrow_c_stream__())
    return pl.Series("time", found[0])


def _saving_of_speedups(faster: Mapping[str, float], columns: Collection[str]) -> pl.Expr:
    """Return the time that edges save with some operators and kernels ``faster``.

    All kernels share one column: a nest of conditions, one for each of 20 kernels, takes gigabytes.
    """
    parts = {name: 1 - 1 / times for name, times in faster.items()}
    of_kernel = pl.col("name").cast(pl.String).replace_strict(parts, default=0.0, return_dtype=pl.Float64)
    is_kernel = pl.col("kind").is_in(["collective", "device"]) & pl.col("name").is_in(list(faster))
    saved = [pl.when(is_kernel).then(pl.col("weight") * of_kernel).otherwise(0.0)]
    for name, part in parts.items():
        if (inside := inside_column(name)) in columns:
            is_itself = is_kernel & (pl.col("name") == name)
            saved.append(pl.when(is_itself).then(0.0).otherwise(pl.col(inside).fill_null(0) * part))
    return pl.sum_horizontal(part.round().cast(pl.Int64) for part in saved)


def is_of_ranks(ranks: Collection[int]) -> pl.Expr:
    """Return whether a row is of one of these ranks; False where its rank is unknown."""
    return pl.col("rank").is_in(sorted(ranks)).fill_null(False)


def _changed_weights(change: Change, edges: pl.DataFrame) -> pl.Series:
    if (
        change == Change(change.without & _HOST_PARTS, balanced=change.balanced, at_usual_load=change.at_usual_load)
        and START_NS not in edges.columns
    ):
        return _subtract_parts(change.without, edges)
    return edges.select(changed=_changed_weight(change, edges.columns))["changed"]


def _subtract_parts(parts: Collection[str], edges: pl.DataFrame) -> pl.Series:
    """Return the changed weights where only parts of CPU time are removed, as in most replays: without a query."""
    weights, kinds = edges["weight"], edges["kind"]
    left = weights
    for part in (edges[name] for name in PARTS if name in parts):
        left = left - part.zip_with(part == part, pl.Series([0]))  # 0 for null
    is_of_host = (kinds == "host") | (kinds == "thread")
    return clip_negative(left).zip_with(is_of_host, weights).alias("changed")


def _changed_weight(change: Change, columns: Collection[str]) -> pl.Expr:
    kind, weight = pl.col("kind"), pl.col("weight")
    nothing = pl.lit(0, dtype=pl.Int64)
    saved = pl.sum_horizontal(nothing, *(part for part in PARTS if part in change.without))
    changed = pl.when(kind.is_in(["host", "thread"])).then((weight - saved).clip(0)).otherwise(weight)
    if change.faster:
        saved = _saving_of_speedups(change.faster, columns)
        changed = pl.when(saved != 0).then((changed - saved).clip(0)).otherwise(changed)
    if "transfer" in change.without:
        changed = pl.when("is_communication").then(0).otherwise(changed)
    for cause, edges in (("sync", "sync"), ("data", "loader")):
        if cause in change.without:
            changed = pl.when(kind == edges).then(DROPPED).otherwise(changed)
    if change.on_time:
        is_late = (kind == "collective") & pl.col("is_entry") & is_of_ranks(change.on_time)
        changed = pl.when(is_late).then(DROPPED).otherwise(changed)
    if START_NS in columns:
        changed += pl.col(START_NS).fill_null(0)
    return changed
