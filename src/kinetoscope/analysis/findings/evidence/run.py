"""Evidence of a run, as rules read it: typed parts by subject, built when they are first used."""

from collections.abc import Sequence
from functools import cached_property

from kinetoscope.analysis.findings.confidence import ConfidencePolicy
from kinetoscope.analysis.findings.evidence.communication import CommunicationEvidence
from kinetoscope.analysis.findings.evidence.cpu import CpuEvidence
from kinetoscope.analysis.findings.evidence.gpu import GpuEvidence
from kinetoscope.analysis.findings.evidence.loader import LoaderEvidence
from kinetoscope.analysis.findings.evidence.modules import ModuleEvidence
from kinetoscope.analysis.findings.evidence.recording import Recording, RunRows
from kinetoscope.analysis.findings.evidence.stalls import Stalls
from kinetoscope.analysis.findings.evidence.window import Float64Source, WindowEvidence
from kinetoscope.analysis.findings.finding import MAX_NAMED
from kinetoscope.analysis.findings.pipeline import find_pipeline, find_slow_stages
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.findings.straggler_evidence import find_straggler_evidence
from kinetoscope.analysis.memory.memory import MemoryRow
from kinetoscope.analysis.ranks.stragglers import StragglerCandidates
from kinetoscope.analysis.replay.replay import ReplayGraph
from kinetoscope.analysis.steps.step_time import MIN_TIMED_STEPS

_MAX_LOST_SHARE = 0.1
"""If more of the launches have no event on a device, the trace was filtered."""


class MemoryEvidence:
    """Allocated memory by rank and device."""

    def __init__(self, rows: Sequence[MemoryRow], windows: Sequence[WindowEvidence]) -> None:
        self.rows, self._windows = rows, windows

    def device_bytes(self, row: MemoryRow) -> int | None:
        """Return the memory of a row's device; None on CPUs, and where it was not recorded."""
        if row.device is None:
            return None
        sizes = (one.gpu.bytes_by_device for one in self._windows)
        return next((by_device[row.device] for by_device in sizes if row.device in by_device), None)


class CompilerEvidence:
    """Compilations of torch during training."""

    def __init__(self, compile_ns: float, stalls: Stalls) -> None:
        self.compile_ns, self.stalls = compile_ns, stalls


class Evidence:
    """Evidence of a run. A part that was not recorded is None.

    Averages leave out the late ranks: the ``stragglers``, of the ``candidates``, and the ``slow_stages`` of a pipeline.
    """

    def __init__(
        self, rows: RunRows, graph: ReplayGraph, windows: Sequence[WindowEvidence], candidates: StragglerCandidates
    ) -> None:
        self.rows, self.windows, self.candidates = rows, windows, candidates
        self.num_steps, self.step_ns = rows.num_steps, rows.step_ns
        self.savings = SavingEstimator(graph, rows.steps, rows.num_steps, rows.step_ns)
        self.stragglers = find_straggler_evidence(rows, self.savings, windows, candidates)
        pipeline = find_pipeline(rows.collectives)
        self.slow_stages = find_slow_stages(rows, self.savings, pipeline)
        self.on_time = self.stragglers.ranks - self.slow_stages.ranks
        self.late_ranks = self.on_time | self.slow_stages.ranks
        self._recording = Recording(rows, self.savings, windows, self.late_ranks)
        self.steps, self.mean_ns, self.stalls = self._recording.steps, self._recording.mean_ns, self._recording.stalls
        self._pipeline = pipeline

    @cached_property
    def cpu(self) -> CpuEvidence:
        """The CPU and the loops."""
        return CpuEvidence(self._recording)

    @cached_property
    def gpu(self) -> GpuEvidence | None:
        """The devices; None where there are none."""
        return GpuEvidence(self._recording) if any(row.window_ns is not None for row in self.rows.by_rank) else None

    @cached_property
    def loader(self) -> LoaderEvidence | None:
        """The DataLoader; None where nothing of it was recorded."""
        loader = LoaderEvidence(self._recording, self.cpu.delay)
        return loader if loader.wait_ns or loader.settings or loader.num_workers is not None else None

    @cached_property
    def communication(self) -> CommunicationEvidence | None:
        """Communication between ranks; None where none was recorded."""
        found = CommunicationEvidence(self._recording, self._pipeline, has_gpu=self.gpu is not None)
        return found if self.rows.collectives or found.exposed_ns else None

    @cached_property
    def memory(self) -> MemoryEvidence | None:
        """Allocated memory; None where it was not recorded."""
        return MemoryEvidence(self.rows.memory, self.windows) if self.rows.memory else None

    @cached_property
    def compiler(self) -> CompilerEvidence | None:
        """Compilations; None where there were none."""
        stalls = self.stalls("compile")
        return CompilerEvidence(self.cpu.part_ns("compile"), stalls) if len(stalls) else None

    @cached_property
    def modules(self) -> ModuleEvidence:
        """Costs by module."""
        return ModuleEvidence(self._recording.windows)

    @cached_property
    def confidence(self) -> ConfidencePolicy:
        """The confidence that the recording allows."""
        num_ranks = self.rows.world_size or 0
        waits_for_missing = len(self.rows.ranks) < num_ranks and len(self.rows.collectives) > 0
        is_filtered = any(one.gpu.lost_share > _MAX_LOST_SHARE for one in self.windows)
        is_short = self.num_steps < MIN_TIMED_STEPS
        is_uncertain = not self.savings.is_trusted or is_short or is_filtered or waits_for_missing
        return ConfidencePolicy(self.savings, self.cpu.delay, is_uncertain=is_uncertain)

    @cached_property
    def device_wait_ns(self) -> float:
        """The time per step that a device waits for its CPU, or for other ranks; on the CPU the whole step.

        Without a replay, the CPU's share of a wait for a late rank is unknown: such waits do not count.
        """
        if self.gpu is None:
            return self.step_ns
        except_for = frozenset[int]() if self.savings.is_trusted else self.late_ranks
        waits_ns = self.communication.waits_ns(except_for) if self.communication else 0.0
        return self.gpu.waits_for_cpu_ns + waits_ns

    @cached_property
    def waits_for_late_ns(self) -> float:
        """The time per step that ranks wait for stragglers, where no collective was recorded that shows it.

        Samples show such a wait within torch as one for its threads.
        """
        late = [row for row in self.stragglers.together if row.rank in self.candidates.phases]
        return max((row.cost_ns_per_step for row in late), default=0)

    @cached_property
    def in_float64(self) -> list[Float64Source]:
        """Tensors and modules in float64 on any rank, those with a known line first."""
        seen = dict.fromkeys(note for one in self.windows for note in one.float64)
        return sorted(seen, key=lambda note: note.line is None)[:MAX_NAMED]
