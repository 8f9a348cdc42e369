"""A trace, and the traces of a run, as frames of spans, counters, flows and tracks."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec
import polars as pl

from kinetoscope.core.paths.short_paths import base_name, shorten_paths
from kinetoscope.core.text.wording import sanitize, sanitize_lines
from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.formats.header import read_object
from kinetoscope.frames.all_steps import build_steps_frame, find_trace_pulses
from kinetoscope.frames.anonymized_events import anonymize_events
from kinetoscope.frames.display import render_html
from kinetoscope.frames.events import FLOW_COLUMNS, INSTANT_COLUMNS, SPAN_COLUMNS, TraceInfo
from kinetoscope.frames.module_table import build_modules
from kinetoscope.frames.summary import TraceSummary, render_summary, summarize_trace
from kinetoscope.frames.trace_header import TraceHeader
from kinetoscope.frames.tracks import build_tracks, expand_counters, nest_spans, read_track_names

_ASYNCHRONOUS = ("b", "S")
_RECORDING = r"^PyTorch Profiler \(\d+\)$"


class Trace(TraceHeader):
    """One trace as tables, from `kinetoscope.load`.

    The tables are polars' lazy frames: filter and select, then ``collect()``; only the required columns are read. Times
    are in nanoseconds, unix time if ``has_clock``. ``repairs`` has sentences on the file's defects.

        trace = kinetoscope.load("rank0.json.gz")
        trace.spans.filter(pl.col("category") == "kernel").group_by("name").agg(pl.col("dur").sum()).collect()
    """

    def __init__(self, name: str, about: TraceInfo, events: pl.LazyFrame, label: str | None = None) -> None:
        self.name = name
        self._label = label
        self.header: dict[str, Any] = about.header
        self.repairs: list[str] = about.repairs
        self.base_ns: int = about.base_ns
        self.has_clock: bool = about.has_clock
        self._thread_ids = about.tracks
        self._events = events

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with all events: it may be for another machine, which does not have the file."""
        return self.__dict__ | {"_events": self._events.collect()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_events": state["_events"].lazy()})

    def __repr__(self) -> str:
        try:
            return f"<kinetoscope.Trace {sanitize_lines(render_summary(displayable_summary(self)))}>"
        except read_errors():
            return f"<kinetoscope.Trace {sanitize(base_name(self.name))}: it cannot be read any more>"

    def _repr_html_(self) -> str | None:
        try:
            return render_html(f"kinetoscope.Trace {base_name(self.name)}", asdict(displayable_summary(self)))
        except read_errors():
            return None  # a notebook shows the text then

    def to_dict(self) -> dict[str, Any]:
        """Return `kinetoscope.frames.summary.TraceSummary` of the trace as plain data."""
        return msgspec.to_builtins(summarize_trace(self))

    @property
    def is_anonymous(self) -> bool:
        """True if the names of users were replaced."""
        return self._label is not None

    @property
    def label(self) -> str:
        """The name of the file for sentences on it; a redacted trace has a number instead."""
        return self._label or base_name(self.name) or self.name

    @property
    def events(self) -> pl.LazyFrame:
        """All events in the order of the file, with all columns; ``kind`` is the kind of each."""
        return self._events

    @property
    def spans(self) -> pl.LazyFrame:
        """One row per span: see `kinetoscope.frames.events.SPAN_COLUMNS`."""
        return self._events_of_kind("span").select(SPAN_COLUMNS)

    def in_memory(self) -> "Trace":
        """Return the trace with all its events in memory, independent of its file."""
        return self._replace_events(self._events.collect().lazy(), self.header)

    def since(self, begin_ns: int) -> "Trace":
        """Return the trace without events that began before a time."""
        return self._between(begin_ns, None)

    def until(self, end_ns: int) -> "Trace":
        """Return the trace without events that began at a time or later."""
        return self._between(None, end_ns)

    @property
    def parts(self) -> "list[Trace]":
        """The trace as a trace for each window of each rank in it.

        Those of a merged trace have the headers of the merged files. A trace of one window of one rank is its only
        part.
        """
        if not self.is_merged:
            return self._split_at(self._ends_of_recordings())
        return [part for rank in self.ranks for part in self._windows_of_rank(rank)]

    def nested(self) -> pl.LazyFrame:
        """Return the spans of threads and streams, with four more columns on their nesting.

        ``row`` counts these spans; ``parent`` is the row of the innermost span of the track that contains a span
        completely, or null; ``depth`` is the number of spans around it; ``self_ns`` is its duration without the time
        that its direct children cover. Spans that overlap are siblings. Asynchronous spans (``phase`` ``b`` and ``S``),
        which do not nest, and spans without a time are left out.

            trace.nested().group_by("name").agg(pl.col("self_ns").sum()).sort("self_ns").collect()
        """
        spans = self._events_of_kind("span").filter(~pl.col("phase").is_in(_ASYNCHRONOUS)).drop_nulls(("ts", "dur"))
        measured = nest_spans(spans.select("ts", "dur", "track").collect())
        return pl.concat([spans.select(SPAN_COLUMNS).with_row_index("row"), measured.lazy()], how="horizontal")

    @property
    def instants(self) -> pl.LazyFrame:
        """One row per instant, with its arguments."""
        return self._events_of_kind("instant").select(INSTANT_COLUMNS)

    @cached_property
    def counters(self) -> pl.LazyFrame:
        """One row per value: ``ts``, ``track``, ``name``, ``category``, ``series``, ``value``."""
        rows = self._events_of_kind("counter").select("ts", "track", "name", "category", "args").collect()
        schema = {"ts": pl.Int64, "track": pl.UInt32} | dict.fromkeys(("name", "category", "series"), pl.String)
        return pl.DataFrame(expand_counters(rows.iter_rows()), schema=schema | {"value": pl.Float64}).lazy()

    @property
    def flows(self) -> pl.LazyFrame:
        """One row per end of a flow; the rows of one flow have its category, name and id."""
        return self._events_of_kind("flow").rename({"phase": "step"}).select(FLOW_COLUMNS)

    @cached_property
    def tracks(self) -> pl.LazyFrame:
        """One row per track; for the columns see `kinetoscope.frames.tracks.build_tracks`."""
        return build_tracks(self._events, self._thread_ids).lazy()

    @cached_property
    def modules(self) -> pl.DataFrame:
        """A row for each module of the rank, as in `TraceSet.modules`."""
        return build_modules([self])

    @cached_property
    def all_steps(self) -> pl.DataFrame:
        """All steps of the ranks that recorded the trace, as in `TraceSet.all_steps`, if its file is in their run."""
        return build_steps_frame(find_trace_pulses(self.name, self.starts))

    @property
    def names_of_tracks(self) -> frozenset[str]:
        """The names that the trace has for its processes and threads."""
        return read_track_names(self._events, self._thread_ids)

    @property
    def metadata(self) -> pl.LazyFrame:
        """The fields of the file beside its events: ``key``, and ``value`` as JSON."""
        values = [msgspec.json.encode(value).decode() for value in self.header.values()]
        schema = {"key": pl.String, "value": pl.String}
        return pl.DataFrame({"key": list(self.header), "value": values}, schema=schema).lazy()

    @property
    def ranks(self) -> list[int]:
        """The ranks in the trace; a merged trace has several."""
        if self.is_merged:
            pids = self.tracks.select("pid_number").unique().collect()["pid_number"].drop_nulls()
            return sorted(pids.to_list())
        return [] if self.rank is None else [self.rank]

    def _windows_of_rank(self, rank: int) -> "list[Trace]":
        """Return the windows of a rank in a merged trace."""
        tracks = self.tracks.filter(pl.col("pid_number") == rank).select("track").collect()["track"]
        events = self._events.filter(pl.col("track").is_in(tracks.implode()))
        listed = self._kinetoscope_header.get("files")
        files = [file for file in listed if isinstance(file, dict)] if isinstance(listed, list) else []
        files = [file for file in files if file.get("rank") == rank and isinstance(file.get("begin_ns"), int)]
        files.sort(key=lambda file: file["begin_ns"])
        headers = [read_object(file, "header") for file in files] or [{}]
        cuts = self._replace_events(events, self.header)._split_at([file["begin_ns"] for file in files[1:]])
        return [
            part._replace_events(
                part._events, header | {"kinetoscope": read_object(header, "kinetoscope") | {"rank": rank}}
            )
            for part, header in zip(cuts, headers, strict=True)
        ]

    def _ends_of_recordings(self) -> list[int]:
        """Return the ends of all but the last recording of Kineto."""
        spans = self._events_of_kind("span").filter(pl.col("category") == "Trace").select("name", "ts", "dur").collect()
        if len(spans) < 2:
            return []
        recordings = spans.filter(pl.col("name").str.contains(_RECORDING))
        return (recordings["ts"] + recordings["dur"]).drop_nulls().sort().to_list()[:-1]

    def _split_at(self, moments: Sequence[int]) -> "list[Trace]":
        """Split the trace at some times; events before all of them are in the first part."""
        if not moments:
            return [self]
        return [self._between(begin, end) for begin, end in pairwise([None, *moments, None])]

    def _between(self, begin_ns: int | None, end_ns: int | None) -> "Trace":
        """Return the trace without events that began before a time, or no earlier than another one."""
        is_within = pl.col("ts").is_between(
            -(2**63) if begin_ns is None else begin_ns, 2**63 - 1 if end_ns is None else end_ns - 1
        )
        return self._replace_events(
            self._events.filter(pl.col("kind").is_in(["metadata", "flow"]) | is_within), self.header
        )

    def _replace_events(self, events: pl.LazyFrame, header: dict[str, Any]) -> "Trace":
        about = TraceInfo(self._thread_ids, header, self.repairs, self.base_ns, self.has_clock)
        return Trace(self.name, about, events, self._label)

    def anonymized(self, anonymizer: Anonymizer) -> "Trace":
        """Return the trace without names of users; a rank that only the file's name has goes into the header."""
        header = anonymizer.header(self.header)
        if not self.is_merged and (rank := self.rank) is not None:
            header["kinetoscope"] = read_object(header, "kinetoscope") | {"rank": rank}
        thread_ids = [(anonymizer.redact_id(pid), anonymizer.redact_id(tid)) for pid, tid in self._thread_ids]
        repairs = [anonymizer.sentence(repair) for repair in self.repairs]
        about = TraceInfo(thread_ids, header, repairs, self.base_ns, self.has_clock)
        return Trace(self.name, about, anonymize_events(self._events, anonymizer), anonymizer.name(self.name, "file"))

    def _events_of_kind(self, kind: str) -> pl.LazyFrame:
        return self._events.filter(pl.col("kind") == kind)


def read_errors() -> tuple[type[BaseException], ...]:
    """Return the errors of frames whose Parquet file was cut or changed; polars panics where it became shorter."""
    return OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException


def displayable_summary(trace: Trace) -> TraceSummary:
    """Return the summary for display, without paths of home directories: others may see the notebook."""
    found = summarize_trace(trace)
    notes, repairs = (
        [shorten_paths(sentence) for sentence in first_items] for first_items in (found.notes, found.repairs)
    )
    return replace(found, name=base_name(trace.name) or "a trace", notes=notes, repairs=repairs)
