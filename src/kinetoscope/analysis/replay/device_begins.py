"""analysis: why each event of a device began when it did: its launch, the event before it on its stream, or one of
another stream."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.columns import all_the_same, columns_of, known_rows, known_where, rows_where, sorted_by

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
        device = device[[*_COLUMNS, *_OF_LAUNCHES]]  # there are many copies of it
        self._device = device
        launched = sorted_by(known_rows(device, "launch_begin"), "launch_begin")
        events = _with_waited(_with_compute_before(_with_event_before(device), launched), launched, calls)
        self._least_ns = dict.fromkeys(_MOMENTS, 0)
        self._least_ns["launch"] = self._usual_ns(events, "launch", _is_later(events, "launch_begin", "before_end"))
        self._least_ns["stream"] = self._usual_ns(events, "stream", _is_later(events, "before_end", "launch_begin"))
        events = self._with_other_stream(events)
        self._least_ns["other_stream"] = self._usual_ns(events, "other_stream")
        self._least_ns["compute"] = self._least_ns["wait"] = self._least_ns["other_stream"]
        expected = [pl.col(moment) + self._least_ns[cause] for cause, moment in _MOMENTS.items()]
        latest = events.select(latest=pl.max_horizontal(expected))["latest"]
        self.events = events.hstack([self._weight(events, cause, latest) for cause in _MOMENTS])

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
        events, lags = self.events, self.unexplained_ns
        gap = (pl.col("begin") - pl.col("end").cum_max().shift(1).over("device")).clip(0)
        gaps = events.select(gap=gap)["gap"]
        first: Any = known_rows(events[["begin", "launch_begin"]], "launch_begin")["begin"].min()
        if first is not None:
            gaps = known_where(gaps, events["begin"] >= first)
        idle_lags = lags.zip_with(lags < gaps, gaps)  # null for what does not count
        of_computations = (lags - idle_lags).filter(events["kind"] == "compute")
        return int(gaps.sum()), int(idle_lags.sum()), int(of_computations.sum())

    def _usual_ns(self, events: pl.DataFrame, cause: str, is_last: pl.Series | None = None) -> int:
        """How long after a cause its event usually begins, where it is the last cause."""
        delay = events["begin"] - events[_MOMENTS[cause]]
        delay = delay if is_last is None else delay.filter(is_last)
        usual: Any = delay.filter(_is_near(delay)).median()
        return int(usual or 0)

    def _weight(self, events: pl.DataFrame, cause: str, latest: pl.Series) -> pl.Series:
        """The least time from a cause to the begin: as usual; for the cause that comes last as long as it was."""
        moment, least_ns = events[_MOMENTS[cause]], self._least_ns[cause]
        delay = events["begin"] - moment
        is_near = _is_near(delay)
        if cause == "launch":  # its call may do a lot before that, as copy from pageable memory or load a module
            is_near |= events["begin"] <= events["launch_end"]
        is_last = (moment + least_ns >= latest) & is_near
        return delay.zip_with(is_last | (delay < least_ns), pl.Series([least_ns])).alias(f"{cause}_ns")

    def _with_other_stream(self, events: pl.DataFrame) -> pl.DataFrame:
        """With ``other`` and ``other_end``, the last event that ended on another stream just before this one began, if
        neither the launch nor the own stream says why it began then."""
        events = _last_ends_of_other_streams(events, self._device)
        after_launch = pl.col("launch_begin") + self._least_ns["launch"] - self._least_ns["stream"]
        explained = pl.max_horizontal("before_end", "launch_begin", after_launch).fill_null(_LONG_AGO)
        is_near = pl.col("begin") - pl.col("other_end") <= NEAR_NS
        is_cause = is_near & (pl.col("other_end") > explained)
        return _known_where(events, ("other", "other_end"), events.select(is_cause=is_cause)["is_cause"])


def _is_near(delay: pl.Series) -> pl.Series:
    return (delay >= 0) & (delay <= NEAR_NS)


def _is_later(events: pl.DataFrame, one: str, than: str) -> pl.Series:
    others = events[than]
    return events[one] >= (others.fill_null(_LONG_AGO) if others.has_nulls() else others)


def _known_where(events: pl.DataFrame, names: Sequence[str], is_known: pl.Series) -> pl.DataFrame:
    """The events with nulls in these columns where they are not known."""
    return events.with_columns([known_where(events[name], is_known) for name in names])


def _with_event_before(device: pl.DataFrame) -> pl.DataFrame:
    """With ``before`` and ``before_end``, the last event of the same stream, if that has ended."""
    before, before_end = (pl.col(name).shift(1).over("device", "stream") for name in ("end_node", "end"))
    events = device.with_columns(before=before, before_end=before_end)
    return _known_where(events, ("before", "before_end"), events["before_end"] <= events["begin"])


def _with_compute_before(events: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """With ``compute`` and ``compute_end``, for communication: the last event that was launched before it on the stream
    of the last computation launched before it; ``launched`` are the events in the order of their launches."""
    is_communication = launched["kind"] == "communication"
    asking = rows_where(launched[["begin_node", "begin", "launch_begin", "device"]], is_communication)
    if not len(asking):
        return _with_none(events, "compute")
    computes = rows_where(launched[["launch_begin", "device", "stream"]], launched["kind"] == "compute")
    others = columns_of(launched, "launch_begin", "device", "stream", compute="end_node", compute_end="end")
    others = rows_where(others, ~is_communication)
    found = asking.join_asof(computes, on="launch_begin", by="device", **_ORDERED)
    found = found.join_asof(others, on="launch_begin", by=["device", "stream"], **_ORDERED)
    found = rows_where(found[["begin_node", "compute", "compute_end"]], found["compute_end"] <= found["begin"])
    return events.join(found, on="begin_node", how="left", maintain_order="left")


def _with_none(events: pl.DataFrame, cause: str) -> pl.DataFrame:
    """With the columns of a cause that no event has."""
    names = {cause: "end_node", f"{cause}_end": "end"}
    return events.hstack([all_the_same(new, None, events[name].dtype, len(events)) for new, name in names.items()])


def _with_waited(events: pl.DataFrame, launched: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """With ``waited`` and ``waited_end``, for the first event that was launched after a call that lets a stream wait:
    the last communication launched before the last event that was recorded by then. It is the first one of the same
    thread, and the first one of any: autograd's thread calls for a wait, and the loop's launches what waits."""
    names = calls["name"]
    waits = rows_where(columns_of(calls, "track", at="begin"), names.str.ends_with("StreamWaitEvent"))
    if not len(waits):
        return _with_none(events, "waited")
    records = rows_where(columns_of(calls, recorded="begin"), names.str.contains("EventRecord"))
    communication = columns_of(launched, "launch_begin", waited="end_node", waited_end="end")
    communication = rows_where(communication, launched["kind"] == "communication")
    waits = known_rows(waits.join_asof(records, left_on="at", right_on="recorded"), "recorded")
    waits = waits.join_asof(communication, left_on="recorded", right_on="launch_begin")
    launched = launched[["begin_node", "begin", "kind", "launch_begin", "launch_track"]]
    next_launch: Any = {"left_on": "at", "right_on": "launch_begin", "strategy": "forward"}
    of_thread = waits.join_asof(launched, by_left="track", by_right="launch_track", **next_launch, **_ORDERED)
    columns = ["begin_node", "begin", "kind", "waited", "waited_end"]
    found = pl.concat([of_thread[columns], waits.join_asof(launched, **next_launch)[columns]])
    is_its_end = (found["waited_end"] <= found["begin"]) & (found["kind"] != "communication")
    found = rows_where(found[["begin_node", "waited", "waited_end"]], is_its_end).sort("waited_end")
    return events.join(found.unique("begin_node", keep="last"), on="begin_node", how="left", maintain_order="left")


def _last_ends_of_other_streams(events: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Each event with ``other`` and ``other_end``, the last end before it began on another stream of its device."""
    took_time = device["end"] > device["begin"]  # two that did not, at the same time, would wait for each other
    ends = columns_of(device, "device", other_stream="stream", other="end_node", other_end="end")
    ends = (
        rows_where(ends, took_time)
        .sort("other_end")
        .with_columns(
            pl.col("other").shift(1).over("device").alias("last_other"),
            pl.col("other_end").shift(1).over("device").alias("last_end"),
            run=pl.col("other_stream").rle_id().over("device"),
        )
    )
    first = pl.col("last_other", "last_end").first().over("device", "run")
    ends = ends.select("device", "other_stream", "other", "other_end", first, key="other_end")
    found = events.join_asof(ends, left_on="begin", right_on="key", by="device", **_ORDERED)
    is_other = found["other_stream"] != found["stream"]
    others = {"other": "last_other", "other_end": "last_end"}
    return found.with_columns([found[name].zip_with(is_other, found[last]) for name, last in others.items()])
