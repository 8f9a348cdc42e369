"""Diagnoses of rules, and their assessment: a finding where the fault is worth enough of a step."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kinetoscope.analysis.findings.confidence import HIGH_SHARE, MIN_SHARE_OF_HIGH
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Finding, Where, build_finding
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.recording_options import LINE_ADVICE
from kinetoscope.analysis.findings.titles import Title, add_detail
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.steps.periods import find_period, format_period

_MAX_TIMES_MEAN = 4
"""Faults that are too small even at so many times their mean cost are not replayed: ranks that wait for each other lose
little more."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A fault as a rule sees it, before its saving and confidence are known."""

    title: Title
    advice: str
    cost_ns: float
    """Time per step that the fault takes."""
    fix: Fix | None
    """The change to replay; without one, the cost decides."""
    evidence: Mapping[str, float | None]
    where: Where = field(default_factory=Where)
    high_share: float = HIGH_SHARE
    """The share of a step from which on confidence is high."""
    is_estimate: bool = False
    """True if confidence is at most medium."""
    stalls: str = ""
    """The kind of stalls that show in which steps the fault occurs."""
    columns: tuple[str, ...] = ()
    """Columns of steps that show it."""
    is_on_gpu: bool = False
    """True if it takes time of the GPU; else it costs no more than the time without work for the GPU, or the loop."""
    is_in_step_time: bool = False
    """True if the cost is a part of the step time, not of all that was recorded."""
    delay: DelayEffect = DelayEffect.NONE
    """The effect of run-queue delay on its time."""
    may_wait_for_core: bool = False
    """True if the loop may have waited for a core in this time, and only seems to run."""
    is_at_line: bool = False
    """True if samples of stacks name its line of code."""


def assess(kind: str, found: Diagnosis, evidence: Evidence) -> Finding | None:
    """Return the finding, if the fault is worth enough of a step, also without waits for late ranks."""
    savings, delay, step_ns = evidence.savings, evidence.cpu.delay, evidence.step_ns
    min_share = MIN_SHARE_OF_HIGH * found.high_share
    cost_ns = found.cost_ns if found.is_in_step_time else savings.saving_per_step_ns(found.cost_ns * evidence.num_steps)
    cost_ns = min(cost_ns, step_ns if found.is_on_gpu else min(step_ns, evidence.device_wait_ns))
    is_small = _MAX_TIMES_MEAN * delay.share_of_step(found.delay, cost_ns) < min_share
    if is_small and kind not in evidence.stragglers.proven.by_kind:
        return None
    fix = found.fix and replace(found.fix, late=evidence.on_time, slow=evidence.slow_stages.ranks)
    saving = savings.estimate(fix)
    worth_ns = cost_ns if saving.ns is None else saving.ns
    if sum(delay.share_of_step(found.delay, ns) for ns in (worth_ns, saving.loader_limited_ns)) < min_share:
        return None
    on_delay = delay.estimate_advice if found.may_wait_for_core else ""
    has_no_line = found.is_at_line and not found.where.lines and not evidence.cpu.is_sampled
    cost_ns = max(cost_ns, saving.ns or 0)
    worth_ns = cost_ns if saving.ns is None else saving.ns
    period = _period(found, evidence)
    return build_finding(
        kind,
        add_detail(found.title(cost_ns), f", {every}" if (every := format_period(period)) else ""),
        found.advice + saving.advice + on_delay + (f" {LINE_ADVICE}" if has_no_line else ""),
        confidence=evidence.confidence.of_time(
            worth_ns,
            found.high_share,
            found.delay,
            fix,
            is_estimate=found.is_estimate or (fix is not None and saving.ns is None) or bool(on_delay),
        ),
        period=period,
        evidence={
            **found.evidence,
            "max_saving_ns": saving.max_ns,
            "num_excluded_stragglers": len(evidence.late_ranks) or None,
        },
        where=evidence.stragglers.proven.add_ranks(kind, found.where, evidence.rows.ranks),
        cost_ns=cost_ns,
        saving_ns=saving.ns,
        fix=fix,
    )


def _period(found: Diagnosis, evidence: Evidence) -> int | None:
    """Return n if the fault recurs every n-th step, else None."""
    by_step: defaultdict[int, float] = defaultdict(float)
    times = [*evidence.stalls(found.stalls).frame.select("step", "total_ns").drop_nulls().iter_rows()]
    for name in found.columns:
        times += [(row.step, getattr(row, name) or 0) for row in evidence.steps]
    for step, time_ns in times:
        by_step[step] += time_ns
    return find_period(by_step, evidence.num_steps)
