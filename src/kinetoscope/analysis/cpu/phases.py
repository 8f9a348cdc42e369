"""Phases of a step on the loop's thread, by names of spans, or else by torch's operators and threads."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.windows.columns import (
    add_constant_column,
    build_frame,
    drop_null_rows,
    filter_rows,
    select_columns,
    sort_rows,
)
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import find_innermost, interval_index
from kinetoscope.analysis.windows.span_names import (
    BACKWARD_FUNCTIONS,
    NAMED_PHASES,
    OLD_BACKWARD_FUNCTIONS,
    OPERATORS,
    OPTIMIZER_STEP,
    PHASE_PATTERNS,
    PYTHON_FUNCTION,
    RUNTIME_CALLS,
)
from kinetoscope.analysis.windows.window import RankWindow

FORWARD, BACKWARD, OPTIMIZER, CLOSURE = "forward", "backward", "optimizer", "closure"
_IS_NAMED = ~pl.col("category").is_in([*OPERATORS, *RUNTIME_CALLS, PYTHON_FUNCTION])
"""True for spans that may name a phase: not those of these categories."""


@dataclass(frozen=True, eq=False)
class Phases:
    """The phases of a window's steps, each as intervals that belong to no other phase.

    Spans of a phase's name count first; of a phase without them, spans of torch do; without either, those of hooks. Of
    spans in one another, the innermost counts: so forward and backward within an optimizer's closure are theirs.
    ``awaited_work`` is that of `TrainingLoop`.
    """

    window: RankWindow
    awaited_work: pl.DataFrame

    @cached_property
    def named(self) -> dict[str, pl.DataFrame]:
        """The spans of names of phases, or else of hooks."""
        if any(map(self._has_evidence_of, NAMED_PHASES)):
            return self._by_name
        return {phase: self._hook_spans(phase) for phase in NAMED_PHASES}

    @property
    def forward(self) -> pl.DataFrame:
        """Spans named as the forward pass."""
        return self._by_name[FORWARD]

    @cached_property
    def backward(self) -> pl.DataFrame:
        """The backward pass: the engine's spans, or, in old traces, its functions off the loop's thread."""
        spans = self.window.cpu.named(BACKWARD_FUNCTIONS)
        if len(spans):
            return spans
        spans = self.window.cpu.named(OLD_BACKWARD_FUNCTIONS)
        return filter_rows(spans, spans["track"] != self.window.loop_track)

    @cached_property
    def optimizer(self) -> pl.DataFrame:
        """The steps of the optimizer."""
        return find_optimizer_steps(self.window)

    @cached_property
    def optimizing(self) -> IntervalUnion:
        """The time of the optimizer."""
        return IntervalUnion(self.optimizer, self._by_name[OPTIMIZER])

    @cached_property
    def _by_name(self) -> dict[str, pl.DataFrame]:
        return {phase: phase_spans(self.window, phase) for phase in NAMED_PHASES}

    def _hook_spans(self, phase: str) -> pl.DataFrame:
        return _hook_spans(self.window, phase)

    @cached_property
    def backward_of_torch(self) -> pl.DataFrame | None:
        """The intervals of torch's backward pass, which are on any thread; None where named spans mark it."""
        if len(self.named[BACKWARD]):
            return None
        spans, waits = self.backward[["begin", "end"]], self.awaited_work
        if not len(waits):
            return spans
        threads = self.backward["track"].unique()
        waits = waits.filter(pl.col("track").is_in(threads.implode()))  # also between two functions of autograd
        return pl.concat([spans, waits[["begin", "end"]]])

    @cached_property
    def pieces(self) -> pl.DataFrame:
        """The intervals (``begin``, ``end``, ``phase``) of the loop's thread in spans of phases, by the innermost."""
        spans = [self._phase_of_loop(phase, spans) for phase, spans in self.named.items() if len(spans)]
        if not len(self.named[OPTIMIZER]):
            spans.append(self._phase_of_loop(OPTIMIZER, self.window.on_loop_thread(self.optimizer)))
        spans = pl.concat([*spans, self._phase_of_loop(CLOSURE, self.closures)])
        moments = pl.concat([spans["begin"], spans["end"]]).unique().sort().alias("begin")
        pieces = build_frame(moments[:-1], moments[1:].alias("end"))
        queries = add_constant_column(select_columns(pieces, ts="begin"), "track", self.window.loop_track, pl.UInt32)
        return drop_null_rows(pieces.hstack([spans["phase"][find_innermost(spans, queries)]]), "phase")

    def _phase_of_loop(self, phase: str, spans: pl.DataFrame) -> pl.DataFrame:
        spans = add_constant_column(spans[["begin", "end"]], "track", self.window.loop_track, pl.UInt32)
        return add_constant_column(spans, "phase", phase, pl.String)

    def is_known(self, phase: str) -> bool:
        """Return whether there is evidence of a phase."""
        return len(self.named[phase]) > 0 or self._has_evidence_of(phase)

    def _has_evidence_of(self, phase: str) -> bool:
        """Return whether a phase has spans of its name, or spans of torch."""
        of_torch = {FORWARD: self.window.loop_operators, OPTIMIZER: self.optimizer, BACKWARD: self.backward}
        return len(self._by_name[phase]) > 0 or len(of_torch[phase]) > 0

    @cached_property
    def closures(self) -> pl.DataFrame:
        """The calls of the user's closure by torch's optimizer: ``begin``, ``end``.

        Each lasts from the first operator that autograd records to the end of the backward pass that follows.
        Autograd records none of the optimizer's operators.
        """
        window = self.window
        steps = sort_rows(window.on_loop_thread(self.optimizer), "begin")
        backward = self.backward[["begin", "end"]]
        places = interval_index(steps, backward["begin"])
        if not places.count() or len(self.named[FORWARD]):
            return backward.clear()
        backward = add_constant_column(backward.filter(places.is_not_null()), "is_backward", True, pl.Boolean)
        kept = self._recorded_by_autograd(steps, backward)
        calls = pl.concat([backward, kept]).sort("begin", "is_backward")
        calls = calls.with_columns(step=interval_index(steps, calls["begin"]))
        before = pl.col("is_backward").shift(1, fill_value=True)
        is_new = (~pl.col("is_backward") & before) | (pl.col("step") != pl.col("step").shift(1))
        found = calls.with_columns(call=is_new.fill_null(True).cum_sum()).group_by("call", maintain_order=True)
        found = found.agg(
            pl.col("begin").min(),
            end=pl.col("end").filter("is_backward").max(),
            is_complete=~pl.col("is_backward").first(),
        )
        return found.drop_nulls("end").filter("is_complete").select("begin", "end")

    def _recorded_by_autograd(self, steps: pl.DataFrame, backward: pl.DataFrame) -> pl.DataFrame:
        """Return operators in optimizer ``steps`` with a sequence number of autograd, outside the backward pass."""
        window = self.window
        is_operator = pl.col("category").is_in(list(OPERATORS)) & (pl.col("track") == window.loop_track)
        is_within = pl.col("ts").is_between(steps["begin"].min(), steps["end"].max())
        spans = window.trace.spans.filter(is_operator & is_within & pl.col("sequence").is_not_null())
        found = spans.select(begin="ts", end=pl.col("ts") + pl.col("dur"), is_backward=pl.lit(False)).collect()
        found = found.filter(interval_index(steps, found["begin"]).is_not_null())
        return found.filter(IntervalUnion(backward).overlap_ns(found["begin"], found["end"]) == 0)


def find_optimizer_steps(window: RankWindow) -> pl.DataFrame:
    """Return the steps of the optimizer.

    Where a hook of the optimizer ends the loop's step, torch's span of it is on another track, since it does not nest
    in the step. Then the hooks' spans stand for all of them.
    """
    spans, watched = window.cpu.named(OPTIMIZER_STEP), _hook_spans(window, OPTIMIZER)[["begin", "end"]]
    if len(window.on_loop_thread(spans)) == len(spans) or not len(watched):
        return spans
    return add_constant_column(watched, "track", window.loop_track, pl.UInt32)


def _hook_spans(window: RankWindow, phase: str) -> pl.DataFrame:
    return filter_rows(window.watched_phases, window.watched_phases["name"] == f"event/{phase}")


def phase_spans(window: RankWindow, phase: str) -> pl.DataFrame:
    """Return the spans of the loop's thread named ``forward``, ``backward``, ``optimizer`` or ``data``."""
    spans = window.on_loop_thread(window.cpu.named(PHASE_PATTERNS[phase]))
    return spans.filter(_IS_NAMED) if len(spans) else spans
