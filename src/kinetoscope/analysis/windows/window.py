"""analysis: what one rank recorded in one window, sorted: steps, spans of host threads, device events and launches."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import polars as pl

from kinetoscope.analysis.windows.columns import (
    all_the_same,
    columns_of,
    frame_of,
    known_rows,
    known_where,
    rows_where,
    sorted_by,
)
from kinetoscope.analysis.windows.communication import is_communication
from kinetoscope.analysis.windows.inferred_steps import infer_steps
from kinetoscope.analysis.windows.intervals import IntervalUnion, ended_before, zeros
from kinetoscope.analysis.windows.kernel_names import COPY
from kinetoscope.formats.device_events import COPIES, DEVICE_CATEGORIES
from kinetoscope.formats.own_names import BATCH, NOTES, SAMPLES, STEP, WATCHED_PHASE
from kinetoscope.table.trace import Trace
from kinetoscope.table.tracks import nest_spans

RUNTIME_CALLS = (
    *("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime", "glow_runtime"),
    *("privateuse1_runtime", "privateuse1_driver", "gcu_runtime", "gcu_driver"),
)
OPERATORS = ("cpu_op", "Operator")
_IS_RUNTIME_CALL = pl.col("category").is_in(list(RUNTIME_CALLS))
ANNOTATIONS = ("user_annotation",)
ANNOTATIONS_OF_DEVICES = ("gpu_user_annotation",)
SYNCHRONISATIONS = ("cuda_sync",)
UNCLEAR = ("hpu_op", "mtia_insight", "mtia_workloadd", "collective_comm")
"""Kineto's categories of other accelerators, of which it is not known which part is work of the device."""

_IS_NOTE = pl.col("category").is_in(list(NOTES))

COMMUNICATION_CALLS = r"^(c10d::|_?c10d_functional::|record_param_comms|(nccl|gloo|mpi|ucc|xccl):)"
"""Spans of host threads in which a collective is called, or waited for."""

CPU_COLLECTIVES = r"^gloo:"
"""Spans of collectives that run on the CPU, on threads of their own."""

_UNCHECKED: Any = {"check_sortedness": False}  # polars cannot check it within groups, and says so
_IS_OPERATOR = pl.col("category").is_in(list(OPERATORS)) & ~pl.col("name").str.starts_with(STEP)
_MEMORY = "[memory]"
_HOST = 0  # c10::DeviceType
FEWEST_STEPS = 8
"""With fewer steps in a recording, nothing is said of what grows from step to step, or happens in every n-th one."""

FEWEST_RECURRING = 3
"""What stops the loop in fewer steps of a recording may be chance."""

FETCH = r"^(event/dataloader$|enumerate\(DataLoader\)#)"
"""Spans in which a loop waits for its next batch."""

_NEVER = pl.Series("end", [-(2**63)])
_NO_TRACK = 2**32 - 1
_OF_OPERATORS = ("begin", "end", "track", "name", "shapes", "types")
_OTHERS_WITH_STREAMS = (*OPERATORS, *ANNOTATIONS, "cuda_event", "cuda_profiler_range", "overhead", "python_function")
_NUMBER = r"[ #_]?(\d{1,18})$"
_COLUMNS = ("ts", "dur", "name", "category", "track", "correlation", "stream", "device", "batch")
_ARGUMENTS = (
    "bytes",
    "collective_sequence",
    "shapes",
    "collective",
    "dtype",
    "group",
    "elements_in",
    "elements_out",
    "group_size",
    "types",
)


class DeviceTime(NamedTuple):
    """When one device computes, when its kernels run, which also communicate, and when it does anything."""

    compute: IntervalUnion
    kernels: IntervalUnion
    busy: IntervalUnion

    @classmethod
    def of(cls, events: pl.DataFrame) -> "DeviceTime":
        """That of these events of one device."""
        times, kind = events[["begin", "end"]], events["kind"]
        kernels = rows_where(times, kind != "copy")
        return cls(IntervalUnion(rows_where(times, kind == "compute")), IntervalUnion(kernels), IntervalUnion(times))


@dataclass(frozen=True)
class RankWindow:
    """One window of one rank. Frames are in the order of ``begin``; times are nanoseconds on the clock of the trace.

    ``host`` has the spans of threads, ``device`` the kernels, copies and sets, of ``kind`` ``compute``,
    ``communication`` or ``copy``, with ``launch_begin``, ``launch_end`` and ``launch_track`` of the call that launched
    each, null where that was not recorded. ``steps`` has ``step`` and the thread of the loop, ``samples`` the frames of
    sampled stacks, which are on tracks of their own. ``unclear`` counts, by category, events that seem to be of a
    device, but of which nobody knows what they are. ``noted_in`` is the trace with warm-up batches, if it has some.
    ``steps_from`` is the name of the spans between steps that were inferred, None for steps that have spans.
    """

    trace: Trace
    rank: int | None
    host: pl.DataFrame
    device: pl.DataFrame
    steps: pl.DataFrame
    samples: pl.DataFrame
    watched_phases: pl.DataFrame
    unclear: Mapping[str, int] = field(default_factory=dict)
    noted_in: Trace | None = None
    steps_from: str | None = None

    @cached_property
    def loop_track(self) -> int:
        """The thread of the training loop: the one with the steps, else the one with the most operators, if any."""
        if len(self.steps):
            return int(self.steps["track"][0])
        counts = self.operators.group_by("track").len().sort("len", "track", descending=[True, False])
        return int(counts["track"][0]) if len(counts) else _NO_TRACK

    @cached_property
    def operators(self) -> pl.DataFrame:
        """The spans of operators, on every thread, without columns that others have, but with ``label``. Old traces
        count steps among them."""
        return rows_where(self.host[[*_OF_OPERATORS]].hstack([self.labels]), self.is_operator)

    @cached_property
    def is_operator(self) -> pl.Series:
        """Whether each span of ``host`` is of an operator."""
        return self.host.select(is_operator=_IS_OPERATOR)["is_operator"]

    @cached_property
    def labels(self) -> pl.Series:
        """The ``label`` of each span of ``host``: its name as a category, which is quick to group by."""
        return self.host["name"].cast(pl.Categorical).alias("label")

    @cached_property
    def loop_operators(self) -> pl.DataFrame:
        """Those of the thread of the loop."""
        return self.on_loop(self.operators)

    @cached_property
    def operating(self) -> IntervalUnion:
        """When the thread of the loop is in an operator."""
        return IntervalUnion(self.loop_operators)

    @cached_property
    def runtime_calls(self) -> pl.DataFrame:
        """Calls of the device's runtime and driver, on every thread."""
        return self.of_category(*RUNTIME_CALLS)

    @cached_property
    def has_launched(self) -> pl.Series:
        """Whether each of these calls has an event of a device."""
        return self.runtime_calls["correlation"].is_in(self.device["correlation"].implode())

    @cached_property
    def python_functions(self) -> pl.DataFrame:
        """Python's functions, on every thread, where torch recorded stacks."""
        return self.of_category("python_function")

    @cached_property
    def allocations(self) -> pl.DataFrame:
        """Every allocation and, with negative ``bytes``, release of memory; ``total`` is what is allocated after it.
        ``device`` is null for the host's memory, of which only what the window allocated or released is counted."""
        columns = ("ts", "track", "bytes", "address", "total_allocated", "device", "device_type")
        found = self.trace.instants.filter(pl.col("name") == _MEMORY).select(columns).collect()
        found = known_rows(found, "ts", "bytes")
        device = known_where(found["device"], found["device_type"] != _HOST)
        found = columns_of(found, "ts", "track", "bytes", "address", total="total_allocated").hstack([device])
        return _as_seen(found if found["ts"].is_sorted() else found.sort("ts", maintain_order=True))

    @cached_property
    def devices(self) -> list[pl.DataFrame]:
        """The events of each device, in the order of the devices' first events."""
        is_one = self.device["device"].n_unique() == 1
        return [self.device] if is_one else self.device.partition_by("device", maintain_order=True)

    @cached_property
    def device_times(self) -> list[DeviceTime]:
        """When each of these devices did something."""
        return [DeviceTime.of(events) for events in self.devices]

    @cached_property
    def device_time(self) -> DeviceTime:
        """When any device did something."""
        return self.device_times[0] if len(self.devices) == 1 else DeviceTime.of(self.device)

    @cached_property
    def device_names(self) -> dict[int, str]:
        """What the devices are called, as far as the trace says it."""
        return {device: str(said["name"]) for device, said in self.trace.devices.items() if "name" in said}

    def on_loop(self, spans: pl.DataFrame) -> pl.DataFrame:
        """Those of the thread of the loop."""
        if not len(spans):
            return spans
        is_on_loop = spans["track"] == self.loop_track
        return spans if is_on_loop.all(ignore_nulls=False) else rows_where(spans, is_on_loop)

    def named(self, pattern: str) -> pl.DataFrame:
        """Spans of host threads whose name has this regular expression in it."""
        names, name_of_each = self._names
        is_wanted = names.str.contains(pattern)
        return rows_where(self.host, is_wanted[name_of_each]) if is_wanted.any() else self._nothing

    def of_category(self, *wanted: str) -> pl.DataFrame:
        """Spans of host threads of these categories."""
        found = [one for one in wanted if one in self._categories]
        if not found:
            return self._nothing
        category = self.host["category"]
        is_wanted = category == found[0] if len(found) == 1 else category.is_in(found)
        return rows_where(self.host, is_wanted)

    def operators_called(self, *names: str) -> pl.DataFrame:
        """The operators of these names."""
        known, name_of_each = self._names
        is_wanted = pl.Series([name in names for name in known], dtype=pl.Boolean)
        if not is_wanted.any():
            return self.operators.clear()
        return rows_where(self.operators, is_wanted[name_of_each].filter(self.is_operator))

    def of_source(self, category: str, *args: str) -> pl.DataFrame:
        """The spans of a source, with these of their args as columns of text."""
        spans = self.of_category(category)
        said = [pl.col("args").cast(pl.String).str.json_path_match(f"$.{arg}").alias(arg) for arg in args]
        if not len(spans):
            return spans.hstack([pl.Series(arg, [], dtype=pl.String) for arg in args])
        own = self.trace.spans.filter(pl.col("category") == category).select("track", *said, begin="ts")
        own = own.unique(("begin", "track"), keep="first").collect()
        return spans.join(own, on=("begin", "track"), how="left", maintain_order="left")

    @cached_property
    def notes(self) -> pl.DataFrame:
        """The instants of sources, in order: ``ts``, ``track``, ``category``, ``name`` and ``args`` as JSON. They are
        on the whole window: those of warm-up batches count."""
        trace = self.trace if self.noted_in is None else self.noted_in
        found = trace.instants.filter(_IS_NOTE).select("ts", "track", "category", "name", "args").collect()
        return found.with_columns(pl.col("args").cast(pl.String)).sort("ts", maintain_order=True)

    @cached_property
    def counters(self) -> pl.DataFrame:
        """The trace's counters, one row per value."""
        return self.trace.counters.collect()

    def noted(self, category: str) -> list[dict[str, Any]]:
        """The args of the instants that a source recorded, in order, without those that cannot be read."""
        return said_in(self.notes_of(category))

    def notes_of(self, category: str) -> pl.DataFrame:
        """The instants that a source recorded, in order."""
        return rows_where(self.notes, self.notes["category"] == category) if len(self.notes) else self.notes

    @cached_property
    def _names(self) -> tuple[pl.Series, pl.Series]:
        """The names of spans of host threads, and the place of each span's name among them."""
        names = self.host[["name"]].unique().with_row_index("place")
        places = self.host[["name"]].join(names, on="name", how="left", maintain_order="left")
        return names["name"], places["place"]

    @cached_property
    def _categories(self) -> set[str | None]:
        return {*self.host["category"].unique()}

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        return self.host.clear()


def read_windows(trace: Trace, step_name: str | None = None) -> list[RankWindow]:
    """The windows in a trace, of each rank in it. ``step_name`` is the span that is a step, if not the usual: then a
    window is what was recorded from the first of them to the last."""
    return [_window(part, _spans(part), step_name) for part in trace.parts]


def read_recorded(trace: Trace, step_name: str | None = None) -> list[RankWindow]:
    """The same without what began in warm-up batches, which is no part of what was to be recorded."""
    return [_without_warmup(part, _spans(part), step_name) for part in trace.parts]


def _without_warmup(trace: Trace, spans: pl.DataFrame, step_name: str | None) -> RankWindow:
    is_warmup = [pl.col("batch").is_between(first, until - 1) for first, until in trace.warmup_batches]
    warmup = spans.filter((pl.col("name") == BATCH) & pl.any_horizontal(is_warmup)) if is_warmup else spans.clear()
    if not len(warmup):
        return _window(trace, spans, step_name)
    until_ns: Any = warmup["end"].max()
    spans = _since(spans, until_ns)
    return replace(_window(trace.since(until_ns), spans, step_name), noted_in=trace)


def _since(spans: pl.DataFrame, since_ns: int) -> pl.DataFrame:
    """The spans that began no earlier. A frame of sampled stacks is one span as long as it is there, of which the rest
    is kept."""
    is_sample = pl.col("category").is_in(list(SAMPLES)).fill_null(False)
    spans = spans.filter((pl.col("begin") >= since_ns) | (is_sample & (pl.col("end") > since_ns)))
    return spans.with_columns(pl.col("begin").clip(since_ns))


def _spans(trace: Trace) -> pl.DataFrame:
    spans = trace.spans.select(*_COLUMNS, *_ARGUMENTS).drop_nulls(("ts", "dur")).rename({"ts": "begin"})
    end = pl.col("begin") + pl.col("dur").clip(0)
    found = spans.with_columns(pl.col("category").cast(pl.Categorical), end=end).drop("dur").collect()
    if found["begin"].is_sorted():
        return found
    order = found[["begin"]].with_row_index("row").sort("begin")["row"]
    return pl.DataFrame([column[order] for column in _columns_freed(found)])


def _columns_freed(frame: pl.DataFrame) -> Iterator[pl.Series]:
    """The columns of a frame, which has none afterwards. Each is gone before the next comes, so that who copies them
    all has little twice."""
    return map(frame.drop_in_place, frame.columns)


def _window(trace: Trace, spans: pl.DataFrame, step_name: str | None) -> RankWindow:
    """The window of these ``spans``, a frame that has no columns afterwards."""
    counts = spans.group_by("category").len()
    unclear = _unclear(spans, counts)
    not_host = {*DEVICE_CATEGORIES, *ANNOTATIONS_OF_DEVICES, *SYNCHRONISATIONS, *SAMPLES, WATCHED_PHASE, *unclear}
    not_host &= set(counts["category"])
    is_other = pl.col("category").is_in(list(not_host)).fill_null(False)  # a span may have no category
    host, others = _split(spans, spans.select(is_other=is_other)["is_other"])
    device, samples, watched = (
        others.filter(pl.col("category").is_in(sorted(wanted)))
        if (wanted := not_host & {*categories})
        else others.clear()
        for categories in (DEVICE_CATEGORIES, SAMPLES, (WATCHED_PHASE,))
    )
    steps = find_steps(host, step_name)
    since_until = _with_first_fetch(steps, host) if step_name is not None and len(steps) else None
    inferred = infer_steps(host, FETCH) if step_name is None and not len(steps) else None
    if inferred is not None:
        number = pl.int_range(pl.len(), dtype=pl.Int64).alias("step")
        steps = inferred.steps.select(number, "begin", "end", "track", is_ours=pl.lit(False))
        since_until = (steps["begin"][0], steps["end"][-1])
    if since_until is not None:
        host, samples, watched = (_within(frame, *since_until) for frame in (host, samples, watched))
    device = _with_launches(_device_events(device), host)
    if since_until is not None:
        device = device.filter(pl.col("launch_begin").is_not_null() | pl.col("begin").is_between(*since_until))
    steps_from = inferred.name if inferred is not None else None
    return RankWindow(trace, trace.rank, host, device, steps, samples, watched, unclear, steps_from=steps_from)


def _with_first_fetch(steps: pl.DataFrame, host: pl.DataFrame) -> tuple[int, int]:
    """From the begin of the first step to the end of the last one; if a step does not fetch its batch itself, from
    where the loop waited for that of the first."""
    begin, end = steps["begin"][0], steps["end"][0]
    fetches = host.filter((pl.col("track") == steps["track"][0]) & pl.col("name").str.contains(FETCH))
    before = fetches.filter(pl.col("end") <= begin)
    if not len(before) or fetches["begin"].is_between(begin, end, closed="left").any():
        return begin, steps["end"][-1]
    last = before["begin"][-1]
    is_same_wait = (before["begin"] == last) | (before["end"] > last)  # it, or one around it
    return before["begin"].filter(is_same_wait)[0], steps["end"][-1]


def _within(spans: pl.DataFrame, since: int, until: int) -> pl.DataFrame:
    """The spans that began then, and the frames of sampled stacks as far as they were there then."""
    is_sample = pl.col("category").is_in(list(SAMPLES)).fill_null(False)
    end = pl.when(is_sample).then(pl.col("end").clip(upper_bound=until)).otherwise("end")
    return _since(spans, since).filter(pl.col("begin") < until).with_columns(end=end).rechunk()


def _split(spans: pl.DataFrame, is_other: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The spans that are no others, and the others, each in one piece, which is what reads them in C needs. Afterwards
    ``spans`` has no columns."""
    is_host = ~is_other
    host, others = [], []
    for column in _columns_freed(spans):
        host.append(_in_one_piece(column.filter(is_host)))
        others.append(_in_one_piece(column.filter(is_other)))
    return _frame_of(host), _frame_of(others)


def _in_one_piece(column: pl.Series) -> pl.Series:
    """The column in one piece; without any row where it has no value."""
    return column.rechunk() if column.null_count() < len(column) else column.clear()


def _frame_of(columns: list[pl.Series]) -> pl.DataFrame:
    """The columns as a frame, in which one without rows is a null for all rows, which takes no space."""
    found = pl.DataFrame([column for column in columns if len(column)])
    if not found.width:
        return pl.DataFrame(columns)
    nothing = [pl.lit(None, column.dtype).alias(column.name) for column in columns if not len(column)]
    return found.with_columns(nothing)[[column.name for column in columns]] if nothing else found


def _unclear(spans: pl.DataFrame, counts: pl.DataFrame) -> dict[str, int]:
    """How many events there are of each category that is `UNCLEAR`, or unknown and of a stream of a device; ``counts``
    has how many there are of each category."""
    known = (*DEVICE_CATEGORIES, *RUNTIME_CALLS, *ANNOTATIONS_OF_DEVICES, *SYNCHRONISATIONS, *_OTHERS_WITH_STREAMS)
    others = {*counts["category"]} - {None, *known}
    if not others:
        return {}
    has_stream = pl.all_horizontal(pl.col("stream", "device").is_not_null())
    on_streams = {*spans["category"].filter(spans.select(has_stream).to_series()).unique()}
    is_unclear = {*UNCLEAR, *(others & on_streams)}
    return dict(sorted((category, number) for category, number in counts.iter_rows() if category in is_unclear))


def _device_events(spans: pl.DataFrame) -> pl.DataFrame:
    known = spans["name"].unique()
    names = [name for name in known if is_communication(name)]
    copies = known.filter(known.str.contains(COPY)).to_list()
    is_said = pl.any_horizontal(pl.col("collective", "group").is_not_null())
    communicates = is_said | pl.col("name").is_in(names)
    kind = (
        pl.when(pl.col("category").is_in(list(COPIES)) | pl.col("name").is_in(copies))
        .then(pl.lit("copy"))
        .when(communicates)
        .then(pl.lit("communication"))
        .otherwise(pl.lit("compute"))
    )
    return spans.with_columns(kind=kind)


def said_in(notes: pl.DataFrame) -> list[dict[str, Any]]:
    """The args of these instants, without those that cannot be read."""
    texts = (text for text in notes["args"] if text is not None)
    return [said for text in texts if isinstance(said := _decoded(text), dict)]


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _as_seen(allocations: pl.DataFrame) -> pl.DataFrame:
    """With totals of the host's memory that are the window's own. Torch's run on from window to window, and still have
    what was released in between."""
    if not allocations["device"].has_nulls():
        return allocations
    is_host = pl.col("device").is_null()
    host = allocations.filter(is_host).drop_nulls("total")
    if not len(host):
        return allocations
    held_before = pl.col("bytes").filter((pl.col("bytes") < 0) & pl.col("address").is_first_distinct()).sum()
    least = pl.col("bytes").cum_sum().min()  # where addresses are not known
    known = host.select(-pl.min_horizontal(held_before, least)).item()
    not_seen = host["total"][0] - host["bytes"][0] - known
    return allocations.with_columns(pl.col("total") - pl.when(is_host).then(not_seen).otherwise(0))


def _with_launches(device: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Each device event with the call that has its correlation; a launch of a graph has many events."""
    calls = columns_of(
        host, "correlation", launch_begin="begin", launch_end="end", launch_track="track", launch_name="name"
    )
    is_launch = host.select(_IS_RUNTIME_CALL & (pl.col("correlation") > 0)).to_series()
    calls = rows_where(calls, is_launch).unique("correlation", keep="first", maintain_order=True)
    return device.join(calls, on="correlation", how="left", maintain_order="left")


def find_steps(host: pl.DataFrame, step_name: str | None = None) -> pl.DataFrame:
    """The steps of the loop: ``step``, ``begin``, ``end``, ``track``, and ``is_ours``, our own ``event/batch``.

    They are the spans called ``step_name``, or ours, ``event/batch``, or else torch's, ``ProfilerStep#n``, on the
    thread that has most of them; one inside of another is a part of that. Where neither a batch nor the name has a
    number, they are counted.
    """
    host = host[["name", "batch", "begin", "end", "track"]]
    found = host.clear()
    for is_step in _rules(step_name):
        if len(found := rows_where(host, host.select(is_step).to_series())):
            break
    number = pl.coalesce("batch", pl.col("name").str.extract(_NUMBER).cast(pl.Int64, strict=False))
    if found["track"].n_unique() > 1:
        busiest = found.group_by("track").len().sort("len", "track", descending=[True, False])["track"].first()
        found = found.filter(pl.col("track") == busiest) if busiest is not None else found
    found = outermost(found)
    order = pl.int_range(pl.len(), dtype=pl.Int64)
    return found.select(
        pl.coalesce(number, order).alias("step"), "begin", "end", "track", is_ours=pl.col("name") == BATCH
    )


def outermost(spans: pl.DataFrame) -> pl.DataFrame:
    """The spans, in the order of ``begin``, that are not inside of others of their thread."""
    spans = spans.sort("begin", "end", descending=[False, True], maintain_order=True)
    until = ended_before().over("track")
    is_inside = (pl.col("begin") < until) & (pl.col("end") <= until)
    return spans.filter(~is_inside.fill_null(False))


def place_in(stretches: pl.DataFrame, times: pl.Series) -> pl.Series:
    """The row of the stretch (``begin``, ``end``, in order, apart) in which each time lies; null for none."""
    begun = stretches["begin"].search_sorted(times, side="right").alias("place")
    ends = pl.concat([_NEVER, stretches["end"]])  # of none, if none has begun
    return known_where(begun - 1, times < ends[begun])


def around(stretches: pl.DataFrame, track: pl.Series, times: pl.Series) -> pl.DataFrame:
    """The innermost row of ``stretches`` (``begin``, ``end``, ``track``, in order) that has begun last on a track
    before each time and lasts beyond it; nulls for none."""
    names = [name for name in stretches.columns if name != "track"]
    if not len(stretches) or not times.count():
        return pl.DataFrame([all_the_same(name, None, stretches.schema[name], len(times)) for name in names])
    asked = frame_of(times.alias("time"), track.alias("track")).with_row_index("row")
    asked = asked if (is_in_order := times.is_sorted()) else asked.sort("time")
    stretches = sorted_by(stretches, "begin")
    found = asked.join_asof(stretches, left_on="time", right_on="begin", by="track", strategy="backward", **_UNCHECKED)
    found = found if is_in_order else found.sort("row")
    held = found["time"] < found["end"]
    return frame_of(*(known_where(found[name], held) for name in names))


def innermost(spans: pl.DataFrame, times: pl.DataFrame) -> pl.Series:
    """The row of the innermost of ``spans`` (``begin``, ``end``, ``track``) around each of ``times`` (``ts``,
    ``track``); null for none."""
    asked = [times["ts"].cast(pl.Int64), zeros(len(times)), times["track"].cast(pl.UInt32)]
    around = [
        spans["begin"].cast(pl.Int64),
        (spans["end"] - spans["begin"]).cast(pl.Int64),
        spans["track"].cast(pl.UInt32),
    ]
    rows = (pl.concat(both).alias(name) for name, *both in zip(("ts", "dur", "track"), around, asked, strict=True))
    return nest_spans(frame_of(*rows))["parent"][len(spans) :]


def _rules(step_name: str | None) -> list[pl.Expr]:
    name = pl.col("name")
    if step_name is not None:
        return [name == step_name, name.str.contains(f"^{re.escape(step_name)}{_NUMBER}")]
    return [name == BATCH, name.str.contains(f"^{STEP}{_NUMBER}")]
