"""analysis: in which phase of a step its thread was: by names that say it, else by torch's operators and threads."""

from functools import cached_property

import polars as pl

from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.intervals import Coverage
from kinetoscope.analysis.window import OPERATORS, innermost, place_in

FORWARD, BACKWARD, OPTIMIZER, CLOSURE = "forward", "backward", "optimizer", "closure"


class Phases:
    """The phases of a window's steps, each as stretches of time (``begin``, ``end``) that belong to no other phase.

    Spans of a phase's name (`HostTime.of_phase`) count first; of a phase that no name says, torch's own spans do. Where
    there are neither, what hooks told does. Where they lie in one another, the innermost counts: so forward and
    backward within an optimizer's closure are theirs.
    """

    def __init__(self, host: HostTime) -> None:
        self._host, self._window = host, host.window
        self.named = {phase: host.of_phase(phase) for phase in (FORWARD, BACKWARD, OPTIMIZER)}
        """Spans that say the phase, if there are some."""

        if not any(map(self.knows, self.named)):
            self.named = {phase: host.watched_phase(phase) for phase in self.named}

    @cached_property
    def backward_of_torch(self) -> pl.DataFrame | None:
        """The stretches of torch's backward pass, which are on any thread; None where names say it."""
        host = self._host
        if len(self.named[BACKWARD]):
            return None
        threads = host.backward["track"].unique()
        waits = host.visits.filter(pl.col("track").is_in(threads.implode()))  # also between two functions of autograd
        return pl.concat([frame[["begin", "end"]] for frame in (host.backward, waits)])

    @cached_property
    def pieces(self) -> pl.DataFrame:
        """The stretches (``begin``, ``end``, ``phase``) of the loop's thread in spans of phases, by the innermost."""
        spans = [self._nested(phase, spans) for phase, spans in self.named.items() if len(spans)]
        if not len(self.named[OPTIMIZER]):
            spans.append(self._nested(OPTIMIZER, self._window.on_loop(self._host.optimizer)))
        spans = pl.concat([*spans, self._nested(CLOSURE, self.closures)])
        moments = pl.concat([spans["begin"], spans["end"]]).unique().sort().alias("begin")
        pieces = moments.to_frame().with_columns(end=moments.shift(-1)).drop_nulls()
        track = pl.lit(self._window.loop_track, dtype=pl.UInt32)
        around = innermost(spans, pieces.select(ts="begin", track=track))
        return pieces.with_columns(spans["phase"][around]).drop_nulls("phase")

    def _nested(self, phase: str, spans: pl.DataFrame) -> pl.DataFrame:
        track = pl.lit(self._window.loop_track, dtype=pl.UInt32)
        return spans.select("begin", "end", track=track, phase=pl.lit(phase))

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
        steps = window.on_loop(self._host.optimizer).sort("begin")
        backward = self._host.backward.select("begin", "end", is_backward=pl.lit(True))
        backward = backward.filter(pl.Series(place_in(steps, backward["begin"])).is_not_null())
        if not len(backward) or len(self.named[FORWARD]):
            return backward[["begin", "end"]].clear()
        kept = self._kept_by_autograd(steps, backward)
        calls = pl.concat([backward, kept]).sort("begin", "is_backward")
        calls = calls.with_columns(step=pl.Series(place_in(steps, calls["begin"])))
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
        return found.filter(Coverage(backward).within(found["begin"], found["end"]) == 0)
