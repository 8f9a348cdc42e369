"""The traces of a run, as frames of spans, counters, flows and tracks."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.core.text.wording import format_count
from kinetoscope.frames.all_steps import build_steps_frame
from kinetoscope.frames.display import MAX_SHOWN_ROWS, render_html
from kinetoscope.frames.module_table import build_modules
from kinetoscope.frames.trace import Trace, displayable_summary, read_errors
from kinetoscope.pulse.pulses import Pulse


class TraceSet(Sequence[Trace]):
    """Traces of several ranks, or cycles, in the order of their ranks and names.

    Its frames are the concatenated frames of its traces, with two more columns: ``rank``, and ``trace``, the index of
    the trace in the set, which distinguishes tracks of different traces.
    """

    def __init__(self, traces: Sequence[Trace], pulses: Sequence[Pulse] = ()) -> None:
        self._traces = sorted(traces, key=lambda trace: (trace.rank is None, trace.rank or 0, trace.name))
        self._pulses = pulses

    def __repr__(self) -> str:
        return f"<kinetoscope.TraceSet of {format_count(len(self), 'trace')}, {format_count(len(self.ranks), 'rank')}>"

    def _repr_html_(self) -> str | None:
        try:
            first = (asdict(displayable_summary(trace)) for trace in self._traces[:MAX_SHOWN_ROWS])
            return render_html(
                "kinetoscope.TraceSet", {"ranks": self.ranks, "traces": [*first, *self._traces[MAX_SHOWN_ROWS:]]}
            )
        except read_errors():
            return None

    def to_dict(self) -> dict[str, Any]:
        """Return the ranks, and the contents of each trace, as plain data."""
        return {"ranks": self.ranks, "traces": [trace.to_dict() for trace in self._traces]}

    def __len__(self) -> int:
        return len(self._traces)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self._traces)

    def __getitem__(self, index: Any) -> Any:
        return self._traces[index]

    @property
    def ranks(self) -> list[int]:
        """The ranks in the set."""
        return sorted({trace.rank for trace in self._traces if trace.rank is not None})

    @cached_property
    def all_steps(self) -> pl.DataFrame:
        """All steps of the run, recorded or not, as its ranks have counted them.

        There is a row for each of the last 4,096 of each rank, and for each block of older ones, with ``num_steps``; no
        rows where the run has no pulse.

        ``step`` counts from 0 and is the number of the first step in the row; ``begin_ns`` is in unix time.
        ``duration_ns`` and the columns of phases are sums over the row's steps, of CPU time; a phase is null where it
        was not watched, and then it is in ``other_ns``. ``min_duration_ns``, ``max_duration_ns`` and ``slowest_step``
        are of single steps, and ``squares`` is the sum of the squares of their durations.

            steps = kinetoscope.load("runs/digits").all_steps
            steps.filter(pl.col("rank") == 0).select(pl.col("duration_ns").sum() / pl.col("num_steps").sum())
        """
        return build_steps_frame(self._pulses)

    @cached_property
    def modules(self) -> pl.DataFrame:
        """A row for each rank and torch module, with sums over all windows.

        The columns are ``rank``, ``name``, ``class_name``, ``depth``, ``num_calls``, and times, FLOPs and memory
        forward and backward (docs/modules.md). Without ``profile(modules=True)`` it is empty. Three rows have the time
        that belongs to no module: ``(optimizer)``, ``(gradient accumulation)`` and ``(outside of modules)``. With them,
        the ``self_`` columns of the CPU, and recomputation on it, add up to the time of all steps.

            modules = kinetoscope.load("runs/digits").modules
            modules.sort(pl.col("cpu_forward_ns") + pl.col("cpu_backward_ns"), descending=True)
        """
        return build_modules(self)

    def of_rank(self, rank: int) -> list[Trace]:
        """Return the traces of one rank."""
        return [trace for trace in self._traces if trace.rank == rank]

    @property
    def events(self) -> pl.LazyFrame:
        """The events of all traces."""
        return self._concat_frames([trace.events for trace in self._traces])

    @property
    def spans(self) -> pl.LazyFrame:
        """The spans of all traces."""
        return self._concat_frames([trace.spans for trace in self._traces])

    def nested(self) -> pl.LazyFrame:
        """Return the spans of all traces, nested; ``row`` and ``parent`` count those of one trace."""
        return self._concat_frames([trace.nested() for trace in self._traces])

    @property
    def instants(self) -> pl.LazyFrame:
        """The instants of all traces."""
        return self._concat_frames([trace.instants for trace in self._traces])

    @property
    def counters(self) -> pl.LazyFrame:
        """The counters of all traces."""
        return self._concat_frames([trace.counters for trace in self._traces])

    @property
    def flows(self) -> pl.LazyFrame:
        """The flows of all traces."""
        return self._concat_frames([trace.flows for trace in self._traces])

    @property
    def tracks(self) -> pl.LazyFrame:
        """The tracks of all traces."""
        return self._concat_frames([trace.tracks for trace in self._traces])

    @property
    def metadata(self) -> pl.LazyFrame:
        """The fields of all traces."""
        return self._concat_frames([trace.metadata for trace in self._traces])

    def _concat_frames(self, frames: list[pl.LazyFrame]) -> pl.LazyFrame:
        marked = [
            frame.with_columns(
                pl.lit(trace.rank, dtype=pl.Int64).alias("rank"), pl.lit(index, dtype=pl.UInt32).alias("trace")
            )
            for index, (trace, frame) in enumerate(zip(self._traces, frames, strict=True))
        ]
        return pl.concat(marked)
