"""Evidence on the CPU: time of the loops, their operators, and how long they waited for a core."""

from collections import Counter
from collections.abc import Collection
from functools import cached_property

import polars as pl

from kinetoscope.analysis.findings.evidence.recording import Recording
from kinetoscope.analysis.ranks.contention import CpuUse, find_cpu_use
from kinetoscope.analysis.ranks.run_queue_delay import CoreLoad, RunQueueDelay
from kinetoscope.analysis.replay.replay import is_of_ranks


class CpuEvidence:
    """Time of the loops' threads, in ns per step."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        cpus = [one.cpu for one in recording.all_windows]
        self.has_operators = any(one.has_operators for one in cpus)
        self.has_operators_everywhere = all(one.has_operators for one in cpus)
        self.is_sampled = any(one.is_sampled for one in cpus)
        self.is_too_short = any(one.is_too_short for one in cpus)
        """True if a longer recording would show the use of the machine."""
        percents = [one.machine_percent for one in cpus if one.machine_percent is not None]
        self.machine_percent = sum(percents) / len(percents) if percents else None
        self.num_items, self.num_items_of_optimizer = (
            sum(getattr(one, name) for one in cpus) for name in ("num_items", "num_items_of_optimizer")
        )

    def part_ns(self, part: str) -> float:
        """Return the time of a part of the replay, without runs of small kernels."""
        taken = self._recording.edges.select(pl.col(part).filter(~pl.col("in_run")).sum())
        return int(taken.item()) / self._recording.num_rank_steps

    @property
    def launching_ns(self) -> float:
        """The time to launch kernels, with the operators around launches, without runs of small ones."""
        edges = self._recording.savings.graph.without_launches().edges
        taken = edges.select(pl.col("launch").filter(~is_of_ranks(self._recording.late_ranks)).sum())
        return int(taken.item()) / self._recording.num_rank_steps

    @cached_property
    def pauses(self) -> frozenset[str]:
        """The replay's parts that pause the loop in some steps: their time is not the cost of a sync before them."""
        return frozenset(part for part in ("gc", "compile", "profiler", "blocked") if self.part_ns(part) > 0)

    def python_before_ns(self, names: Collection[str]) -> float:
        """Return the Python that operators of these names require before them."""
        by_window = [one.cpu.required_python for one in self._recording.windows]
        total_ns = sum(by_name.get(name, 0) for by_name in by_window for name in names)
        return total_ns / self._recording.num_rank_steps

    def num_operators(self, ranks: Collection[int | None]) -> float:
        """Return the largest number of operators per step of these ``ranks``."""
        return max((num for rank, num in self._operators_by_rank.items() if rank in ranks), default=0.0)

    def share_of_operators(self, num_operators: float) -> float | None:
        """Return the share that so many operators have in those of a step; None where none were recorded."""
        max_operators = self.num_operators(self._operators_by_rank)
        return min(1.0, num_operators / max_operators) if max_operators else None

    @cached_property
    def _operators_by_rank(self) -> dict[int | None, float]:
        num_steps = Counter(row.rank for row in self._recording.rows.steps)
        totals = Counter[int | None]()
        for one in self._recording.all_windows:
            totals[one.rank] += one.cpu.num_operators
        return {rank: num / num_steps[rank] for rank, num in totals.items() if num_steps[rank]}

    @cached_property
    def delay(self) -> RunQueueDelay:
        """Run-queue delay of the loops."""
        read = [(one.cpu.machine_percent, one.cpu.process_percent) for one in self._recording.all_windows]
        loads = [CoreLoad(machine, process) for machine, process in read if machine is not None and process is not None]
        return RunQueueDelay(self._recording.steps, self._recording.rows.step_ns, loads)

    @cached_property
    def use(self) -> CpuUse:
        """CPU use on the machine whose loops waited longest for a CPU."""
        notes = [(one.rank, one.cpu.counters) for one in self._recording.all_windows]
        return find_cpu_use(self._recording.rows.steps, self._recording.rows.by_rank, notes)

    @property
    def process_percent(self) -> float | None:
        """The largest use of a core by a process of the run; None if that of a process is unknown."""
        percents = [one.cpu.process_percent for one in self._recording.all_windows]
        known = [percent for percent in percents if percent is not None]
        return max(known) if known and len(known) == len(percents) else None
