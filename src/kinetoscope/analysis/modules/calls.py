"""Calls of torch modules in a window, and the call that each operator, kernel and backward function belongs to."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.cpu.phases import find_optimizer_steps
from kinetoscope.analysis.windows.columns import build_frame, drop_null_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion, zeros
from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.analysis.windows.span_names import OPERATORS
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import MODULE
from kinetoscope.frames.tracks import nest_spans

FORWARD, RECOMPUTE, BACKWARD = "forward", "recompute", "backward"
OPTIMIZER, ACCUMULATION, OUTSIDE = "(optimizer)", "(gradient accumulation)", "(outside of modules)"
"""Names of the time that belongs to no module."""

_ENGINE = "autograd::engine::evaluate_function: "
_ACCUMULATE = "AccumulateGrad"
_TIMES = ("begin", "end", "track")


@dataclass(frozen=True)
class ModuleCalls:
    """The calls of modules in a window, and functions of the backward pass by the calls that they belong to."""

    window: RankWindow

    @cached_property
    def calls(self) -> pl.DataFrame:
        """Calls in the order of ``begin``: ``begin``, ``end``, ``track``, ``name``, ``is_recomputed``, ``parent``.

        ``is_recomputed`` is true within a backward function; ``parent`` is the row of the call around each.
        """
        calls = self._in_order(self.window.cpu.in_category(MODULE).select(*_TIMES, "name"))
        moments = calls.select("track", ts="begin")
        is_recomputed = find_innermost(self._engine, moments).is_not_null().alias("is_recomputed")
        return calls.hstack([is_recomputed, _parents(calls).alias("parent")])

    @cached_property
    def functions(self) -> pl.DataFrame:
        """Functions of the backward pass: ``begin``, ``end``, ``track``, ``name``, ``call``.

        ``call`` is the row of the call in which the forward operator of each ran, null if that is unknown. Several
        forward operators have the same sequence number, since those that need no gradient take none; the last one to
        start is the one that autograd differentiates.
        """
        functions = self._engine
        operators = self._forward_operators
        tracks = self._tracks_of_threads
        functions_with_track = functions.with_columns(
            of=pl.col("forward_thread").replace_strict(tracks, default=None, return_dtype=pl.UInt32)
        )
        functions_with_track = functions_with_track.with_row_index("row").sort("begin")
        found = functions_with_track.join_asof(
            operators.select("begin", "sequence", of="track", at="begin").sort("begin"),
            on="begin",
            by=["of", "sequence"],
            strategy="backward",
            check_sortedness=False,
        ).sort("row")
        call = _innermost(self.calls, found["of"], found["at"])
        return functions.select(*_TIMES, "name").hstack([call.alias("call")])

    @cached_property
    def parts(self) -> pl.DataFrame:
        """Time of threads in nested spans: ``begin``, ``end``, ``track``, ``kind``, ``call``, ``self_ns``, ``parent``.

        ``parent`` is the row of the part around each. Without a call, ``kind`` names what the time belongs to. The
        ``self_ns`` add up to the time of the steps: where another thread runs functions of the backward pass, that time
        belongs to them, not to the loop's thread, which waits for them.
        """
        calls, functions, window = self.calls, self.functions, self.window
        is_accumulation = functions["name"].str.ends_with(_ACCUMULATE)
        no_call = pl.lit(None, pl.UInt32)
        kind_of_call = pl.when("is_recomputed").then(pl.lit(RECOMPUTE)).otherwise(pl.lit(FORWARD))
        kind_of_function = pl.when(is_accumulation).then(pl.lit(ACCUMULATION)).when(pl.col("call").is_null())
        kind_of_function = kind_of_function.then(pl.lit(OUTSIDE)).otherwise(pl.lit(BACKWARD))
        pieces = [  # of spans with the same times, the outer one first
            window.steps.select(*_TIMES, kind=pl.lit(OUTSIDE), call=no_call),
            find_optimizer_steps(window).select(*_TIMES, kind=pl.lit(OPTIMIZER), call=no_call),
            functions.select(*_TIMES, kind=kind_of_function, call=pl.when(~is_accumulation).then("call")),
            calls.select(*_TIMES, kind=kind_of_call, call=pl.int_range(pl.len(), dtype=pl.UInt32)),
        ]
        parts = self._in_order(pl.concat(pieces))
        nested = nest_spans(parts.select("track", ts="begin", dur=pl.col("end") - pl.col("begin")), clip=True)
        parts = parts.hstack(nested.select("self_ns", "parent").get_columns())
        on_others = IntervalUnion(functions.filter(pl.col("track") != window.loop_track))
        waits_ns = find_self_overlap_ns(parts, on_others, window.loop_track) if on_others else 0
        return parts.with_columns(pl.col("self_ns") - waits_ns)

    def find_parts(self, track: pl.Series, times: pl.Series) -> pl.DataFrame:
        """Return ``kind`` and ``call`` of the part around each time of a thread; `OUTSIDE` where there is none."""
        found = self.parts.select("kind", "call")[_innermost(self.parts, track, times)]
        return found.with_columns(pl.col("kind").fill_null(OUTSIDE))

    @cached_property
    def ancestors(self) -> pl.DataFrame:
        """Each ``call`` with its ``name`` and those of the modules around it; recursive calls have each name once.

        A recomputed call runs without the calls around the first one, so its modules are known by their names.
        """
        names, parents = self.calls["name"], self.calls["parent"]
        rows = pl.int_range(len(names), dtype=pl.UInt32, eager=True)
        at = build_frame(rows.alias("call"), rows.alias("at"))
        pairs = []
        while len(at):
            pairs.append(at)
            at = drop_null_rows(build_frame(at["call"], parents[at["at"]].alias("at")), "at")
        chain = pl.concat(pairs).with_columns(name=names[pl.concat(pairs)["at"]])
        is_outermost = (self.calls["is_recomputed"] & parents.is_null())[chain["at"]]
        around = chain.filter(is_outermost).join(self._modules_around, on="name").select("call", name="around")
        return pl.concat([chain.select("call", "name"), around]).unique(maintain_order=True)

    @cached_property
    def _modules_around(self) -> pl.DataFrame:
        """The names ``around`` each ``name``: those of the modules that contain it."""
        known = set(self.calls["name"])
        parts = {name: name.split(".") for name in known}
        rows = [(name, ".".join(path[:length])) for name, path in parts.items() for length in range(1, len(path))]
        rows = [row for row in rows if row[1] in known]
        return pl.DataFrame(rows, schema={"name": pl.String, "around": pl.String}, orient="row")

    @cached_property
    def _engine(self) -> pl.DataFrame:
        """The functions that autograd's engine ran, with ``sequence`` and ``forward_thread``."""
        spans = self.window.trace.spans.filter(pl.col("name").str.starts_with(_ENGINE)).drop_nulls(("ts", "dur"))
        columns = ("track", "name", "sequence", "forward_thread")
        return self._in_order(spans.select(*columns, begin="ts", end=pl.col("ts") + pl.col("dur")).collect())

    @cached_property
    def _forward_operators(self) -> pl.DataFrame:
        """Operators of forward passes with a sequence number: ``begin``, ``track``, ``sequence``."""
        is_forward = (pl.col("sequence") >= 0) & (pl.col("forward_thread").fill_null(0) == 0)
        spans = self.window.trace.spans.filter(pl.col("category").is_in(list(OPERATORS)) & is_forward)
        return spans.select("track", "sequence", begin="ts").collect()

    @cached_property
    def _tracks_of_threads(self) -> dict[int, int]:
        """The track of each forward thread, by torch's own number of the thread.

        It is the only track with forward operators, or the one with most flows from them to the thread's functions.
        Without flows, the lowest number is that of the loop's thread, and other threads are unknown.
        """
        tracks = self._forward_operators["track"].unique()
        numbers = self._engine["forward_thread"].drop_nulls().unique().sort().to_list()
        if len(tracks) == 1:
            return dict.fromkeys(numbers, int(tracks[0]))
        return dict.fromkeys(numbers[:1], self.window.loop_track) | self._tracks_by_flows

    @cached_property
    def _tracks_by_flows(self) -> dict[int, int]:
        flows = self.window.trace.flows.filter(pl.col("category") == "fwdbwd")
        flows = flows.select("ts", "step", "track", "id").collect()
        starts = flows.filter(pl.col("step") == "s").select("id", of="track")
        ends = flows.filter(pl.col("step") == "f").select("id", "track", begin="ts")
        pairs = self._engine.join(ends, on=("track", "begin")).join(starts, on="id")
        counted = pairs.group_by("forward_thread", "of").len().sort("len", "of")
        found: list[tuple[int, int]] = counted.select("forward_thread", "of").rows()
        return dict(found)

    @staticmethod
    def _in_order(spans: pl.DataFrame) -> pl.DataFrame:
        return spans.sort("begin", "end", descending=[False, True], maintain_order=True)


def find_module_calls(window: RankWindow) -> ModuleCalls | None:
    """Return the calls of modules in a window; None where none were recorded."""
    found = ModuleCalls(window)
    return found if len(found.calls) else None


def find_self_overlap_ns(parts: pl.DataFrame, time: IntervalUnion, track: int) -> pl.Series:
    """Return the nanoseconds of a thread's ``time`` in each of the `ModuleCalls.parts`, not in the parts inside it."""
    inside = time.overlap_ns(parts["begin"], parts["end"]).zip_with(parts["track"] == track, zeros(1))
    within = parts.select("parent", within=inside).drop_nulls("parent").group_by("parent").agg(pl.col("within").sum())
    rows = parts.select(parent=pl.int_range(pl.len(), dtype=pl.UInt32)).join(within, on="parent", how="left")
    return (inside - rows["within"].fill_null(0)).clip(0)


def _innermost(spans: pl.DataFrame, track: pl.Series, times: pl.Series) -> pl.Series:
    """Return the row of the innermost span around each time; null also where the time is null."""
    known = drop_null_rows(build_frame(times.alias("ts"), track.alias("track")).with_row_index("row"), "ts", "track")
    nothing = pl.Series([None], dtype=pl.UInt32).new_from_index(0, len(times))
    return nothing.scatter(known["row"], find_innermost(spans, known)) if len(known) else nothing


def _parents(calls: pl.DataFrame) -> pl.Series:
    return nest_spans(calls.select("track", ts="begin", dur=pl.col("end") - pl.col("begin")), clip=True)["parent"]
