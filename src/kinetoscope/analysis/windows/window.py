"""A window of one rank: frames of what it recorded, and selections of spans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from kinetoscope.analysis.windows import schemas
from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.cpu_spans import CPUSpans
from kinetoscope.analysis.windows.devices import Devices
from kinetoscope.analysis.windows.instants import Instants
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.frames.trace import Trace

MIN_STEPS = 8
"""With fewer steps in a recording, growth from step to step and periods are not reported."""

MIN_RECURRING_STEPS = 3
"""Stalls of the loop in fewer steps of a recording may be noise."""

_NO_TRACK = 2**32 - 1


@dataclass(frozen=True)
class RankWindow:
    """One window of one rank. Frames are in the order of ``begin``; times are nanoseconds on the clock of the trace.

    ``cpu_spans`` has the spans of threads, ``device`` the kernels, copies and sets, of ``kind`` ``compute``,
    ``communication`` or ``copy``, with ``launch_begin``, ``launch_end`` and ``launch_track`` of the call that launched
    each, null where that was not recorded. ``steps`` has ``step`` and the thread of the loop, ``samples`` the frames of
    sampled stacks, which are on tracks of their own. ``unknown_device_events`` counts, by category, events that are
    probably of a device, and of an unknown kind. ``trace_with_warmup`` is the trace with warm-up batches, if it has
    some. ``inferred_from`` is the name of the spans between steps that were inferred, None for steps that have spans.
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
    def cpu(self) -> CPUSpans:
        """The spans of CPU threads, by name, category and kind."""
        return CPUSpans(self.trace, self.cpu_spans)

    @cached_property
    def devices(self) -> Devices:
        """The events of devices, and the time that they take."""
        return Devices(self.trace, self.device)

    @cached_property
    def instants(self) -> Instants:
        """The allocations, the counters, and the instants of sources."""
        return Instants(self.trace, self.trace_with_warmup or self.trace)

    @cached_property
    def loop_track(self) -> int:
        """The thread of the training loop: the one with the steps, else the one with the most operators, if any."""
        if len(self.steps):
            return int(self.steps["track"][0])
        counts = self.cpu.operators.group_by("track").len().sort("len", "track", descending=[True, False])
        return int(counts["track"][0]) if len(counts) else _NO_TRACK

    @cached_property
    def loop_operators(self) -> pl.DataFrame:
        """The operators of the loop's thread."""
        return self.on_loop_thread(self.cpu.operators)

    @cached_property
    def operator_time(self) -> IntervalUnion:
        """The time of the loop's thread in operators."""
        return IntervalUnion(self.loop_operators)

    @cached_property
    def has_launched(self) -> pl.Series:
        """True for each runtime call with a device event."""
        return self.cpu.runtime_calls["correlation"].is_in(self.device["correlation"].implode())

    def on_loop_thread(self, spans: pl.DataFrame) -> pl.DataFrame:
        """Return the spans of the loop's thread."""
        if not len(spans):
            return spans
        is_on_loop = spans["track"] == self.loop_track
        return spans if is_on_loop.all(ignore_nulls=False) else filter_rows(spans, is_on_loop)
