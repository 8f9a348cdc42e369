"""analysis: why each event of a device began when it did: its launch, the event before it on its stream, or one of
another stream."""

from functools import cached_property
from typing import Any

import polars as pl

NEAR_NS = 30_000
"""An event that begins so soon after something has waited for that, if it is the last thing that it can have waited
for. What is longer than that is not explained."""

_MOMENTS = {
    "launch": "launch_begin",
    "stream": "before_end",
    "other_stream": "other_end",
    "compute": "compute_end",
    "wait": "waited_end",
}
"""The column with the time of each cause."""

_COLUMNS = ("begin", "end", "begin_node", "end_node", "device", "stream", "kind")
_OF_LAUNCHES = ("launch_begin", "launch_end", "launch_track")
_LONG_AGO = -(2**62)
_ORDERED: Any = {"check_sortedness": False}  # polars cannot check it within groups, and says so


class DeviceBegins:
    """The causes of the begins of events, which are rows with ``begin_node`` and ``end_node``.

    ``events`` has for each the time of each cause, null where there is none: ``launch_begin``; ``before_end``, of the
    event ``before`` it on its stream; ``other_end``, of an event ``other`` on another stream, for which it seems to
    have waited; for communication ``compute_end``, of the last ``compute`` event that was launched before it; and
    ``waited_end``, of the communication ``waited`` for which ``calls`` of the runtime made its stream wait. For each
    cause there is the least time from it to the begin: ``launch_ns``, ``stream_ns``, ``other_stream_ns``,
    ``compute_ns``, ``wait_ns``.
    """

    def __init__(self, device: pl.DataFrame, calls: pl.DataFrame) -> None:
        device = device.select(*_COLUMNS, *_OF_LAUNCHES)  # there are many copies of it
        self._device = device
        launched = device.drop_nulls("launch_begin").sort("launch_begin")
        events = _with_waited(_with_compute_before(_with_event_before(device), launched), launched, calls)
        self._least_ns = dict.fromkeys(_MOMENTS, 0)
        self._least_ns["launch"] = self._usual_ns(events, "launch", _is_later("launch_begin", "before_end"))
        self._least_ns["stream"] = self._usual_ns(events, "stream", _is_later("before_end", "launch_begin"))
        events = self._with_other_stream(events)
        self._least_ns["other_stream"] = self._usual_ns(events, "other_stream", pl.lit(True))
        self._least_ns["compute"] = self._least_ns["wait"] = self._least_ns["other_stream"]
        expected = [pl.col(moment) + self._least_ns[cause] for cause, moment in _MOMENTS.items()]
        latest = events.select(latest=pl.max_horizontal(expected))["latest"]
        self.events = events.with_columns(self._weight(cause, latest).alias(f"{cause}_ns") for cause in _MOMENTS)

    @cached_property
    def unexplained_ns(self) -> pl.Series:
        """How long each event began after everything that it is known to have waited for."""
        known = [pl.col(moment) + pl.col(f"{cause}_ns") for cause, moment in _MOMENTS.items()]
        return self.events.select((pl.col("begin") - pl.max_horizontal(known)).fill_null(0).alias("lag"))["lag"]

    @cached_property
    def waiting(self) -> tuple[int, int, int]:
        """For how many nanoseconds devices did nothing between two events, and how much of it is not explained; and for
        how many more that is so of computations, while devices communicated.

        What was in flight when the recording began does not count: what it waited for was not recorded, and no change
        moves it.
        """
        rows = self.events.select("device", "begin", "end", "kind", "launch_begin", lag=self.unexplained_ns)
        gap = (pl.col("begin") - pl.col("end").cum_max().shift(1).over("device")).clip(0)
        is_compute = pl.col("kind") == "compute"
        first = pl.col("begin").filter(pl.col("launch_begin").is_not_null()).min()
        rows = rows.with_columns(gap=gap).filter((pl.col("begin") >= first).fill_null(True)).drop_nulls("gap")
        idle_lag = pl.min_horizontal("lag", "gap")
        sums = rows.select("gap", idle_lag, hidden=pl.when(is_compute).then(pl.col("lag") - idle_lag)).sum()
        return int(sums["gap"][0]), int(sums["lag"][0]), int(sums["hidden"][0])

    def _usual_ns(self, events: pl.DataFrame, cause: str, is_last: pl.Expr) -> int:
        """How long after a cause its event usually begins, where it is the last cause."""
        delay = (pl.col("begin") - pl.col(_MOMENTS[cause])).filter(is_last)
        usual = events.select(delay.filter(delay.is_between(0, NEAR_NS)).median()).item()
        return int(usual or 0)

    def _weight(self, cause: str, latest: pl.Series) -> pl.Expr:
        """The least time from a cause to the begin: as usual; for the cause that comes last as long as it was."""
        delay = pl.col("begin") - pl.col(_MOMENTS[cause])
        is_near = delay.is_between(0, NEAR_NS)
        if cause == "launch":  # its call may do a lot before that, as copy from pageable memory or load a module
            is_near |= (pl.col("begin") <= pl.col("launch_end")).fill_null(False)
        is_last = (pl.col(_MOMENTS[cause]) + self._least_ns[cause] >= latest) & is_near
        return pl.when(is_last).then(delay).otherwise(pl.min_horizontal(delay, pl.lit(self._least_ns[cause])))

    def _with_other_stream(self, events: pl.DataFrame) -> pl.DataFrame:
        """With ``other`` and ``other_end``, the last event that ended on another stream just before this one began, if
        neither the launch nor the own stream says why it began then."""
        events = _last_ends_of_other_streams(events, self._device)
        after_launch = pl.col("launch_begin") + self._least_ns["launch"] - self._least_ns["stream"]
        explained = pl.max_horizontal("before_end", "launch_begin", after_launch).fill_null(_LONG_AGO)
        is_near = pl.col("begin") - pl.col("other_end") <= NEAR_NS
        is_cause = is_near & (pl.col("other_end") > explained)
        return events.with_columns(pl.when(is_cause).then(name).alias(name) for name in ("other", "other_end"))


def _is_later(one: str, than: str) -> pl.Expr:
    return (pl.col(one) >= pl.col(than).fill_null(_LONG_AGO)).fill_null(False)


def _with_event_before(device: pl.DataFrame) -> pl.DataFrame:
    """With ``before`` and ``before_end``, the last event of the same stream, if that has ended."""
    before, before_end = (pl.col(name).shift(1).over("device", "stream") for name in ("end_node", "end"))
    events = device.with_columns(before=before, before_end=before_end)
    is_over = pl.col("before_end") <= pl.col("begin")
    return events.with_columns(pl.when(is_over).then(name).alias(name) for name in ("before", "before_end"))


def _with_compute_before(events: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """With ``compute`` and ``compute_end``, for communication: the last event that was launched before it on the stream
    of the last computation launched before it; ``launched`` are the events in the order of their launches."""
    asking = launched.filter(pl.col("kind") == "communication")[["begin_node", "begin", "launch_begin", "device"]]
    if not len(asking):
        return _with_none(events, "compute")
    computes = launched.filter(pl.col("kind") == "compute")[["launch_begin", "device", "stream"]]
    others = launched.filter(pl.col("kind") != "communication")
    others = others.select("launch_begin", "device", "stream", compute="end_node", compute_end="end")
    found = asking.join_asof(computes, on="launch_begin", by="device", **_ORDERED)
    found = found.join_asof(others, on="launch_begin", by=["device", "stream"], **_ORDERED)
    found = found.filter(pl.col("compute_end") <= pl.col("begin"))[["begin_node", "compute", "compute_end"]]
    return events.join(found, on="begin_node", how="left", maintain_order="left")


def _with_none(events: pl.DataFrame, cause: str) -> pl.DataFrame:
    """With the columns of a cause that no event has."""
    node, time = (pl.lit(None, events.schema[name]) for name in ("end_node", "end"))
    return events.with_columns(node.alias(cause), time.alias(f"{cause}_end"))


def _with_waited(events: pl.DataFrame, launched: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """With ``waited`` and ``waited_end``, for the first event that was launched after a call that lets a stream wait:
    the last communication launched before the last event that was recorded by then. It is the first one of the same
    thread, and the first one of any: autograd's thread calls for a wait, and the loop's launches what waits."""
    name, calls = pl.col("name").str, calls[["name", "track", "begin"]]
    waits = calls.filter(name.ends_with("StreamWaitEvent")).select("track", at="begin")
    if not len(waits):
        return _with_none(events, "waited")
    records = calls.filter(name.contains("EventRecord")).select(recorded="begin")
    communication = launched.filter(pl.col("kind") == "communication")
    communication = communication.select("launch_begin", waited="end_node", waited_end="end")
    waits = waits.join_asof(records, left_on="at", right_on="recorded").drop_nulls("recorded")
    waits = waits.join_asof(communication, left_on="recorded", right_on="launch_begin")
    launched = launched[["begin_node", "begin", "kind", "launch_begin", "launch_track"]]
    next_launch: Any = {"left_on": "at", "right_on": "launch_begin", "strategy": "forward"}
    of_thread = waits.join_asof(launched, by_left="track", by_right="launch_track", **next_launch, **_ORDERED)
    columns = ["begin_node", "begin", "kind", "waited", "waited_end"]
    found = pl.concat([of_thread.select(columns), waits.join_asof(launched, **next_launch).select(columns)])
    found = found.filter((pl.col("waited_end") <= pl.col("begin")) & (pl.col("kind") != "communication"))
    found = found[["begin_node", "waited", "waited_end"]].sort("waited_end")
    return events.join(found.unique("begin_node", keep="last"), on="begin_node", how="left", maintain_order="left")


def _last_ends_of_other_streams(events: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Each event with ``other`` and ``other_end``, the last end before it began on another stream of its device."""
    took_time = pl.col("end") > pl.col("begin")  # two that did not, at the same time, would wait for each other
    ends = device.filter(took_time).select("device", other_stream="stream", other="end_node", other_end="end")
    ends = ends.sort("other_end").with_columns(
        pl.col("other").shift(1).over("device").alias("last_other"),
        pl.col("other_end").shift(1).over("device").alias("last_end"),
        run=pl.col("other_stream").rle_id().over("device"),
    )
    first = pl.col("last_other", "last_end").first().over("device", "run")
    ends = ends.select("device", "other_stream", "other", "other_end", first, key="other_end")
    found = events.join_asof(ends, left_on="begin", right_on="key", by="device", **_ORDERED)
    is_other = pl.col("other_stream") != pl.col("stream")
    return found.with_columns(
        other=pl.when(is_other).then("other").otherwise("last_other"),
        other_end=pl.when(is_other).then("other_end").otherwise("last_end"),
    )
