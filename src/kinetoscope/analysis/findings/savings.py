"""Savings of fixes: how much shorter a step would be, by replays of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.replay.replay import Change, ReplayGraph
from kinetoscope.analysis.steps.step_time import ratio_to_recorded_mean, saving_per_step_ns
from kinetoscope.analysis.steps.steps import StepRow

_MAX_SHARE_OF_ONE_STEP = 0.6
"""If one step gains more of a saving, it may be a hiccup: a transfer that took 8 ms longer in one of ten steps of 8 ms
was a finding of high confidence."""

_MAX_EQUAL_SHARE = 0.02
"""Savings that differ by less than this share of a step count as equal."""

_LOADER_LIMIT_ADVICE = (
    " After that the DataLoader limits the loop, because its workers have little time to spare: add workers or make "
    "batches cheaper, too."
)
_RANGE_ADVICE = (
    " The recording does not show the exact saving: it is at least the estimate, at most {:.0f} % of a step."
)
_PAUSES_ADVICE = (
    " It saves up to {:.0f} % of a step while pauses of the loop, such as GC pauses, stay as long as they are: kernels "
    "that were launched ahead then keep the GPU busy."
)


@dataclass(frozen=True)
class Saving:
    """Saving of a fix per step; None where no replay is trusted."""

    ns: float | None = None
    loader_limited_ns: float = 0.0
    """The further saving if the loop did not have to wait for its loader then; 0 if that is little."""
    max_ns: float | None = None
    """The largest possible saving, None where the recording shows the exact one."""
    advice: str = ""
    """Sentences on both."""


class SavingEstimator:
    """Savings of one run, whose ``num_steps`` steps take ``step_ns`` each."""

    def __init__(self, graph: ReplayGraph, steps: Sequence[StepRow], num_steps: int, step_ns: float) -> None:
        self.graph = FaultGraph(graph)
        self.is_trusted = graph.why_untrusted is None
        self._steps, self._num_steps, self._step_ns = steps, num_steps, step_ns

    def saving_per_step_ns(self, saved_ns: float) -> float:
        """Return how much shorter a step would be if the whole recording took ``saved_ns`` less."""
        return saving_per_step_ns(saved_ns, self._num_steps, self._step_ns, self._share_of_recorded)

    @cached_property
    def _share_of_recorded(self) -> float:
        return ratio_to_recorded_mean(self._steps, self._step_ns)

    def saving_of_change_ns(self, change: Change) -> float | None:
        """Return the saving of a change of the graph as recorded."""
        return self.saving_per_step_ns(self.graph.saved_ns(change)) if self.is_trusted else None

    def saving_ns(self, fix: Fix) -> float | None:
        """Return the saving of a fix."""
        return self.saving_per_step_ns(fix.saved_ns(self.graph)) if self.is_trusted else None

    def estimate(self, fix: Fix | None) -> Saving:
        """Return the saving of a fix, with its bounds; nothing without a fix."""
        if fix is None or (saving_ns := self.saving_ns(fix)) is None:
            return Saving()
        loader_limited_ns = self._loader_limited_ns(fix, saving_ns)
        max_ns = (
            saving_ns + loader_limited_ns
        )  # batches that were built ahead give back a little of that for some steps
        is_exact = not (self.graph.has_guesses or fix.max_variant or fix.beyond)
        if not is_exact:
            max_ns = max(max_ns, self.saving_per_step_ns(fix.max_saved_ns(self.graph)))
        if max_ns <= saving_ns + _MAX_EQUAL_SHARE * self._step_ns:
            return Saving(saving_ns, loader_limited_ns, None, _LOADER_LIMIT_ADVICE if loader_limited_ns else "")
        is_of_pauses = fix.beyond and not (loader_limited_ns or fix.max_variant or self.graph.has_guesses)
        return Saving(
            saving_ns,
            loader_limited_ns,
            max_ns,
            self._advise_on_range(max_ns, loader_limited_ns, is_of_pauses=bool(is_of_pauses)),
        )

    def estimate_on_time(self, fix: Fix) -> Saving:
        """Return the same of a fix of late ranks, which only loaders can hold back."""
        if (saving_ns := self.saving_ns(fix)) is None:
            return Saving()
        loader_limited_ns = self._loader_limited_ns(fix, saving_ns)
        max_ns = saving_ns + loader_limited_ns if loader_limited_ns else None
        return Saving(
            saving_ns, loader_limited_ns, max_ns, self._advise_on_range(max_ns, loader_limited_ns) if max_ns else ""
        )

    def is_of_one_step(self, fix: Fix) -> bool:
        """Return whether one step of several gains most of a saving: a single hiccup is no pattern."""
        if self._num_steps < 2:
            return False
        halves = self.graph.variant(fix.variant).gained_by_slice(fix.change, 2 * self._num_steps)
        max_ns = max(map(sum, pairwise(halves)), default=0)  # a step may begin in the middle of a slice
        return max_ns > _MAX_SHARE_OF_ONE_STEP * sum(halves)

    def _loader_limited_ns(self, fix: Fix, saving_ns: float) -> float:
        if self.graph.with_fast_loaders is self.graph:
            return 0.0
        loader_limited_ns = self.saving_per_step_ns(fix.saved_ns(self.graph.with_fast_loaders)) - saving_ns
        return loader_limited_ns if loader_limited_ns > _MAX_EQUAL_SHARE * self._step_ns else 0.0

    def _advise_on_range(self, max_ns: float, loader_limited_ns: float, *, is_of_pauses: bool = False) -> str:
        sentence = _PAUSES_ADVICE if is_of_pauses else _RANGE_ADVICE
        return (_LOADER_LIMIT_ADVICE if loader_limited_ns else "") + sentence.format(100 * max_ns / self._step_ns)
