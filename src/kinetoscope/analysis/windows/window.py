"""A window of one rank: frames of what it recorded, and selections of spans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import polars as pl

from kinetoscope.analysis.windows import schemas
from kinetoscope.analysis.windows.columns import drop_null_rows, filter_rows, null_unless, select_columns
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.span_names import OPERATORS, PATTERNS, PYTHON_FUNCTION, RUNTIME_CALLS
from kinetoscope.formats.trace_names import NOTES, STEP
from kinetoscope.frames.trace import Trace

_IS_SOURCE_INSTANT = pl.col("category").is_in(list(NOTES))
_IS_OPERATOR = pl.col("category").is_in(list(OPERATORS)) & ~pl.col("name").str.starts_with(STEP)
_MEMORY = "[memory]"
_CPU_DEVICE_TYPE = 0  # c10::DeviceType
MIN_STEPS = 8
"""With fewer steps in a recording, growth from step to step and periods are not reported."""

MIN_RECURRING_STEPS = 3
"""Stalls of the loop in fewer steps of a recording may be noise."""

_NO_TRACK = 2**32 - 1


class DeviceTime(NamedTuple):
    """Time of one device: in compute kernels, in all kernels including communication, and in any event."""

    compute: IntervalUnion
    kernels: IntervalUnion
    busy: IntervalUnion

    @classmethod
    def of(cls, events: pl.DataFrame) -> "DeviceTime":
        """Return the time of some events of one device."""
        times, kind = events[["begin", "end"]], events["kind"]
        kernels = filter_rows(times, kind != "copy")
        return cls(IntervalUnion(filter_rows(times, kind == "compute")), IntervalUnion(kernels), IntervalUnion(times))


@dataclass(frozen=True)
class RankWindow:
    """One window of one rank. Frames are in the order of ``begin``; times are nanoseconds on the clock of the trace.

    ``cpu_spans`` has the spans of threads, ``device`` the kernels, copies and sets, of ``kind`` ``compute``,
    ``communication`` or ``copy``, with ``launch_begin``, ``launch_end`` and ``launch_track`` of the call that launched
    each, null where that was not recorded. ``steps`` has ``step`` and the thread of the loop, ``samples`` the frames of
    sampled stacks, which are on tracks of their own. ``unknown_device_events`` counts, by category, events that seem to
    be of a device, and are of an unknown kind. ``trace_with_warmup`` is the trace with warm-up batches, if it has some.
    ``inferred_from`` is the name of the spans between steps that were inferred, None for steps that have spans.
    """

    trace: Trace
    rank: int | None
    cpu_spans: pl.DataFrame
    device: pl.DataFrame
    steps: pl.DataFrame
    samples: pl.DataFrame
    watched_phases: pl.DataFrame
    unknown_device_events: Mapping[str, int] = field(default_factory=dict)
    trace_with_warmup: Trace | None = None
    inferred_from: str | None = None

    def __post_init__(self) -> None:
        """Check the columns of its frames."""
        for frame, schema, subject in (
            (self.cpu_spans, schemas.SPANS, "Spans of threads"),
            (self.device, schemas.DEVICE_EVENTS, "Device events"),
            (self.steps, schemas.STEPS, "Steps"),
            (self.samples, schemas.SPANS, "Frames of samples"),
            (self.watched_phases, schemas.SPANS, "Phases"),
        ):
            schemas.require(frame, schema, subject)

    @cached_property
    def loop_track(self) -> int:
        """The thread of the training loop: the one with the steps, else the one with the most operators, if any."""
        if len(self.steps):
            return int(self.steps["track"][0])
        counts = self.operators.group_by("track").len().sort("len", "track", descending=[True, False])
        return int(counts["track"][0]) if len(counts) else _NO_TRACK

    @cached_property
    def operators(self) -> pl.DataFrame:
        """The spans of operators on every thread, as `schemas.OPERATORS`. Old traces count steps among them."""
        return filter_rows(self.cpu_spans.hstack([self.labels])[[*schemas.OPERATORS]], self.is_operator)

    @cached_property
    def is_operator(self) -> pl.Series:
        """True for each span of ``cpu_spans`` that is an operator."""
        return self.cpu_spans.select(is_operator=_IS_OPERATOR)["is_operator"]

    @cached_property
    def labels(self) -> pl.Series:
        """The ``label`` of each span of ``cpu_spans``: its name as a category, which is quick to group by."""
        return self.cpu_spans["name"].cast(pl.Categorical).alias("label")

    @cached_property
    def loop_operators(self) -> pl.DataFrame:
        """The operators of the loop's thread."""
        return self.on_loop_thread(self.operators)

    @cached_property
    def operator_time(self) -> IntervalUnion:
        """The time of the loop's thread in operators."""
        return IntervalUnion(self.loop_operators)

    @cached_property
    def runtime_calls(self) -> pl.DataFrame:
        """Calls of the device's runtime and driver, on every thread."""
        return self.spans_in_category(*RUNTIME_CALLS)

    @cached_property
    def has_launched(self) -> pl.Series:
        """True for each runtime call with a device event."""
        return self.runtime_calls["correlation"].is_in(self.device["correlation"].implode())

    @cached_property
    def python_functions(self) -> pl.DataFrame:
        """Python's functions, on every thread, where torch recorded stacks."""
        return self.spans_in_category(PYTHON_FUNCTION)

    @cached_property
    def allocations(self) -> pl.DataFrame:
        """The allocations and releases of memory; of the CPU's memory, only those of the window are in ``total``."""
        columns = ("ts", "track", "bytes", "address", "total_allocated", "device", "device_type")
        found = self.trace.instants.filter(pl.col("name") == _MEMORY).select(columns).collect()
        found = drop_null_rows(found, "ts", "bytes")
        device = null_unless(found["device"], found["device_type"] != _CPU_DEVICE_TYPE)
        found = select_columns(found, "ts", "track", "bytes", "address", total="total_allocated").hstack([device])
        return _rebase_cpu_totals(found if found["ts"].is_sorted() else found.sort("ts", maintain_order=True))

    @cached_property
    def devices(self) -> list[pl.DataFrame]:
        """The events of each device, in the order of the devices' first events."""
        is_one = self.device["device"].n_unique() == 1
        return [self.device] if is_one else self.device.partition_by("device", maintain_order=True)

    @cached_property
    def device_times(self) -> list[DeviceTime]:
        """The time of each of these devices."""
        return [DeviceTime.of(events) for events in self.devices]

    @cached_property
    def device_time(self) -> DeviceTime:
        """The time of all devices together."""
        return self.device_times[0] if len(self.devices) == 1 else DeviceTime.of(self.device)

    @cached_property
    def device_names(self) -> dict[int, str]:
        """The names of the devices, as far as the trace has them."""
        return {device: str(about["name"]) for device, about in self.trace.devices.items() if "name" in about}

    def on_loop_thread(self, spans: pl.DataFrame) -> pl.DataFrame:
        """Return the spans of the loop's thread."""
        if not len(spans):
            return spans
        is_on_loop = spans["track"] == self.loop_track
        return spans if is_on_loop.all(ignore_nulls=False) else filter_rows(spans, is_on_loop)

    def spans_named(self, pattern: str) -> pl.DataFrame:
        """Return spans of threads by one of the `PATTERNS` of names."""
        is_wanted = self._matches[pattern]
        return filter_rows(self.cpu_spans, is_wanted[self._names[1]]) if is_wanted.any() else self._no_spans

    def spans_in_category(self, *wanted: str) -> pl.DataFrame:
        """Return the spans of CPU threads of some categories."""
        found = [one for one in wanted if one in self._categories]
        if not found:
            return self._no_spans
        category = self.cpu_spans["category"]
        is_wanted = category == found[0] if len(found) == 1 else category.is_in(found)
        return filter_rows(self.cpu_spans, is_wanted)

    def operators_named(self, *names: str) -> pl.DataFrame:
        """Return the operators of some names."""
        known, name_of_each = self._names
        is_wanted = pl.Series([name in names for name in known], dtype=pl.Boolean)
        if not is_wanted.any():
            return self.operators.clear()
        return filter_rows(self.operators, is_wanted[name_of_each].filter(self.is_operator))

    def spans_of_source(self, category: str, *args: str) -> pl.DataFrame:
        """Return the spans of a source with some of their args as columns of strings."""
        spans = self.spans_in_category(category)
        values = [pl.col("args").cast(pl.String).str.json_path_match(f"$.{arg}").alias(arg) for arg in args]
        if not len(spans):
            return spans.hstack([pl.Series(arg, [], dtype=pl.String) for arg in args])
        args_of_spans = self.trace.spans.filter(pl.col("category") == category).select("track", *values, begin="ts")
        args_of_spans = args_of_spans.unique(("begin", "track"), keep="first").collect()
        return spans.join(args_of_spans, on=("begin", "track"), how="left", maintain_order="left")

    @cached_property
    def source_instants(self) -> pl.DataFrame:
        """The instants of sources, as `schemas.SOURCE_INSTANTS`, in order, including those of warm-up batches."""
        trace = self.trace if self.trace_with_warmup is None else self.trace_with_warmup
        found = trace.instants.filter(_IS_SOURCE_INSTANT).select("ts", "track", "category", "name", "args").collect()
        return found.with_columns(pl.col("args").cast(pl.String)).sort("ts", maintain_order=True)

    @cached_property
    def counters(self) -> pl.DataFrame:
        """The trace's counters, one row per value."""
        return self.trace.counters.collect()

    def instant_args(self, category: str) -> list[dict[str, Any]]:
        """Return the args of the instants that a source recorded, in order, without malformed ones."""
        return decode_args(self.instants_of(category))

    def instants_of(self, category: str) -> pl.DataFrame:
        """Return the instants that a source recorded, in order."""
        return (
            filter_rows(self.source_instants, self.source_instants["category"] == category)
            if len(self.source_instants)
            else self.source_instants
        )

    @cached_property
    def _names(self) -> tuple[pl.Series, pl.Series]:
        """The distinct names of the spans of CPU threads, and the index of each span's name among them."""
        names = self.cpu_spans[["name"]].unique().with_row_index("index")
        indices = self.cpu_spans[["name"]].join(names, on="name", how="left", maintain_order="left")
        return names["name"], indices["index"]

    @cached_property
    def _matches(self) -> dict[str, pl.Series]:
        """True for each of the names that a pattern matches, by pattern."""
        names = self._names[0].to_frame()
        found = names.select(pl.col("name").str.contains(pattern).alias(pattern) for pattern in PATTERNS)
        return {column.name: column for column in found}

    @cached_property
    def _categories(self) -> set[str | None]:
        return {*self.cpu_spans["category"].unique()}

    @cached_property
    def _no_spans(self) -> pl.DataFrame:
        return self.cpu_spans.clear()


def decode_args(notes: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the args of instants, without malformed ones."""
    texts = (text for text in notes["args"] if text is not None)
    return [args for text in texts if isinstance(args := _decode_json(text), dict)]


def _decode_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _rebase_cpu_totals(allocations: pl.DataFrame) -> pl.DataFrame:
    """Subtract memory from before the window from the totals of the CPU's memory.

    Torch's totals run on from window to window, and still contain what was released in between.
    """
    if not allocations["device"].has_nulls():
        return allocations
    is_host = pl.col("device").is_null()
    host = allocations.filter(is_host).drop_nulls("total")
    if not len(host):
        return allocations
    held_before = pl.col("bytes").filter((pl.col("bytes") < 0) & pl.col("address").is_first_distinct()).sum()
    least = pl.col("bytes").cum_sum().min()  # where addresses are unknown
    known = host.select(-pl.min_horizontal(held_before, least)).item()
    not_seen = host["total"][0] - host["bytes"][0] - known
    return allocations.with_columns(pl.col("total") - pl.when(is_host).then(not_seen).otherwise(0))
