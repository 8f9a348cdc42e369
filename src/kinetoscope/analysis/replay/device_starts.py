"""Causes of the start of each device event: its launch, the event before it on its stream, or one of another stream."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.windows.columns import (
    add_constant_column,
    constant_column,
    drop_null_rows,
    filter_rows,
    null_unless,
    select_columns,
    sort_rows,
)
from kinetoscope.analysis.windows.intervals import latest_end_before

MAX_CAUSE_DELAY_NS = 30_000
"""Maximum delay between a cause and an event that waited for it; longer delays are unexplained. Two events of a stream
that overlap by more run in parallel."""

MAX_OVERLAP_NS = 5_000
"""Maximum time by which the recorded end of a cause may come after the start of its event. Programmatic dependent
launches let kernels overlap by 0.9 us on B200 and up to 3 us on H100."""

_MOMENTS = {
    "launch": "launch_begin",
    "stream": "before_end",
    "other_stream": "other_end",
    "compute": "compute_end",
    "wait": "waited_end",
}
"""The column with the time of each cause."""

_COLUMNS = ("begin", "end", "begin_node", "end_node", "device", "stream", "kind")
_LAUNCH_COLUMNS = ("launch_begin", "launch_end", "launch_track")
_EARLIEST_NS = -(2**62)
_ORDERED: Any = {"check_sortedness": False}  # polars cannot check it within groups, and warns


class DeviceStarts:
    """The causes of the starts of events, which are rows with ``begin_node`` and ``end_node``.

    ``events`` has for each the time of each cause, null where there is none:

    - ``launch_begin``, of its launch.
    - ``before_end``, of the event ``before`` it on its stream.
    - ``other_end``, of an event ``other`` that it probably waited for, mostly on another stream.
    - ``compute_end``, of the last ``compute`` event launched before it; for communication only.
    - ``waited_end``, of the communication ``waited`` that its stream waits for by ``calls`` of the runtime.

    For each cause there is the minimum time from it to the start: ``launch_ns``, ``stream_ns``, ``other_stream_ns``,
    ``compute_ns``, ``wait_ns``. It is negative where the two overlap.
    """

    def __init__(self, device: pl.DataFrame, calls: pl.DataFrame) -> None:
        device = device[[*_COLUMNS, *_LAUNCH_COLUMNS]]  # there are many copies of it
        self._device = device
        launched = sort_rows(drop_null_rows(device, "launch_begin"), "launch_begin")
        events = _add_waited(_add_compute_before(_add_event_before(device), launched), launched, calls)
        launch_ns = _usual_ns(_delays(events, "launch").filter(_is_later(events, "launch_begin", "before_end")))
        self._min_delays_ns = dict.fromkeys(_MOMENTS, constant_column("least", 0, pl.Int64, len(events)))
        self._min_delays_ns["launch"] = constant_column("least", launch_ns, pl.Int64, len(events))
        self._min_delays_ns["stream"] = _usual_after_stream_ns(events, launch_ns)
        events = self._add_other_stream(events)
        other_ns = _usual_ns(_delays(events, "other_stream"))
        for cause in ("other_stream", "compute", "wait"):
            self._min_delays_ns[cause] = constant_column("least", other_ns, pl.Int64, len(events))
        expected = [pl.col(moment) + self._min_delays_ns[cause] for cause, moment in _MOMENTS.items()]
        latest = events.select(latest=pl.max_horizontal(expected))["latest"]
        self.events = events.hstack([self._weight(events, cause, latest) for cause in _MOMENTS])

    @cached_property
    def unexplained_ns(self) -> pl.Series:
        """The time of each event's start after all its known causes."""
        known = [pl.col(moment) + pl.col(f"{cause}_ns") for cause, moment in _MOMENTS.items()]
        return self.events.select((pl.col("begin") - pl.max_horizontal(known)).fill_null(0).alias("lag"))["lag"]

    @cached_property
    def overlapping(self) -> pl.DataFrame:
        """The events that start before the end of the one ``before``, which started at the node ``begin_before``."""
        found = filter_rows(self.events[["begin_node", "before"]], self.events["stream_ns"] < 0)
        begins = (found["before"] // 2 * 2).alias("begin_before")  # nodes of events come in pairs
        return add_constant_column(found[["begin_node"]].hstack([begins]), "order_ns", 0, pl.Int64)

    @cached_property
    def waiting(self) -> tuple[int, int, int]:
        """Idle time of devices between events, the unexplained part of it, and unexplained waits of computations.

        The last are those while devices communicated; all are nanoseconds. Events in flight when the recording started
        do not count: their causes were not recorded, and no change moves them.
        """
        events, lags = self.events, self.unexplained_ns
        gap = (pl.col("begin") - latest_end_before().over("device")).clip(0)
        gaps = events.select(gap=gap)["gap"]
        first: Any = drop_null_rows(events[["begin", "launch_begin"]], "launch_begin")["begin"].min()
        if first is not None:
            gaps = null_unless(gaps, events["begin"] >= first)
        idle_lags = lags.zip_with(lags < gaps, gaps)  # null for events that do not count
        of_computations = (lags - idle_lags).filter(events["kind"] == "compute")
        return int(gaps.sum()), int(idle_lags.sum()), int(of_computations.sum())

    def _weight(self, events: pl.DataFrame, cause: str, latest: pl.Series) -> pl.Series:
        """Return the minimum time from a cause to the start: the usual one; for the last cause the recorded one."""
        moment, min_ns = events[_MOMENTS[cause]], self._min_delays_ns[cause]
        delay = _delays(events, cause)
        is_near = _is_near(delay)
        if cause == "launch":  # its call may first copy from pageable memory, or load a module
            is_near |= events["begin"] <= events["launch_end"]
        is_last = (moment + min_ns >= latest) & is_near
        return delay.zip_with(is_last | (delay < min_ns), min_ns).alias(f"{cause}_ns")

    def _add_other_stream(self, events: pl.DataFrame) -> pl.DataFrame:
        """Add ``other`` and ``other_end``, the last event that ended on another stream just before this one started.

        It counts if neither the launch nor the own stream explains the start. Where no event ended just before, it is
        the last one that ended just after.
        """
        ends = _find_stream_ends(self._device)
        after_launch = pl.col("launch_begin") + self._min_delays_ns["launch"] - self._min_delays_ns["stream"]
        explained = pl.max_horizontal("before_end", "launch_begin", after_launch).fill_null(_EARLIEST_NS)
        events = _add_other_event(events.with_columns(explained=explained), ends, 0)
        is_late = events.select(is_late=pl.col("begin") - explained > MAX_OVERLAP_NS)["is_late"]
        is_late &= events["other"].is_null()
        if is_late.any():
            overlapping = _add_other_event(
                filter_rows(events, is_late).drop("other", "other_end"), ends, MAX_OVERLAP_NS
            )
            overlapping = drop_null_rows(overlapping[["begin_node", "other", "other_end"]], "other")
            events = events.update(overlapping, on="begin_node") if len(overlapping) else events
        return events.drop("explained")


def _delays(events: pl.DataFrame, cause: str) -> pl.Series:
    """Return the time from a cause to the start of each event; null where there is no such cause."""
    return events["begin"] - events[_MOMENTS[cause]]


def _usual_ns(delays: pl.Series, default: int = 0) -> int:
    """Return the mean of the middle half of delays. Where kernels overlap, no single delay is typical."""
    near = delays.filter(_is_near(delays)).sort()
    middle: Any = near[len(near) // 4 : len(near) - len(near) // 4].mean()
    return default if middle is None else round(middle)


def _usual_after_stream_ns(events: pl.DataFrame, launch_ns: int) -> pl.Series:
    """Return for each event the usual delay of its kind after the event before it on its stream.

    Only those count that did not wait for their launch. Only kernels overlap, copies do not.
    """
    is_last = _is_later(events, "before_end", "launch_begin")
    is_last &= (_delays(events, "launch") > launch_ns).fill_null(True)
    delays, kinds = null_unless(_delays(events, "stream"), is_last), events["kind"]
    of_all = _usual_ns(delays)
    usual = constant_column("least", of_all, pl.Int64, len(events))
    for kind in kinds.unique():
        of_kind = pl.Series([_usual_ns(delays.filter(kinds == kind), of_all)])
        usual = usual.zip_with(kinds != kind, of_kind)
    return usual


def _is_near(delay: pl.Series) -> pl.Series:
    return (delay >= -MAX_CAUSE_DELAY_NS) & (delay <= MAX_CAUSE_DELAY_NS)


def _is_later(events: pl.DataFrame, one: str, than: str) -> pl.Series:
    others = events[than]
    return events[one] >= (others.fill_null(_EARLIEST_NS) if others.has_nulls() else others)


def _null_where(events: pl.DataFrame, names: Sequence[str], is_known: pl.Series) -> pl.DataFrame:
    """Return the events with nulls in these columns where they are unknown."""
    return events.with_columns([null_unless(events[name], is_known) for name in names])


def _add_event_before(device: pl.DataFrame) -> pl.DataFrame:
    """Add ``before`` and ``before_end``: the end of the event before on the same stream.

    It may come after the start of the next one. Where that is far after it, the two run in parallel, and it is the
    start of the event before.
    """
    before, before_end = (pl.col(name).shift(1).over("device", "stream") for name in ("end_node", "end"))
    events = device.with_columns(before=before, before_end=before_end)
    is_beside = events["before_end"] - events["begin"] > MAX_CAUSE_DELAY_NS
    if not is_beside.any():
        return events
    begin = events.select(pl.col("begin").shift(1).over("device", "stream"))["begin"]
    return events.with_columns(
        before=(events["before"] - 1).zip_with(is_beside, events["before"]),  # nodes of events come in pairs
        before_end=begin.zip_with(is_beside, events["before_end"]),
    )


def _is_over(events: pl.DataFrame, end: str, begin: str) -> pl.Series:
    """Return whether a cause had ended when its event started, or started earlier and overlaps it by little."""
    after = events[end] - events["begin"]
    return (after <= 0) | ((after <= MAX_OVERLAP_NS) & (events[begin] < events["begin"]))


def _add_compute_before(events: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Add ``compute`` and ``compute_end`` to communication.

    It is the last event that was launched before it on the stream of the last computation launched before it. The
    events ``launched`` are in the order of their launches.
    """
    is_communication = launched["kind"] == "communication"
    communications = filter_rows(launched[["begin_node", "begin", "launch_begin", "device"]], is_communication)
    if not len(communications):
        return _add_null_cause(events, "compute")
    computes = filter_rows(launched[["launch_begin", "device", "stream"]], launched["kind"] == "compute")
    others = select_columns(
        launched, "launch_begin", "device", "stream", compute="end_node", compute_begin="begin", compute_end="end"
    )
    others = filter_rows(others, ~is_communication)
    found = communications.join_asof(computes, on="launch_begin", by="device", **_ORDERED)
    found = found.join_asof(others, on="launch_begin", by=["device", "stream"], **_ORDERED)
    is_over = _is_over(found, "compute_end", "compute_begin")
    found = filter_rows(found[["begin_node", "compute", "compute_end"]], is_over)
    return events.join(found, on="begin_node", how="left", maintain_order="left")


def _add_null_cause(events: pl.DataFrame, cause: str) -> pl.DataFrame:
    """Add the columns of a cause that no event has."""
    names = {cause: "end_node", f"{cause}_end": "end"}
    return events.hstack([constant_column(new, None, events[name].dtype, len(events)) for new, name in names.items()])


def _add_waited(events: pl.DataFrame, launched: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add ``waited`` and ``waited_end`` to the first event that was launched after a call that lets a stream wait.

    They are of the last communication launched before the last event that was recorded by then. The event is the first
    one of the same thread, and the first one of any: autograd's thread calls for a wait, and the loop's launches the
    kernel that waits.
    """
    names = calls["name"]
    waits = filter_rows(select_columns(calls, "track", at="begin"), names.str.ends_with("StreamWaitEvent"))
    if not len(waits):
        return _add_null_cause(events, "waited")
    records = filter_rows(select_columns(calls, recorded="begin"), names.str.contains("EventRecord"))
    communication = select_columns(launched, "launch_begin", waited="end_node", waited_begin="begin", waited_end="end")
    communication = filter_rows(communication, launched["kind"] == "communication")
    waits = drop_null_rows(waits.join_asof(records, left_on="at", right_on="recorded"), "recorded")
    waits = waits.join_asof(communication, left_on="recorded", right_on="launch_begin")
    launched = launched[["begin_node", "begin", "kind", "launch_begin", "launch_track"]]
    next_launch: Any = {"left_on": "at", "right_on": "launch_begin", "strategy": "forward"}
    of_thread = waits.join_asof(launched, by_left="track", by_right="launch_track", **next_launch, **_ORDERED)
    columns = ["begin_node", "begin", "kind", "waited", "waited_begin", "waited_end"]
    found = pl.concat([of_thread[columns], waits.join_asof(launched, **next_launch)[columns]])
    is_its_end = _is_over(found, "waited_end", "waited_begin") & (found["kind"] != "communication")
    found = filter_rows(found[["begin_node", "waited", "waited_end"]], is_its_end).sort("waited_end")
    return events.join(found.unique("begin_node", keep="last"), on="begin_node", how="left", maintain_order="left")


def _find_stream_ends(device: pl.DataFrame) -> pl.DataFrame:
    """Return the ends of events in order, each with the last one before it on another stream of its device."""
    took_time = device["end"] > device["begin"]  # two that did not, at the same time, would wait for each other
    ends = select_columns(
        device, "device", other_stream="stream", other="end_node", other_begin="begin", other_end="end"
    )
    ends = filter_rows(ends, took_time).sort("other_end")
    moments = ("other", "other_begin", "other_end")
    ends = ends.with_columns(
        *(pl.col(name).shift(1).over("device").alias(f"last_{name}") for name in moments),
        run=pl.col("other_stream").rle_id().over("device"),
    )
    first = pl.col(f"last_{name}" for name in moments).first().over("device", "run")
    return ends.select("device", "other_stream", *moments, first, key="other_end")


def _add_other_event(events: pl.DataFrame, ends: pl.DataFrame, overlap_ns: int) -> pl.DataFrame:
    """Add ``other`` and ``other_end``: the last end, at most so long after each event's start, later than its causes.

    It is of another stream, or of an event of its own that overlaps the event before.
    """
    until = events["begin"] + overlap_ns
    found = events.hstack([until.alias("until")]).join_asof(
        ends, left_on="until", right_on="key", by="device", **_ORDERED
    )
    overlaps_before = (found["other_begin"] < found["begin"]) & found["other"].ne_missing(found["before"])
    is_other = (found["other_stream"] != found["stream"]) | overlaps_before
    names = ("other", "other_begin", "other_end")
    found = found.with_columns([found[name].zip_with(is_other, found[f"last_{name}"]) for name in names])
    delay = found["begin"] - found["other_end"]
    is_cause = (
        (delay <= MAX_CAUSE_DELAY_NS)
        & (found["other_end"] > found["explained"])
        & _is_over(found, "other_end", "other_begin")
    )
    return _null_where(found[[*events.columns, "other", "other_end"]], ("other", "other_end"), is_cause)
