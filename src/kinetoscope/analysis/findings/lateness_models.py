"""Models of lateness: the late ranks of a run in which some were on time, by a replay or by the recorded calls."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kinetoscope.analysis.findings.evidence.recording import RunRows
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.findings.straggler_groups import MIN_ONCE_SHARE, find_ranks_late_once
from kinetoscope.analysis.ranks.stragglers import (
    StragglerCandidates,
    StragglerRow,
    find_replayed_stragglers,
    lateness_by_rank,
    wait_by_step,
)
from kinetoscope.analysis.replay.replay import Change, ReplayGraph


class ReplayedLateness:
    """Lateness by a replay, for runs whose replay is trusted."""

    def __init__(self, rows: RunRows, savings: SavingEstimator, candidates: StragglerCandidates) -> None:
        self.graph, self._rows, self._savings = savings.graph, rows, savings
        self.candidates: Sequence[StragglerRow] = candidates.candidates

    def find_still_late(self, on_time: frozenset[int]) -> list[StragglerRow]:
        """Return the ranks that are late in the replay, the latest first."""
        return self._find_still_late(self.graph.as_recorded, Change(on_time=on_time))

    def find_late_once(self, on_time: frozenset[int]) -> list[StragglerRow]:
        """Return the ranks that are late in a single step of the replay."""
        return self._find_late_once(self.graph.as_recorded, Change(on_time=on_time))

    def estimate_saving_ns(self, on_time: frozenset[int]) -> float:
        """Return the saving per step if the ranks had never been late: a few recorded steps need not show it all."""
        return self._savings.saving_per_step_ns(self.graph.as_recorded.saving_if_never_late_ns(on_time))

    def find_late_with(self, graph: ReplayGraph, change: Change) -> set[int]:
        """Return the ranks that are late in a replay with a change, in several steps or in one."""
        return {row.rank for row in (*self._find_still_late(graph, change), *self._find_late_once(graph, change))}

    def _find_still_late(self, graph: ReplayGraph, change: Change) -> list[StragglerRow]:
        return find_replayed_stragglers(graph.lateness_by_rank(change), self._rows.steps)

    def _find_late_once(self, graph: ReplayGraph, change: Change) -> list[StragglerRow]:
        return find_ranks_late_once(graph.lateness_by_rank(change), self._rows.steps, self._rows.step_ns)


class RecordedLateness:
    """Lateness as recorded, for runs without a trusted replay.

    Its saving is the sum over calls, or over steps where only phases show the late rank, as if none depended on
    another.
    """

    def __init__(self, rows: RunRows, candidates: StragglerCandidates) -> None:
        self._rows, self._calls, self._phases = rows, candidates.calls, candidates.phases
        self.candidates: Sequence[StragglerRow] = rows.stragglers

    def find_still_late(self, on_time: frozenset[int]) -> list[StragglerRow]:
        """Return no rank: the recorded calls show all late ranks."""
        return []

    def find_late_once(self, on_time: frozenset[int]) -> list[StragglerRow]:
        """Return the other ranks that were late in a single step, if the others waited long enough for them."""
        rows = find_ranks_late_once(lateness_by_rank(self._calls), self._rows.steps, self._rows.step_ns)
        rows = [replace(row, cost_ns_per_step=self._cost_ns(row)) for row in rows if row.rank not in on_time]
        return [row for row in rows if row.cost_ns_per_step >= MIN_ONCE_SHARE * self._rows.step_ns]

    def estimate_saving_ns(self, on_time: frozenset[int]) -> float:
        """Return the time by which calls would start earlier, in ns per step."""
        saved_ns = sum(_earlier_ns(late_ns, on_time) for late_ns in self._lateness())
        return saved_ns / self._num_steps

    def _cost_ns(self, row: StragglerRow) -> int:
        """Return the time per step that the others wait for a rank that is late in one step."""
        return round(wait_by_step(self._calls, {row.rank}).get(row.steps[0], 0.0) / self._num_steps)

    @property
    def _num_steps(self) -> int:
        return max(1, self._rows.num_steps)

    def _lateness(self) -> Iterator[Mapping[int, float]]:
        """Yield the lateness of each rank to each call, or in each step where phases show it."""
        for call in self._calls:
            if call.waits_ns is not None:
                last_start_ns, max_wait_ns = max(call.starts_ns), max(call.waits_ns)
                starts = zip(call.ranks, call.starts_ns, strict=True)
                yield {rank: max(0, max_wait_ns - (last_start_ns - start_ns)) for rank, start_ns in starts}
        for step in {step for late in self._phases.values() for step in late.by_step}:
            yield {rank: late.by_step.get(step, 0.0) for rank, late in self._phases.items()}


def _earlier_ns(late_ns: Mapping[int, float], on_time: Collection[int]) -> float:
    """Return the time by which the last rank starts earlier if some are on time."""
    return max(late_ns.values()) - max((ns for rank, ns in late_ns.items() if rank not in on_time), default=0.0)
