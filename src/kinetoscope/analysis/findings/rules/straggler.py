"""Rule for stragglers: ranks, or stages of a pipeline, that the others wait for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from kinetoscope.analysis.findings.confidence import HIGH_SHARE, MIN_SHARE_OF_HIGH, cap_at_medium
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Finding, build_finding
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.imbalance_findings import find_load_imbalance, find_slow_stages
from kinetoscope.analysis.findings.rule import Excludable, rule
from kinetoscope.analysis.findings.savings import Saving
from kinetoscope.analysis.findings.straggler_descriptions import (
    ADVICE_ON_CAUSES,
    advise_on_stragglers,
    build_title,
    common_cause,
    common_period,
    locate_stragglers,
)
from kinetoscope.analysis.findings.straggler_groups import MIN_ONCE_SHARE
from kinetoscope.analysis.ranks.stragglers import StragglerRow, wait_by_step
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms


@rule("straggler")
def find_stragglers(evidence: Evidence) -> Iterator[Finding | Excludable]:
    """Find unequal loads, slow stages, ranks that delay the others together, and late steps."""
    yield from find_load_imbalance(evidence)
    yield from find_slow_stages(evidence)
    late = evidence.stragglers
    if late.together and (finding := _find_late(evidence, late.together)) is not None:
        doubted = replace(finding, confidence=cap_at_medium(finding.confidence))
        yield Excludable(finding, instead=doubted) if common_cause(late.together) == "data" else finding
    for row in late.once:
        yield from _find_late_once(evidence, row)


def _find_late_once(evidence: Evidence, row: StragglerRow) -> Iterator[Finding]:
    """Find a rank that was late in a single step. It may be noise, so confidence is at most medium."""
    together = frozenset(late.rank for late in evidence.stragglers.together)
    others = frozenset[int]() if row.rank == evidence.stragglers.baseline_rank else together & evidence.stragglers.ranks
    fix = Fix(Change(on_time=frozenset([row.rank])), late=others)
    saving_ns = evidence.savings.saving_ns(fix)
    worth_ns = row.cost_ns_per_step if saving_ns is None else saving_ns
    if worth_ns < MIN_ONCE_SHARE * evidence.step_ns:
        return
    late_ns = row.cost_ns_per_step * evidence.num_steps
    yield build_finding(
        "straggler",
        f"Straggler: rank {row.rank} delayed one of {evidence.num_steps} steps by {format_ms(late_ns)} ms",
        ADVICE_ON_CAUSES[row.cause],
        confidence=evidence.confidence.of_share(worth_ns / evidence.step_ns, is_estimate=True),
        evidence={"num_late_steps": 1, "late_ns": late_ns},
        where=locate_stragglers(evidence, [row]),
        cost_ns=min(max(row.cost_ns_per_step, worth_ns), evidence.step_ns),
        saving_ns=saving_ns,
        fix=fix,
    )


def _find_late(evidence: Evidence, rows: Sequence[StragglerRow]) -> Finding | None:
    """Return the finding on ranks that are late together, if they cost enough."""
    ranks, phases = frozenset(row.rank for row in rows), evidence.candidates.phases
    fix = Fix(Change(on_time=ranks))
    saving = Saving() if phases else evidence.savings.estimate_on_time(fix)
    cost_ns = min(max(_cost_ns(evidence, rows), saving.ns or 0.0), evidence.step_ns)
    share = (cost_ns if saving.ns is None else saving.ns) / evidence.step_ns
    if max(share, cost_ns / evidence.step_ns / 2) < MIN_SHARE_OF_HIGH * HIGH_SHARE:
        return None
    # Ranks that are late in some steps, and not on the GPU, may be so by noise while loops wait for CPUs.
    may_be_noise = common_period(rows) is None and common_cause(rows) != "device"
    is_noise = may_be_noise and evidence.cpu.delay.is_high
    where = locate_stragglers(evidence, rows)
    markers = (phases[row.rank].marker for row in rows if row.rank in phases)
    return build_finding(
        "straggler",
        build_title(evidence, rows, cost_ns),
        advise_on_stragglers(evidence, rows, has_line=bool(where.lines))
        + saving.advice
        + (evidence.cpu.delay.estimate_advice if may_be_noise else ""),
        confidence=evidence.confidence.of_share(share, is_estimate=bool(phases) or is_noise),
        evidence={
            **_evidence_of(rows),
            "share_of_operators": _share_of_more_operators(evidence, ranks),
            "max_saving_ns": saving.max_ns,
        },
        where=replace(where, spans=(*dict.fromkeys(marker for marker in markers if marker), *where.spans)),
        cost_ns=cost_ns,
        saving_ns=saving.ns,
        period=common_period(rows),
        fix=fix,
    )


def _cost_ns(evidence: Evidence, rows: Sequence[StragglerRow]) -> float:
    """Return the time per step that each other rank waits for the last of them."""
    if len(rows) == 1 or evidence.candidates.phases:
        return max(row.cost_ns_per_step for row in rows)
    waits = wait_by_step(evidence.candidates.calls, {row.rank for row in rows})
    late = {step for row in rows for step in row.steps}
    return sum(wait for step, wait in waits.items() if step in late) / max(1, evidence.num_steps)


def _share_of_more_operators(evidence: Evidence, ranks: frozenset[int]) -> float | None:
    """Return the share of a late rank's operators that the other ranks do not have; None if it has no more."""
    others = frozenset(evidence.rows.ranks) - ranks
    more = evidence.cpu.num_operators(ranks) - evidence.cpu.num_operators(others)
    return evidence.cpu.share_of_operators(more) if more > 0 else None


def _evidence_of(rows: Sequence[StragglerRow]) -> dict[str, float | None]:
    longer = [dict(row.evidence) for row in rows]
    names = dict.fromkeys(name for one in longer for name in one)
    return {
        "num_stragglers": len(rows) if len(rows) > 1 else None,
        "num_late_steps": len({step for row in rows for step in row.steps}),
        "period": common_period(rows),
        **{name: fmean(one[name] for one in longer if name in one) for name in names},
    }
