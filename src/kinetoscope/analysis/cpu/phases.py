"""analysis: in which phase of a step its thread was: by names that say it, else by torch's operators and threads."""

from functools import cached_property

import polars as pl

from kinetoscope.analysis.cpu.host_time import HostTime
from kinetoscope.analysis.windows.columns import columns_of, frame_of, known_rows, sorted_by, with_constant
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import innermost, place_in
from kinetoscope.analysis.windows.span_names import OPERATORS

FORWARD, BACKWARD, OPTIMIZER, CLOSURE = "forward", "backward", "optimizer", "closure"


class Phases:
    """The phases of a window's steps, each as stretches of time (``begin``, ``end``) that belong to no other phase.

    Spans of a phase's name (`HostTime.of_phase`) count first; of a phase that no name says, torch's own spans do. Where
    there are neither, what hooks told does. Where they lie in one another, the innermost counts: so forward and
    backward within an optimizer's closure are theirs.
    """

    def __init__(self, host: HostTime) -> None:
        self._host, self._window = host, host.window
        self.named = host.named_phases
        """Spans that say the phase, if there are some."""

        if not any(map(self.knows, self.named)):
            self.named = {phase: host.watched_phase(phase) for phase in self.named}

    @cached_property
    def backward_of_torch(self) -> pl.DataFrame | None:
        """The stretches of torch's backward pass, which are on any thread; None where names say it."""
        host = self._host
        if len(self.named[BACKWARD]):
            return None
        spans, waits = host.backward[["begin", "end"]], host.visits
        if not len(waits):
            return spans
        threads = host.backward["track"].unique()
        waits = waits.filter(pl.col("track").is_in(threads.implode()))  # also between two functions of autograd
        return pl.concat([spans, waits[["begin", "end"]]])

    @cached_property
    def pieces(self) -> pl.DataFrame:
        """The stretches (``begin``, ``end``, ``phase``) of the loop's thread in spans of phases, by the innermost."""
        spans = [self._nested(phase, spans) for phase, spans in self.named.items() if len(spans)]
        if not len(self.named[OPTIMIZER]):
            spans.append(self._nested(OPTIMIZER, self._window.on_loop(self._host.optimizer)))
        spans = pl.concat([*spans, self._nested(CLOSURE, self.closures)])
        moments = pl.concat([spans["begin"], spans["end"]]).unique().sort().alias("begin")
        pieces = frame_of(moments[:-1], moments[1:].alias("end"))
        asked = with_constant(columns_of(pieces, ts="begin"), "track", self._window.loop_track, pl.UInt32)
        return known_rows(pieces.hstack([spans["phase"][innermost(spans, asked)]]), "phase")

    def _nested(self, phase: str, spans: pl.DataFrame) -> pl.DataFrame:
        spans = with_constant(spans[["begin", "end"]], "track", self._window.loop_track, pl.UInt32)
        return with_constant(spans, "phase", phase, pl.String)

    def knows(self, phase: str) -> bool:
        """Whether there is evidence of a phase at all."""
        if len(self.named[phase]):
            return True
        of_torch = {FORWARD: self._window.loop_operators, OPTIMIZER: self._host.optimizer}
        return len(of_torch.get(phase, self._host.backward)) > 0

    @cached_property
    def closures(self) -> pl.DataFrame:
        """Where torch's optimizer calls the user's closure (``begin``, ``end``): from the first operator that autograd
        keeps to the end of the backward pass that follows. It keeps none of the optimizer's own."""
        window = self._window
        steps = sorted_by(window.on_loop(self._host.optimizer), "begin")
        backward = self._host.backward[["begin", "end"]]
        places = place_in(steps, backward["begin"])
        if not places.count() or len(self.named[FORWARD]):
            return backward.clear()
        backward = with_constant(backward.filter(places.is_not_null()), "is_backward", True, pl.Boolean)
        kept = self._kept_by_autograd(steps, backward)
        calls = pl.concat([backward, kept]).sort("begin", "is_backward")
        calls = calls.with_columns(step=place_in(steps, calls["begin"]))
        before = pl.col("is_backward").shift(1, fill_value=True)
        is_new = (~pl.col("is_backward") & before) | (pl.col("step") != pl.col("step").shift(1))
        found = calls.with_columns(call=is_new.fill_null(True).cum_sum()).group_by("call", maintain_order=True)
        found = found.agg(
            pl.col("begin").min(),
            end=pl.col("end").filter("is_backward").max(),
            is_complete=~pl.col("is_backward").first(),
        )
        return found.drop_nulls("end").filter("is_complete").select("begin", "end")

    def _kept_by_autograd(self, steps: pl.DataFrame, backward: pl.DataFrame) -> pl.DataFrame:
        """Operators in optimizer ``steps`` that have a number of autograd's, but those of the backward pass."""
        window = self._window
        is_operator = pl.col("category").is_in(list(OPERATORS)) & (pl.col("track") == window.loop_track)
        is_within = pl.col("ts").is_between(steps["begin"].min(), steps["end"].max())
        spans = window.trace.spans.filter(is_operator & is_within & pl.col("sequence").is_not_null())
        found = spans.select(begin="ts", end=pl.col("ts") + pl.col("dur"), is_backward=pl.lit(False)).collect()
        found = found.filter(place_in(steps, found["begin"]).is_not_null())
        return found.filter(IntervalUnion(backward).overlap_ns(found["begin"], found["end"]) == 0)
