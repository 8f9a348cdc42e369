"""analysis: what a window shows of faults beside its rows: where the host stops, in which lines, on what machine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.intervals import Coverage
from kinetoscope.analysis.sampled_lines import sampled_lines
from kinetoscope.analysis.source_lines import source_lines
from kinetoscope.analysis.window import RankWindow, around
from kinetoscope.table.events import import_polars
from kinetoscope.table.trace import Trace

if TYPE_CHECKING:
    import polars as pl

COPY_TO_DEVICE = r"(?i)^memcpy HtoD"
"""Copies from the host to a device."""

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution")
_DOUBLE = '"double"'
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
    ``profiler``, ``sync``, ``copy``, ``data``, ``python``, ``double`` or ``small``), ``name``, ``line``, ``guard``,
    ``step``, ``num_calls`` and ``total_ns``. ``sampled`` are the samples of stacks that were taken in those spans:
    ``kind``, ``line`` (null: not the user's), ``step``, ``num_samples`` and ``total_ns``; if workers were sampled,
    those of ``data`` are theirs.
    ``num_workers`` of its loader is 0 if there are none, and None if that is unknown, as is ``processor_percent``, how
    busy all cores of the machine were. ``loader`` has what `LoaderFacts` recorded of it. By device there are
    ``device_bytes`` and ``device_majors``, the first number of its compute capability. ``python_before`` is the Python
    that operators of each name need before them, in ns. ``float64`` is what was seen to be in float64.
    """

    rank: int | None
    stops: "pl.DataFrame"
    sampled: "pl.DataFrame"
    num_workers: int | None
    loader: dict[str, Any]
    processor_percent: float | None
    device_bytes: dict[int, int]
    device_majors: dict[int, int]
    python_before: dict[str, int]
    float64: tuple[InFloat64, ...]


def find_signs(window: RankWindow, host: HostTime) -> Signs:
    """The signs in one window."""
    spans = _spans(window, host)
    return Signs(
        rank=window.rank,
        stops=_stops(window, spans),
        sampled=_sampled(window, spans, has_workers=bool(host.num_workers)),
        num_workers=host.num_workers,
        loader=host.loader,
        processor_percent=_processor_percent(window) if len(host.fetches) else None,
        device_bytes=_of_devices(window.trace, "totalGlobalMem"),
        device_majors=_of_devices(window.trace, "computeMajor"),
        python_before=host.ordinary_python,
        float64=tuple(note for said in window.noted("float64") if (note := _in_float64(said)) is not None),
    )


def _spans(window: RankWindow, host: HostTime) -> "pl.DataFrame":
    """Each stop: ``begin``, ``end``, ``track``, ``name``, ``kind``, and the ``line`` and the failed ``guard`` that it
    says itself, or null."""
    pl = import_polars()
    columns = ("begin", "end", "track", "name")
    found = {
        "gc": host.collections,
        "compile": host.compilations,
        "profiler": window.on_loop(host.profiling),
        "data": host.fetches,
        "double": _double_products(window),
        "python": _pauses(window, host),
        "small": host.small_operators,
    } | _synchronising(window, host)
    return pl.concat(
        [
            spans.select(*columns, kind=pl.lit(kind), line=_said(spans, "line"), guard=_said(spans, "guard"))
            for kind, spans in found.items()
        ]
    )


def _in_float64(said: dict[str, Any]) -> InFloat64 | None:
    name, kind, place, line = (said.get(key) for key in ("holder", "kind", "place", "line"))
    if not (isinstance(name, str) and isinstance(kind, str) and isinstance(place, str)):
        return None
    return InFloat64(name, kind, place, line if isinstance(line, str) else None)


def _stops(window: RankWindow, spans: "pl.DataFrame") -> "pl.DataFrame":
    pl = import_polars()
    spans = spans.with_columns(
        line=pl.coalesce("line", source_lines(window, spans.select("track", ts="begin"))),
        step=_steps_of(window, spans["begin"]),
    )
    until = window.steps["end"].max()  # afterwards the recording itself is stopped
    spans = spans.filter((pl.col("begin") < pl.lit(until, pl.Int64)) | (pl.col("kind") == "profiler"))
    total = (pl.col("end") - pl.col("begin")).sum()
    keys = ("kind", "name", "line", "guard", "step")
    same = [name for name in keys if spans[name].null_count() == len(spans)]
    stops = spans.group_by([name for name in keys if name not in same], maintain_order=True).agg(
        *map(pl.first, same), pl.len().cast(pl.Int64).alias("num_calls"), total.alias("total_ns")
    )
    stops = stops.select(*keys, "num_calls", "total_ns")
    is_long = pl.col("total_ns").rank("ordinal", descending=True).over("kind") <= _MOST_PAUSES
    return stops.filter((pl.col("kind") != "python") | is_long)


def _said(spans: "pl.DataFrame", arg: str) -> "pl.Expr":
    """What spans say themselves, if they do."""
    pl = import_polars()
    return pl.col(arg) if arg in spans.columns else pl.lit(None, dtype=pl.String)


def _sampled(window: RankWindow, spans: "pl.DataFrame", *, has_workers: bool) -> "pl.DataFrame":
    """See `Signs.sampled`. Spans that say their lines need no samples. Where workers make the batches, the loop's own
    lines say nothing about its waits for them."""
    pl = import_polars()
    loop, workers = sampled_lines(window)
    found = [loop.clear().with_columns(kind=pl.lit(""))]
    if not len(loop) and not len(workers):
        return _totals(window, found[0])
    for (kind,), stops in spans.filter(pl.col("line").is_null()).partition_by("kind", as_dict=True).items():
        is_then = Coverage(stops).within(loop["at"], loop["at"] + 1) > 0
        samples = workers if kind == "data" and (has_workers or len(workers)) else loop.filter(is_then)
        found.append(samples.with_columns(kind=pl.lit(kind)))
    return _totals(window, pl.concat(found))


def _totals(window: RankWindow, samples: "pl.DataFrame") -> "pl.DataFrame":
    """The samples by kind, line and step."""
    pl = import_polars()
    samples = samples.with_columns(_steps_of(window, samples["at"]).alias("step")).drop_nulls("step")
    totals = pl.len().alias("num_samples"), pl.col("lasts_ns").sum().alias("total_ns")
    return samples.group_by("kind", "line", "step", maintain_order=True).agg(*totals)


def _steps_of(window: RankWindow, times: "pl.Series") -> "pl.Series":
    """The step in which each time lies, or the next one; null after the last."""
    pl = import_polars()
    place = pl.Series(window.steps["end"].search_sorted(times, side="right"))
    is_known = place < len(window.steps)
    return window.steps["step"].gather(place.to_frame("place").select(pl.when(is_known).then("place"))["place"])


def _synchronising(window: RankWindow, host: HostTime) -> "dict[str, pl.DataFrame]":
    """Calls that wait, under the name of the operator around each: of copies to the device, and all others."""
    pl = import_polars()
    calls = host.synchronising
    operators = around(window.operators, calls["track"], calls["begin"])
    calls = calls.with_columns(name=pl.coalesce(operators["name"], "name"))
    copies = window.device.filter(pl.col("name").str.contains(COPY_TO_DEVICE))["correlation"].drop_nulls()
    is_copy = pl.col("correlation").is_in(copies.implode()) & (pl.col("correlation") > 0)
    return {"copy": calls.filter(is_copy), "sync": calls.filter(~is_copy)}


def _pauses(window: RankWindow, host: HostTime) -> "pl.DataFrame":
    """The stretches of the loop's thread in which only Python was busy, under the name of the operator after each."""
    pl = import_polars()
    return host.spare_python.with_columns(track=pl.lit(window.loop_track, dtype=pl.UInt32))


def _double_products(window: RankWindow) -> "pl.DataFrame":
    """Products of matrices of 64 bits that are computed on the host."""
    pl = import_polars()
    products = window.operators.filter(pl.col("name").is_in(list(_PRODUCTS)))
    is_double = pl.col("types").cast(pl.String).str.contains(_DOUBLE, literal=True).fill_null(False)
    return products.filter(is_double & pl.lit(not len(window.device)))


def _processor_percent(window: RankWindow) -> float | None:
    """How busy the machine's cores were on average, where the system profiler recorded that."""
    pl = import_polars()
    is_busy = (pl.col("name") == "cpu") & (pl.col("series") == "percent")
    mean: Any = window.trace.counters.filter(is_busy).collect()["value"].mean()
    return mean


def _of_devices(trace: Trace, name: str) -> dict[int, int]:
    """A number that Kineto says of each device it saw, where it is one that can be."""
    numbers = {device: said.get(name) for device, said in trace.devices.items()}
    return {device: number for device, number in numbers.items() if isinstance(number, int) and 0 < number < 2**63}
