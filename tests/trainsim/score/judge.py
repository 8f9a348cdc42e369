"""The judge: compares the report on a run with reruns of the same simulation.

The truth of a saving is the rerun without the fault. A finding that names no planted fault is true only if a rerun in
which what it names takes no time gains what it claims.
"""

import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from trainsim.analyses import first_wait_ns, simulate_and_analyze
from trainsim.engine import HostSpan
from trainsim.run import SimulatedRun
from trainsim.score.scenario import Drawn, Plant, Scenario
from trainsim.settings import Ideal

if TYPE_CHECKING:
    from kinetoscope.analysis.findings.finding import Finding
    from kinetoscope.analysis.run_report import RunReport

MIN_GAIN_SHARE = 0.05
"""A plant whose rerun gains less of a step is too small to be judged: neither its report nor its absence is wrong."""

LARGE_SAVING_SHARE = 0.10
"""Right first findings on plants whose rerun gains this share of a step should be of high confidence."""

SAVING_TOLERANCE = 0.02
"""A saving is right within this share of a step; a missing one is wrong where the rerun gains more."""

MIN_SHARE_OF_LARGEST = 0.5
"""Minimal gain of the top finding's plant, as a share of the other plant's gain."""

MIN_GAIN_OF_SOME = 0.85
"""A finding that names some of the planted ranks is right if the rerun without those gains this share of it all."""

_IDEALS: dict[str, Ideal] = {
    "input_bound": "data",
    "synchronisation": "sync",
    "host_bound": "launch",
    "small_kernels": "launch",
    "exposed_communication": "transfer",
    "exposed_copy": "copy",
    "python_overhead": "python",
    "blocked": "blocked",
    "garbage_collection": "gc",
    "recompilation": "compile",
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A finding of a report, with the judgement on it.

    ``is_true`` is whether it names a plant, or a rerun confirms it; None if it was not judged, being of low confidence.
    """

    kind: str
    ranks: tuple[int, ...]
    causes: tuple[str, ...]
    confidence: str
    saving_share: float | None
    title: str
    is_true: bool | None = None


@dataclass(frozen=True, kw_only=True)
class PlantVerdict:
    """Judgement on one plant that matters.

    ``off_share`` is the finding's saving less the rerun's, as a share of a step; None where either is unknown.
    ``is_saving_right`` is None where no saving is judged.
    """

    kind: str
    gain_share: float
    is_named: bool
    confidence: str | None = None
    off_share: float | None = None
    is_saving_right: bool | None = None
    is_in_interval: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement on one run, and on its healthy version."""

    scenario: str
    seed: int
    has_overlap: bool
    is_right: bool | None
    """The first sentence is right; None if no plant of the run matters."""
    first_confidence: str | None = None
    first_gain_share: float | None = None
    """Gain of the rerun without the plant that a right top finding names."""
    max_confidence: str = "high"
    plants: tuple[PlantVerdict, ...] = ()
    claims: tuple[Claim, ...] = ()
    false_high: tuple[str, ...] = ()
    healthy_claims: tuple[Claim, ...] | None = None
    """Findings above low confidence on the healthy version; None if that was not judged."""
    error: str = ""
    cpu_s: float = 0.0

    @property
    def is_failed(self) -> bool:
        """The run has a fault."""
        has_wrong_saving = any(plant.is_saving_right is False for plant in self.plants)
        return bool(self.error or self.is_right is False or self.false_high or self.healthy_claims or has_wrong_saving)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return asdict(self)


def judge(scenario: Scenario, seed: int) -> Verdict:
    """Judge the run of a seed. An exception of the analysis is a failure of the run, and not raised."""
    started_s = time.process_time()
    drawn = scenario.draw(seed)
    try:
        verdict = _judge(scenario, drawn, seed)
    except Exception:
        verdict = Verdict(
            scenario=scenario.name,
            seed=seed,
            has_overlap=bool(drawn.settings.overlap_ns),
            is_right=False,
            error=traceback.format_exc(limit=-4),
        )
    return replace(verdict, cpu_s=round(time.process_time() - started_s, 2))


def _judge(scenario: Scenario, drawn: Drawn, seed: int) -> Verdict:
    run, report = simulate_and_analyze(drawn.settings)
    truth = _Truth(run, report)
    gains = {plant: truth.gain_share(plant.faults) for plant in drawn.plants}
    matter = [plant for plant in drawn.plants if _matters(plant, gains[plant])]
    claims = [_claim(finding, report, run) for finding in report.findings]
    claims = [
        claim if claim.confidence == "low" else replace(claim, is_true=truth.is_true(finding, drawn.plants))
        for claim, finding in zip(claims, report.findings, strict=True)
    ]
    first = report.findings[0] if report.findings else None
    named = next((plant for plant in matter if first is not None and truth.names(first, plant)), None)
    verdict = Verdict(
        scenario=scenario.name,
        seed=seed,
        has_overlap=bool(drawn.settings.overlap_ns),
        is_right=_is_right(scenario, drawn, claims, named, matter, gains),
        plants=tuple(truth.verdict(plant, gains[plant]) for plant in matter),
        claims=tuple(claims),
        false_high=tuple(_false_high(truth, report.findings, claims, drawn.plants)),
    )
    if named is not None and first is not None:
        verdict = replace(
            verdict,
            first_confidence=first.confidence,
            first_gain_share=round(gains[named], 4),
            max_confidence=named.max_confidence,
        )
    if drawn.plants and scenario.has_healthy_version(seed):
        verdict = replace(verdict, healthy_claims=_healthy_claims(scenario, drawn))
    return verdict


def _matters(plant: Plant, gain_share: float) -> bool:
    return gain_share >= MIN_GAIN_SHARE or plant.kind.startswith("memory")


def _is_right(
    scenario: Scenario,
    drawn: Drawn,
    claims: Sequence[Claim],
    named: Plant | None,
    matter: Sequence[Plant],
    gains: dict[Plant, float],
) -> bool | None:
    """Judge the first sentence; of a healthy run it is right if there is no finding above low confidence."""
    if not drawn.plants:
        return not _mistakes(scenario, claims)
    if not matter:
        return None
    return named is not None and gains[named] >= MIN_SHARE_OF_LARGEST * max(
        gains[plant] for plant in matter if not plant.kind.startswith("memory") or plant is named
    )


def _false_high(
    truth: "_Truth", findings: Sequence["Finding"], claims: Sequence[Claim], plants: Sequence[Plant]
) -> list[str]:
    """Return the findings of high confidence that are false, or that the evidence does not support."""
    false = []
    for finding, claim in zip(findings, claims, strict=True):
        if claim.confidence != "high":
            continue
        is_capped = any(plant.max_confidence != "high" and truth.names(finding, plant) for plant in plants)
        if not claim.is_true or is_capped:
            false.append(f"{claim.kind} {list(claim.ranks) or ''}".strip())
    return false


def _healthy_claims(scenario: Scenario, drawn: Drawn) -> tuple[Claim, ...]:
    run, report = simulate_and_analyze(replace(drawn.settings, faults=()))
    return _mistakes(scenario, [_claim(finding, report, run) for finding in report.findings])


def _mistakes(scenario: Scenario, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Return the findings that a healthy run should not have."""
    return tuple(
        claim
        for claim in claims
        if claim.confidence == "high" or (claim.confidence == "medium" and claim.kind not in scenario.healthy_kinds)
    )


def _claim(finding: "Finding", report: "RunReport", run: SimulatedRun) -> Claim:
    ranks, saving_ns = finding.where.ranks, finding.saving_ns_per_step
    causes = [row.cause for row in report.stragglers if row.rank in ranks] if finding.kind == "straggler" else []
    return Claim(
        kind=finding.kind,
        ranks=ranks,
        causes=tuple(sorted({*causes})),
        confidence=finding.confidence,
        saving_share=None if saving_ns is None else round(saving_ns / _step_ns(report, run), 4),
        title=finding.title,
    )


def _step_ns(report: "RunReport", run: SimulatedRun) -> float:
    """Return the step time that a report's savings are savings of: the mean of all that was recorded, or less where the
    last step took longer than the others. The step time in the report leaves out what was in flight at the start.

    How long the simulated loops took for their steps is known from the simulation, not from the report.
    """
    loops = [window.steps for rank in run.ranks for window in rank.windows]
    recorded_ns = sum(_end_ns(steps[-1]) - steps[0].begin_ns for steps in loops) / sum(map(len, loops))
    return run.time_ns / run.num_steps * min(1.0, (report.run["step_ns"] or 1.0) / recorded_ns)


def _end_ns(step: HostSpan) -> int:
    assert step.end_ns is not None
    return step.end_ns


class _Truth:
    """Results of the reruns of one simulated run."""

    def __init__(self, run: SimulatedRun, report: "RunReport") -> None:
        self._run, self._report = run, report
        self._step_ns = run.time_ns / run.num_steps
        self._gains: dict[tuple[int, ...], float] = {}

    def gain_share(self, faults: tuple[int, ...]) -> float:
        """Return the share of a step that the rerun without some faults gains."""
        if faults not in self._gains:
            self._gains[faults] = self._run.saving_ns_per_step(self._run.without(*faults)) / self._step_ns
        return self._gains[faults]

    def names(self, finding: "Finding", plant: Plant) -> bool:
        """Tell whether a finding names a plant: its kind, ranks, cause and operator."""
        if finding.kind not in plant.kinds or plant.mentions not in finding.title:
            return False
        if finding.kind != "straggler":
            return True
        ranks = {*finding.where.ranks}
        causes = {row.cause for row in self._report.stragglers if row.rank in ranks}
        if not ranks or not ranks <= {*plant.ranks} or (plant.causes and not causes <= {*plant.causes}):
            return False
        faults = self.faults_of(finding, plant)
        return faults == plant.faults or self.gain_share(faults) >= MIN_GAIN_OF_SOME * self.gain_share(plant.faults)

    def faults_of(self, finding: "Finding", plant: Plant) -> tuple[int, ...]:
        """Return the faults of the plant that are of the ranks that a finding names."""
        ranks, faults = {*finding.where.ranks}, self._run.settings.faults
        if finding.kind != "straggler":
            return plant.faults
        some = tuple(index for index in plant.faults if {*faults[index].ranks} & ranks)
        return some or plant.faults

    def is_true(self, finding: "Finding", plants: Sequence[Plant]) -> bool:
        """Tell whether a finding names a plant, or a rerun without what it names gains what it claims."""
        if any(self.names(finding, plant) for plant in plants):
            return True
        if (ideal := _IDEALS.get(finding.kind)) is None:
            return False
        gain = self._run.saving_ns_per_step(self._run.with_ideal(ideal)) / self._step_ns
        claimed = (finding.saving_ns_per_step or 0) / _step_ns(self._report, self._run)
        return gain >= max(SAVING_TOLERANCE, claimed - SAVING_TOLERANCE)

    def verdict(self, plant: Plant, gain_share: float) -> PlantVerdict:
        """Judge how a plant is reported, in whichever finding names it first."""
        finding = next((one for one in self._report.findings if self.names(one, plant)), None)
        verdict = PlantVerdict(kind=plant.kind, gain_share=round(gain_share, 4), is_named=finding is not None)
        if finding is None:
            return verdict
        verdict = replace(verdict, confidence=finding.confidence)
        if not plant.has_replay:
            return verdict
        gain_share = self.gain_share(self.faults_of(finding, plant))
        if finding.saving_ns_per_step is None:
            return replace(verdict, is_saving_right=gain_share <= SAVING_TOLERANCE)
        saving_share = finding.saving_ns_per_step / _step_ns(self._report, self._run)
        if finding.kind == "input_bound":
            saving_share += max(0.0, first_wait_ns(self._run, self._report)) / self._run.time_ns
        max_share = dict(finding.evidence).get("max_saving_ns", 0) / _step_ns(self._report, self._run)
        off_share = saving_share - gain_share
        is_right = abs(off_share) <= SAVING_TOLERANCE
        is_in_interval = saving_share - SAVING_TOLERANCE <= gain_share <= max_share + SAVING_TOLERANCE
        return replace(
            verdict,
            off_share=round(off_share, 4),
            is_saving_right=is_right,
            is_in_interval=is_right or is_in_interval,
        )
