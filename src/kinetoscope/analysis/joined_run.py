"""Windows of a run, joined on one clock: their rows, late ranks and replay, and the report on them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from kinetoscope.analysis.call_sums import CallSums, join_sums
from kinetoscope.analysis.cpu.operators import OperatorRow, build_flop_notes, operator_rows
from kinetoscope.analysis.cpu.throughput import throughput
from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.notes import build_replay_notes, build_step_notes
from kinetoscope.analysis.gpu.kernels import KernelRow, kernel_rows, tensor_core_usage
from kinetoscope.analysis.hints import find_hints
from kinetoscope.analysis.memory.memory import combine_memory_rows
from kinetoscope.analysis.modules.module_rows import ModuleRow, join_modules
from kinetoscope.analysis.ranks.clock_alignment import TimeShift, add_clock_bounds, shifts_to_rank_0
from kinetoscope.analysis.ranks.collectives import ClockShift, JoinedCollectives, join_collectives
from kinetoscope.analysis.ranks.contention import Contention, find_contention, find_cpu_use, is_slowed
from kinetoscope.analysis.ranks.phase_stragglers import PhaseWork, find_phase_stragglers
from kinetoscope.analysis.ranks.ranks import RankRow, add_step_parts, combine_rank_rows
from kinetoscope.analysis.ranks.run_queue_delay import RunQueueDelay
from kinetoscope.analysis.ranks.stragglers import StragglerCandidates, find_straggler_candidates, wait_for_stragglers_ns
from kinetoscope.analysis.ranks.transitive_waits import find_message_waits
from kinetoscope.analysis.replay.replay import ReplayGraph
from kinetoscope.analysis.run_checks import (
    build_run_notes,
    drop_duplicate_windows,
    list_missing_data,
    require_one_run,
    require_one_time,
    why_unjudged,
)
from kinetoscope.analysis.run_report import RunFacts, RunReport
from kinetoscope.analysis.steps.call_times_by_step import step_times
from kinetoscope.analysis.steps.least_disturbed_steps import find_least_disturbed_steps
from kinetoscope.analysis.steps.step_time import step_time_ns
from kinetoscope.analysis.steps.step_work import build_rate_notes, compute_rates
from kinetoscope.analysis.steps.steps import StepRow, missing_share
from kinetoscope.analysis.steps.time_breakdown import run_breakdown
from kinetoscope.analysis.summaries import SummedTrace, WindowSummary
from kinetoscope.analysis.windows.kernel_names import build_communication_notes
from kinetoscope.frames.run_state import run_state


@dataclass(frozen=True)
class JoinedRun:
    """The traces of a run, and the summaries of their windows on one clock, each once.

    Attributes:
        shifts: the clock shift of each rank that its collectives show, beyond the measured one.
    """

    traces: Sequence[SummedTrace]
    summaries: Sequence[WindowSummary]
    copy_notes: Sequence[str]
    ranks: Sequence[RankRow]
    collectives: JoinedCollectives
    shifts: dict[int, ClockShift]

    @classmethod
    def of(cls, traces: Iterable[SummedTrace]) -> "JoinedRun":
        """Join the traces of a run.

        Raises:
            MergeError: if they are of different runs.
        """
        traces = sorted(traces, key=lambda trace: (trace.rank is None, trace.rank or 0, trace.name))
        require_one_run(traces)
        summaries, copies = drop_duplicate_windows(_put_on_one_clock(traces))
        ranks = combine_rank_rows([row for summary in summaries for row in summary.ranks])
        exact = [row.rank for row in ranks if row.clock_bound_ns == 0 and row.rank is not None]
        collectives, shifts = join_collectives([summary.calls for summary in summaries], exact)
        summaries = [summary.shifted(TimeShift.of(shifts, summary.rank)) for summary in summaries]
        run = cls(traces, summaries, copies, ranks, collectives, dict(shifts))
        require_one_time(run.steps)
        return run

    @cached_property
    def steps(self) -> list[StepRow]:
        """The steps of all windows."""
        return [row for summary in self.summaries for row in summary.steps]

    @cached_property
    def num_steps(self) -> int:
        """The number of recorded steps; a loop that restarts its count may have several of one number."""
        by_rank = Counter(row.rank for row in self.steps)
        return max(len({row.step for row in self.steps}), max(by_rank.values(), default=0))

    @cached_property
    def sums(self) -> CallSums:
        """The sums of the calls of all windows."""
        return join_sums([summary.sums for summary in self.summaries])

    @cached_property
    def operators(self) -> list[OperatorRow]:
        """The operators of all windows."""
        return operator_rows(self.sums.operators)

    @cached_property
    def kernels(self) -> list[KernelRow]:
        """The kernels of all windows."""
        return kernel_rows(self.sums.kernels)

    @cached_property
    def modules(self) -> list[ModuleRow]:
        """The modules of each rank, where their calls were recorded."""
        return join_modules([(summary.rank, summary.modules) for summary in self.summaries])

    @cached_property
    def evidence(self) -> list[WindowEvidence]:
        """The evidence of the windows."""
        return [summary.evidence for summary in self.summaries if summary.evidence is not None]

    @property
    def is_partial(self) -> bool:
        """True if a window has only a part of its events."""
        return any(summary.is_partial for summary in self.summaries)

    @property
    def has_torch_events(self) -> bool:
        """True if torch recorded operators."""
        return any(summary.has_torch_events for summary in self.summaries)

    @cached_property
    def why_unjudged(self) -> list[str]:
        """The reasons to report no findings."""
        return [*why_unjudged(self.traces)]

    def build_graph(self, *, is_sample: bool) -> ReplayGraph | None:
        """Return the replay graph, or None if some windows were summed up without one.

        Args:
            is_sample: True if other ranks were left out.
        """
        parts = [summary.dependencies for summary in self.summaries if summary.dependencies is not None]
        if len(parts) < len(self.summaries):
            return None
        world_size = max((trace.world_size or 2 for trace in self.traces), default=2)
        return ReplayGraph.join(
            [part.of_sample() for part in parts] if is_sample else parts,
            self.collectives.calls,
            is_complete=is_sample or len({summary.rank for summary in self.summaries}) >= world_size,
            missing_share=missing_share(self.steps),
        )

    @cached_property
    def straggler_candidates(self) -> StragglerCandidates:
        """The late ranks: by their collectives, or by phases where none were recorded."""
        if any(trace.is_incomplete for trace in self.traces):
            return StragglerCandidates()
        bound_ns = max((shift.bound_ns for shift in self.shifts.values()), default=0)
        messages = find_message_waits(self.collectives.calls)
        late = find_straggler_candidates(self.collectives.rows, self.steps, bound_ns, messages)
        if late.calls or self.has_torch_events:
            return late
        return find_phase_stragglers(
            self.steps, [(one.rank, PhaseWork.of(one.sampled, one.markers)) for one in self.evidence]
        )

    @cached_property
    def contention(self) -> Contention | None:
        """The contention for the CPUs, None where it was not recorded."""
        use = find_cpu_use(self.steps, self.ranks, [(one.rank, one.cpu.counters) for one in self.evidence])
        return find_contention(RunQueueDelay(self.steps, step_time_ns(self.steps) or 0.0), use)

    def find_hints(self) -> list[str]:
        """Return the hints on the recorded kernels and operators."""
        majors = {major for one in self.evidence for major in one.gpu.majors_by_device.values()}
        return find_hints(
            self.kernels, self.operators, majors, {row.device_name for row in self.ranks if row.device_name}
        )

    def build_report(self, graph: ReplayGraph | None) -> RunReport:
        """Return the report without findings."""
        in_time = sorted(self.summaries, key=lambda summary: summary.steps[0].begin_ns if summary.steps else 0)
        parts = [(summary.rank, one) for summary in self.summaries for one in summary.parts]
        return RunReport(
            run=self._build_facts(self._list_notes(graph)),
            ranks=add_step_parts(add_clock_bounds(self.ranks, self.shifts), parts),
            steps=sorted(self.steps, key=lambda row: (row.step, row.rank or 0)),
            collectives=self.collectives.rows,
            stragglers=self.straggler_candidates.rows,
            operators=self.operators,
            kernels=self.kernels,
            memory=combine_memory_rows([row for summary in in_time for row in summary.memory]),
            modules=self.modules,
            findings=[],
            is_judged=False,
            why_unjudged=self.why_unjudged,
            build_graph=lambda: graph,
            by_step=step_times(self.sums.by_step, Counter(sorted(row.step for row in self.steps))),
            clock_shifts=dict(self.shifts),
        )

    def _list_notes(self, graph: ReplayGraph | None) -> list[str]:
        return [
            *self.why_unjudged,
            *(note for trace in self.traces for note in trace.notes),
            *self.copy_notes,
            *build_run_notes(self.traces, self.summaries, self.ranks, self.steps, self.shifts),
            *build_communication_notes([row.name for row in self.kernels if row.kind == "compute"]),
            *build_flop_notes(self.operators),
            *build_replay_notes(None if self.is_partial else graph),
        ]

    def _build_facts(self, notes: Sequence[str]) -> RunFacts:
        """Return ``run`` of a report, with these notes before those on its steps."""
        traces = self.traces
        name = next((trace.run_name for trace in traces if trace.run_name), None)
        sizes = [trace.world_size for trace in traces if trace.world_size is not None]
        late_wait_ns = wait_for_stragglers_ns(self.collectives.rows, self.straggler_candidates, len(self.steps))
        step_ns, parts, bound_by = run_breakdown(
            [one for summary in self.summaries for one in summary.parts], late_wait_ns
        )
        state = run_state([trace.written for trace in traces])
        missing = list_missing_data(traces, self.steps) if state in ("killed", "recording") else []
        samples_per_s, tokens_per_s = throughput([trace.counted for trace in traces], step_ns)
        if bound_by == "host" and not self.has_torch_events:
            bound_by = "unknown"  # there may be a device without any recorded event
        parts_computed, timed_ns = [one.work_sums for one in self.summaries], None if self.is_partial else step_ns
        rates = compute_rates(parts_computed, timed_ns)
        notes = [*notes, *build_rate_notes(parts_computed, timed_ns), *build_step_notes(self.num_steps)]
        return {
            "name": name,
            "title": name,
            "world_size": max(sizes, default=None),
            "ranks": sorted({row.rank for row in self.ranks if row.rank is not None}),
            "hosts": sorted({host for trace in traces for host in trace.hosts}),
            "num_steps": self.num_steps,
            "state": state,
            "step_ns": step_ns,
            "bound_by": "unknown" if self.is_partial else bound_by,
            "parts": parts,
            "samples_per_s": samples_per_s,
            "tokens_per_s": tokens_per_s,
            "all_steps": None,
            "slow_steps": [],
            "missing": missing,
            **rates,
            **tensor_core_usage([] if self.is_partial else self.kernels),
            "notes": list(dict.fromkeys(notes)),
            "hints": [],
            "contention": self.contention,
            "least_disturbed_steps": find_least_disturbed_steps(self.steps) if is_slowed(self.contention) else None,
        }


def _put_on_one_clock(traces: Sequence[SummedTrace]) -> list[tuple[SummedTrace, WindowSummary]]:
    """Return the windows of all traces, moved by the clock offsets measured during the run."""
    shifts = shifts_to_rank_0([(trace.rank, trace.clock) for trace in traces])
    return [
        (trace, window.shifted(shift)) for trace, shift in zip(traces, shifts, strict=True) for window in trace.windows
    ]
