"""analysis: what a window shows of faults beside its rows: where the host stops, in which lines, on what machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from kinetoscope.analysis.columns import all_the_same, rows_where, with_constant
from kinetoscope.analysis.contention import MIN_WALL_NS
from kinetoscope.analysis.host_time import ORDINARY_PYTHON_NS, HostTime
from kinetoscope.analysis.idle import idle_before_graphs_ns
from kinetoscope.analysis.intervals import Coverage, num_before
from kinetoscope.analysis.kernel_names import COPY_TO_DEVICE
from kinetoscope.analysis.late_phases import find_markers
from kinetoscope.analysis.library_calls import library_calls, lines_in_every_sample
from kinetoscope.analysis.loop_states import is_waiting
from kinetoscope.analysis.phases import OPTIMIZER, Phases
from kinetoscope.analysis.source_lines import source_lines
from kinetoscope.analysis.window import RankWindow, around, outermost
from kinetoscope.formats.own_names import FLOAT64, PROCESSORS
from kinetoscope.table.trace import Trace

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution")
_ITEM = "aten::item"
_DOUBLE = '"double"'
_LAUNCHES = r"^(cuda|hip)(LaunchKernel|MemcpyAsync|MemsetAsync)|^hipExtLaunch|^cuLaunchKernel"
_KEYS = ("name", "line", "library", "guard", "step")
_SAMPLED: dict[str, Any] = dict.fromkeys(("kind", "line", "call", "state"), pl.String) | {"step": pl.Int64}
_SAMPLED |= {"num_samples": pl.UInt32, "total_ns": pl.Int64}
_FEWEST_READINGS = 3
_MOST_COUNTED = 2**62
"""No number of a note is larger, unless its trace is damaged."""

_MOST_PAUSES = 50
"""How many rows on pauses of Python are kept, the longest."""


class InFloat64(NamedTuple):
    """A ``tensor``, a ``module``, or torch's ``default``, in float64; ``line`` is the one that makes it so, if that is
    sure."""

    name: str
    kind: str
    place: str
    line: str | None


@dataclass(frozen=True)
class Signs:
    """What one window of one rank shows beside its rows.

    ``stops`` are spans of the loop's thread that may keep it from its work: ``kind`` (``gc``, ``compile``,
    ``profiler``, ``sync``, ``copy``, ``data``, ``python``, ``blocked``, ``double``, ``small``, ``item``,
    ``data_sync``, or one of `CPU_OPERATORS`: the GPU's idle time in those), ``name``,
    ``line``, ``library`` (the function in which it began, as the span itself says), ``guard``, ``step``, ``num_calls``
    and ``total_ns``. ``sampled`` are the samples of stacks that were taken in those
    spans: ``kind``, ``line`` (null: not the user's), ``call``, ``state``, ``step``, ``num_samples`` and ``total_ns``;
    if workers were sampled, those of ``data`` are theirs. Those of ``python`` ran, those of ``blocked`` waited; those
    of ``loop`` are all that ran where no operators were recorded.
    ``epoch_start_share`` is how much of the waiting for data is for first batches of epochs; ``processors`` what the
    sampler noted of those. ``num_workers`` of its loader is 0 if there are none, and None if that is unknown, as is
    ``processor_percent``, how busy all cores of the machine were; ``is_too_short`` is whether it would be known of a
    longer recording. ``process_percent`` is how much of one core the process had. ``loader`` has what `LoaderFacts`
    recorded of it. By device there are ``device_bytes`` and ``device_majors``, the first number of its compute
    capability. ``python_before`` is the Python that operators of each name need before them, in ns. ``float64`` is what
    was seen to be in float64.
    ``library_calls`` are those of the function `library_calls`.
    ``exposed_to_device_ns`` is for how long a device did nothing but copy from the host; the mean of several devices.
    ``num_operators`` is the number of operators on all threads.
    ``items`` is how many values the loop reads with ``.item()``, without those that operators read, and
    ``items_of_optimizer`` how many of them in an optimizer's own step.
    ``lines_in_every_sample`` are those of `lines_in_every_sample`.
    ``is_sampled`` is whether the stack of the loop's thread was sampled.
    ``group_titles`` are the descriptions of process groups by name, such as ``tp``; ``markers`` those of
    `find_markers`.
    ``graph_gaps_ns`` is how long devices were idle, for no reason that is seen, before kernels of CUDA graphs;
    ``lost_share`` which part of the launches has no event on a device, as in traces that were thinned out.
    """

    rank: int | None
    stops: pl.DataFrame
    sampled: pl.DataFrame
    num_workers: int | None
    loader: dict[str, Any]
    processor_percent: float | None
    is_too_short: bool
    process_percent: float | None
    device_bytes: dict[int, int]
    device_majors: dict[int, int]
    python_before: dict[str, int]
    float64: tuple[InFloat64, ...]
    has_operators: bool
    epoch_start_share: float | None
    processors: dict[str, int]
    exposed_to_device_ns: float
    library_calls: pl.DataFrame
    num_operators: int = 0
    items: int = 0
    items_of_optimizer: int = 0
    is_sampled: bool = False
    lines_in_every_sample: frozenset[str] = frozenset()
    graph_gaps_ns: int = 0
    lost_share: float = 0.0
    group_titles: dict[str, str] = field(default_factory=dict)
    markers: pl.DataFrame = field(default_factory=pl.DataFrame)


def find_signs(window: RankWindow, host: HostTime) -> Signs:
    """The signs in one window."""
    items = _items(window)
    spans, processors = _spans(window, host, items), _counts(window.noted(PROCESSORS))
    return Signs(
        rank=window.rank,
        stops=_stops(window, spans),
        sampled=_sampled(window, host, spans),
        num_workers=host.num_workers,
        loader=host.loader,
        processor_percent=_processor_percent(window, processors),
        is_too_short=len(_readings(window)) > 0 or bool(processors),
        process_percent=_mean_percent(window, "process"),
        device_bytes=_of_devices(window.trace, "totalGlobalMem"),
        device_majors=_of_devices(window.trace, "computeMajor"),
        python_before=host.ordinary_python,
        float64=tuple(note for said in window.noted(FLOAT64) if (note := _in_float64(said)) is not None),
        has_operators=host.knows_operators,
        num_operators=len(window.operators),
        epoch_start_share=host.epoch_start_share,
        processors=processors,
        exposed_to_device_ns=_exposed_to_device_ns(window),
        library_calls=library_calls(window, spans),
        items=len(items),
        items_of_optimizer=_num_of_optimizer(items, host) if len(items) else 0,
        lines_in_every_sample=lines_in_every_sample(window),
        is_sampled=len(host.samples[0]) > 0,
        graph_gaps_ns=sum(map(idle_before_graphs_ns, window.devices)),
        lost_share=_lost_share(window),
        group_titles=window.trace.group_titles,
        markers=find_markers(host),
    )


def _counts(notes: list[dict[str, Any]]) -> dict[str, int]:
    """The last of these notes, as far as it is numbers that can be."""
    said = notes[-1] if notes else {}
    return {name: value for name, value in said.items() if isinstance(value, int) and 0 <= value < _MOST_COUNTED}


def _spans(window: RankWindow, host: HostTime, items: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The stops of each kind: ``begin``, ``end``, ``track``, ``name``, and those of the ``line``, the function of
    a ``library`` and the failed ``guard`` that they say themselves."""
    columns = ("begin", "end", "track", "name", "line", "library", "guard")
    found = {
        "gc": host.garbage,
        "compile": host.compilations,
        "profiler": window.on_loop(host.profiling),
        "data": host.fetches,
        "double": _double_products(window),
        "python": _pauses(window, host.spare_python),
        "blocked": _pauses(window, host.own_stretches.blocked),
        "loop": _pauses(window, host.unrecorded),
        "small": host.small_operators,
        "item": _runs_of_items(window, items),
    } | _synchronising(window, host)
    found |= {
        part: spans.with_columns(begin=pl.col("end") - pl.col("idle_ns")) for part, spans in host.cpu_operators.items()
    }
    return {kind: spans[[name for name in columns if name in spans.columns]] for kind, spans in found.items()}


def _in_float64(said: dict[str, Any]) -> InFloat64 | None:
    name, kind, place, line = (said.get(key) for key in ("holder", "kind", "place", "line"))
    if not (isinstance(name, str) and isinstance(kind, str) and isinstance(place, str)):
        return None
    return InFloat64(name, kind, place, line if isinstance(line, str) else None)


def _stops(window: RankWindow, spans: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    schema = pl.Schema(dict.fromkeys(("kind", *_KEYS), pl.String))
    schema.update(dict.fromkeys(("step", "num_calls", "total_ns"), pl.Int64()))
    found = [_stops_of_kind(window, kind, of_kind) for kind, of_kind in spans.items() if len(of_kind)]
    stops = pl.concat([pl.DataFrame(schema=schema), *found])
    if len(stops) <= _MOST_PAUSES or max(map(len, spans.values())) <= _MOST_PAUSES:
        return stops
    is_long = pl.col("total_ns").rank("ordinal", descending=True).over("kind") <= _MOST_PAUSES
    return stops.filter(~pl.col("kind").is_in(["python", "blocked"]) | is_long)


def _stops_of_kind(window: RankWindow, kind: str, spans: pl.DataFrame) -> pl.DataFrame:
    if kind != "profiler":  # after the last step the recording itself is stopped
        last: Any = window.steps["end"].max()
        spans = rows_where(spans, spans["begin"] < last) if last is not None else spans.clear()
    spans = spans.hstack([_steps_of(window, spans["begin"])])
    if len(window.python_functions):
        lines = source_lines(window, spans.select("track", ts="begin"))
        said = [pl.col("line")] if "line" in spans.columns else []
        spans = spans.with_columns(line=pl.coalesce(*said, lines))
    total = (pl.col("end") - pl.col("begin")).sum()
    stops = spans.group_by([name for name in _KEYS if name in spans.columns], maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("num_calls"), total.alias("total_ns")
    )
    texts = [(pl.col(key) if key in spans.columns else pl.lit(None)).cast(pl.String).alias(key) for key in _KEYS[:-1]]
    return stops.select(pl.lit(kind).alias("kind"), *texts, "step", "num_calls", "total_ns")


def _sampled(window: RankWindow, host: HostTime, spans: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """See `Signs.sampled`. Spans that say their lines need no samples. Where workers make the batches, the loop's own
    lines say nothing about its waits for them."""
    loop, workers = host.samples
    found = [loop.clear().with_columns(kind=pl.lit(""))]
    if not len(loop) and not len(workers):
        return pl.DataFrame(schema=_SAMPLED)
    places = {
        kind: stops.filter(pl.col("line").is_null()) if "line" in stops.columns else stops
        for kind, stops in spans.items()
    }
    places |= {"python": _whole(host.spare_python), "loop": _whole(host.unrecorded)}
    places |= {"blocked": _whole(host.own_stretches.blocked)}
    for kind, stops in places.items():
        if not len(stops):
            continue
        is_then = Coverage(stops).within(loop["at"], loop["at"] + 1) > 0
        samples = workers if kind == "data" and (host.num_workers or len(workers)) else loop.filter(is_then)
        if kind in ("python", "loop"):
            samples = samples.filter(~is_waiting().fill_null(False))
        elif kind == "blocked":
            samples = samples.filter(is_waiting())
        found.append(samples.with_columns(kind=pl.lit(kind)))
    return _totals(window, pl.concat(found))


def _whole(pieces: pl.DataFrame) -> pl.DataFrame:
    """The stretches that these are pieces of."""
    return pieces.select(begin="since", end="until")


def _totals(window: RankWindow, samples: pl.DataFrame) -> pl.DataFrame:
    """The samples by kind, line and step."""
    samples = samples.with_columns(_steps_of(window, samples["at"]).alias("step")).drop_nulls("step")
    totals = pl.len().alias("num_samples"), pl.col("lasts_ns").sum().alias("total_ns")
    return samples.group_by("kind", "line", "call", "state", "step", maintain_order=True).agg(*totals)


def _steps_of(window: RankWindow, times: pl.Series) -> pl.Series:
    """The step in which each time lies, or the next one; null after the last."""
    steps = window.steps["step"]
    return pl.concat([steps, all_the_same("step", None, steps.dtype, 1)])[num_before(window.steps["end"], times)]


def _synchronising(window: RankWindow, host: HostTime) -> dict[str, pl.DataFrame]:
    """Return calls that wait, by kind, with the name of the operator around each.

    ``data_sync`` are those whose data the CPU needs, ``copy`` those of copies to the device, ``sync`` all others.
    """
    calls = host.synchronising
    operators = around(window.operators[["begin", "end", "track", "name"]], calls["track"], calls["begin"])
    calls = calls.with_columns(name=pl.coalesce(operators["name"], "name"))
    found = {"data_sync": rows_where(calls, host.are_for_data)}
    calls = rows_where(calls, ~host.are_for_data)
    copies = window.device["correlation"].filter(window.device["name"].str.contains(COPY_TO_DEVICE))
    if not len(copies):
        return found | {"copy": calls.clear(), "sync": rows_where(calls, calls["correlation"].is_not_null())}
    is_copy = calls["correlation"].is_in(copies.implode()) & (calls["correlation"] > 0)
    return found | {"copy": rows_where(calls, is_copy), "sync": rows_where(calls, ~is_copy)}


def _exposed_to_device_ns(window: RankWindow) -> float:
    """For how long copies to the device run and no kernel does, on average over devices."""
    exposed_ns = 0
    for device, time in zip(window.devices, window.device_times, strict=True):
        is_copy = device["name"].str.contains(COPY_TO_DEVICE)
        if is_copy.any():
            copies = rows_where(device[["begin", "end"]], is_copy)
            exposed_ns += time.kernels.and_of(copies).length_ns - time.kernels.length_ns
    return exposed_ns / max(1, len(window.devices))


def _items(window: RankWindow) -> pl.DataFrame:
    """The loop's calls of ``.item()`` that no other operator made."""
    if not len(calls := window.operators_called(_ITEM)):
        return calls
    operators = window.loop_operators.filter(pl.col("name").cast(pl.String).str.starts_with("aten::"))
    return outermost(operators).filter(pl.col("name").cast(pl.String) == _ITEM)


def _runs_of_items(window: RankWindow, items: pl.DataFrame) -> pl.DataFrame:
    """Stretches in which the loop reads one value after the other, each from the end of the operator before."""
    before = window.loop_operators.select("begin", before=pl.col("end").cum_max().shift(1)).unique(
        "begin", keep="first"
    )
    runs = items.select("begin", "end", "name", "track").join(before, on="begin", how="left")
    since = pl.max_horizontal("before", pl.col("begin") - ORDINARY_PYTHON_NS)
    return runs.select(pl.min_horizontal(since, "begin").alias("begin"), "end", "name", "track")


def _num_of_optimizer(items: pl.DataFrame, host: HostTime) -> int:
    """How many of these are in an optimizer's own step, not in a closure that it calls."""
    pieces = Phases(host).pieces
    of_optimizer = Coverage(rows_where(pieces, pieces["phase"] == OPTIMIZER))
    return int((of_optimizer.within(items["begin"], items["end"]) > 0).sum())


def _pauses(window: RankWindow, stretches: pl.DataFrame) -> pl.DataFrame:
    """The stretches of the loop's thread in which only Python was busy, or nothing, under the name of the operator
    after each."""
    return with_constant(stretches, "track", window.loop_track, pl.UInt32)


def _double_products(window: RankWindow) -> pl.DataFrame:
    """Products of matrices of 64 bits that are computed on the host."""
    if len(window.device):
        return window.operators.clear()
    products = window.operators_called(*_PRODUCTS)
    is_double = pl.col("types").cast(pl.String).str.contains(_DOUBLE, literal=True).fill_null(False)
    return products.filter(is_double)


def _lost_share(window: RankWindow) -> float:
    """Which part of the calls that launch kernels, copies and sets has no event on a device."""
    if not len(window.device):
        return 0.0
    calls = window.runtime_calls
    is_launch = (calls["correlation"] > 0) & calls["name"].str.contains(_LAUNCHES)
    share: Any = (~window.has_launched).filter(is_launch).mean()
    return share or 0.0


def _processor_percent(window: RankWindow, processors: dict[str, int]) -> float | None:
    """Return how busy the machine's cores were in the whole window; else the mean of the system profiler's readings."""
    busy_ns, wall_ns, cores = (processors.get(name) for name in ("busy_ns", "wall_ns", "cores"))
    if busy_ns is None or not cores or (wall_ns or 0) < MIN_WALL_NS:
        return _mean_percent(window, "cpu")
    return min(
        100.0, 100 * busy_ns / ((wall_ns or 1) * cores)
    )  # the system counts in ticks, and may count one too many


def _mean_percent(window: RankWindow, name: str) -> float | None:
    """What the system profiler read on average. The first percent of older recordings is a 0 that says nothing, and of
    few readings the mean does not."""
    readings = _readings(window)
    values = rows_where(readings, (readings["name"] == name) & (readings["series"] == "percent")).sort("ts")["value"]
    values = values[1:] if len(values) and not values[0] else values
    mean: Any = values.mean() if len(values) >= _FEWEST_READINGS else None
    return mean


def _readings(window: RankWindow) -> pl.DataFrame:
    """What the system profiler read of the processors; of the process itself it reads as often."""
    counters = window.counters[["ts", "name", "series", "value"]]
    return rows_where(counters, counters["name"].is_in(["cpu", "process"]))


def _of_devices(trace: Trace, name: str) -> dict[int, int]:
    """A number that Kineto says of each device it saw, where it is one that can be."""
    numbers = {device: said.get(name) for device, said in trace.devices.items()}
    return {device: number for device, number in numbers.items() if isinstance(number, int) and 0 < number < 2**63}
