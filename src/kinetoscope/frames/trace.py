"""A trace, and the traces of a run, as frames of spans, counters, flows and tracks."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec
import polars as pl

from kinetoscope.core.clock.file_clock import FileClock, parse_file_clock
from kinetoscope.core.paths.short_paths import base_name, shorten_paths
from kinetoscope.core.text.wording import format_count, sanitize, sanitize_lines
from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.formats.header import rank_in_name, read_object
from kinetoscope.formats.health import describe_losses
from kinetoscope.frames.all_steps import build_steps_frame, find_trace_pulses
from kinetoscope.frames.anonymized_events import anonymize_events
from kinetoscope.frames.display import MAX_SHOWN_ROWS, render_html
from kinetoscope.frames.events import FLOW_COLUMNS, INSTANT_COLUMNS, SPAN_COLUMNS, TraceInfo
from kinetoscope.frames.module_table import build_modules
from kinetoscope.frames.summary import TraceSummary, render_summary, summarize_trace
from kinetoscope.frames.tracks import build_tracks, expand_counters, nest_spans, read_track_names
from kinetoscope.pulse.pulses import Pulse

_ASYNCHRONOUS = ("b", "S")
_RECORDING = r"^PyTorch Profiler \(\d+\)$"
_NO_TITLES = ("default_pg", "undefined", "")


class Trace:
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
            return f"<kinetoscope.Trace {sanitize_lines(render_summary(_displayable_summary(self)))}>"
        except _read_errors():
            return f"<kinetoscope.Trace {sanitize(base_name(self.name))}: it cannot be read any more>"

    def _repr_html_(self) -> str | None:
        try:
            return render_html(f"kinetoscope.Trace {base_name(self.name)}", asdict(_displayable_summary(self)))
        except _read_errors():
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
    def rank(self) -> int | None:
        """The rank in the file's header, else in its name; None if neither has one, or if the trace is merged."""
        if self.is_merged:
            return None
        for header in (self._own_header, self._distributed_info):
            rank = header.get("rank")
            if isinstance(rank, int) and rank >= 0:
                return rank
        return rank_in_name(self.name)

    @property
    def ranks(self) -> list[int]:
        """The ranks in the trace; a merged trace has several."""
        if self.is_merged:
            pids = self.tracks.select("pid_number").unique().collect()["pid_number"].drop_nulls()
            return sorted(pids.to_list())
        return [] if self.rank is None else [self.rank]

    @property
    def is_merged(self) -> bool:
        """True for a merged trace, in which each rank is a process whose pid is the rank."""
        return bool(self._own_header.get("merged"))

    @property
    def notes(self) -> list[str]:
        """Notes in sentences, for example on files that a merge left out and on lost records."""
        notes = self._own_header.get("notes")
        sentences = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
        return sentences + describe_losses(self._own_header)

    @property
    def is_cut(self) -> bool:
        """True if the file ends before its last event does, so that it may lack much that was recorded."""
        return any("ends too early" in repair for repair in self.repairs)

    @property
    def world_size(self) -> int | None:
        """The number of ranks of the run, if the file has it."""
        size = self._distributed_info.get("world_size")
        return size if isinstance(size, int) else None

    @property
    def host(self) -> str | None:
        """The machine on which the trace was recorded, if the file has it."""
        host = self._own_header.get("host") or self.header.get("host_name")
        return str(host) if host else None

    @property
    def clock_bound_ns(self) -> int | None:
        """The error bound of its clock compared with rank 0's: 0 if they share one, None if unknown."""
        bound = read_object(self._own_header, "clock", "beside_rank0").get("bound_ns")
        return bound if isinstance(bound, int) else None

    @property
    def clock(self) -> FileClock | None:
        """Its clock's offsets to unix time and to rank 0's; None if the file has none, or is merged."""
        return None if self.is_merged else parse_file_clock(self._own_header)

    @property
    def run_name(self) -> str | None:
        """The name of the run, if the file has it."""
        name = self._own_header.get("run_name")
        return name if isinstance(name, str) else None

    @property
    def starts(self) -> frozenset[str]:
        """The names of the process starts that recorded it, if the file has them; a merged trace has several."""
        names = (header.get("start") for header in self._headers_of_files)
        return frozenset(start for start in names if isinstance(start, str) and start)

    @property
    def is_recovered(self) -> bool:
        """True if `recover` made it, or a part of a merged trace, of the unsaved data of a killed process."""
        listed = self._own_header.get("files")
        headers = [read_object(file, "header") for file in listed] if isinstance(listed, list) else [self.header]
        return any(header.get("recovered") is True for header in headers)

    @property
    def warmup_batches(self) -> list[tuple[int, int]]:
        """The batches that only warmed up before the recording: the first, and the first one after them."""
        listed = self._own_header.get("warmup_batches")
        pairs = listed if isinstance(listed, list) else []
        return [(pair[0], pair[1]) for pair in pairs if _is_pair_of_numbers(pair)]

    @property
    def process_groups(self) -> dict[str, list[int]]:
        """The ranks of each process group that Kineto lists, by its name. A default group without a list has all."""
        return {name: self._ranks_of(group) for name, group in self._groups.items()}

    @property
    def group_titles(self) -> dict[str, str]:
        """The descriptions of process groups by name, without those that torch makes up.

        That of a dimension of a device mesh is its name, such as ``tp``.
        """
        titles = {name: group.get("pg_desc") for name, group in self._groups.items()}
        titles = {name: title.removeprefix("mesh_") for name, title in titles.items() if isinstance(title, str)}
        return {name: title for name, title in titles.items() if title not in _NO_TITLES and ":" not in title}

    @property
    def group_threads(self) -> dict[int, str]:
        """The names of process groups by the threads that run only their collectives."""
        listed = ((name, group.get("threads")) for name, group in self._groups.items())
        return {
            thread: name
            for name, threads in listed
            for thread in (threads if isinstance(threads, list) else ())
            if isinstance(thread, int)
        }

    @property
    def _groups(self) -> dict[str, dict[str, Any]]:
        listed = self._distributed_info.get("pg_config")
        groups = [group for group in listed if isinstance(group, dict)] if isinstance(listed, list) else []
        return {str(group["pg_name"]): group for group in groups if "pg_name" in group}

    def _ranks_of(self, group: dict[str, Any]) -> list[int]:
        ranks, size = group.get("ranks"), group.get("pg_size")
        if isinstance(ranks, list) and ranks and all(isinstance(rank, int) for rank in ranks):
            return ranks
        return list(range(size)) if isinstance(size, int) and size == self.world_size else []

    @property
    def devices(self) -> dict[int, dict[str, Any]]:
        """Kineto's properties of each device, such as its ``name``, by its number."""
        listed = self.header.get("deviceProperties")
        devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
        return {device["id"]: device for device in devices if isinstance(device.get("id"), int)}

    @property
    def _headers_of_files(self) -> list[dict[str, Any]]:
        """Kinetoscope's headers; of a merged trace those of the files in it."""
        files = self._own_header.get("files")
        listed = [read_object(file, "header", "kinetoscope") for file in files] if isinstance(files, list) else []
        return listed if self.is_merged else [self._own_header]

    @property
    def _own_header(self) -> dict[str, Any]:
        return read_object(self.header, "kinetoscope")

    @property
    def _distributed_info(self) -> dict[str, Any]:
        return read_object(self.header, "distributedInfo")

    def _windows_of_rank(self, rank: int) -> "list[Trace]":
        """Return the windows of a rank in a merged trace."""
        tracks = self.tracks.filter(pl.col("pid_number") == rank).select("track").collect()["track"]
        events = self._events.filter(pl.col("track").is_in(tracks.implode()))
        listed = self._own_header.get("files")
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


def _read_errors() -> tuple[type[BaseException], ...]:
    """Return the errors of frames whose Parquet file was cut or changed; polars panics where it became shorter."""
    return OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException


def _is_pair_of_numbers(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(type(one) is int and abs(one) < 2**62 for one in pair)


def _displayable_summary(trace: Trace) -> TraceSummary:
    """Return the summary for display, without paths of home directories: others may see the notebook."""
    found = summarize_trace(trace)
    notes, repairs = (
        [shorten_paths(sentence) for sentence in first_items] for first_items in (found.notes, found.repairs)
    )
    return replace(found, name=base_name(trace.name) or "a trace", notes=notes, repairs=repairs)


class TraceSet(Sequence[Trace]):
    """Traces of several ranks, or cycles, in the order of their ranks and names.

    Its frames are the concatenated frames of its traces, with two more columns: ``rank``, and ``trace``, the index of
    the trace in the set, which tells tracks of different traces apart.
    """

    def __init__(self, traces: Sequence[Trace], pulses: Sequence[Pulse] = ()) -> None:
        self._traces = sorted(traces, key=lambda trace: (trace.rank is None, trace.rank or 0, trace.name))
        self._pulses = pulses

    def __repr__(self) -> str:
        return f"<kinetoscope.TraceSet of {format_count(len(self), 'trace')}, {format_count(len(self.ranks), 'rank')}>"

    def _repr_html_(self) -> str | None:
        try:
            first = (asdict(_displayable_summary(trace)) for trace in self._traces[:MAX_SHOWN_ROWS])
            return render_html(
                "kinetoscope.TraceSet", {"ranks": self.ranks, "traces": [*first, *self._traces[MAX_SHOWN_ROWS:]]}
            )
        except _read_errors():
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
        was not watched, and then it is in ``other_ns``. ``least_ns``, ``most_ns`` and ``slowest_step`` are of single
        steps, and ``squares`` is the sum of the squares of their durations.

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
        the ``self_`` columns add up to the time of all steps.

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
