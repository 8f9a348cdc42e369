"""Rules for stragglers: the ranks, their host, the steps that they delay, and the cause."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.finding import (
    HIGH_SHARE,
    LEAST_SHARE,
    Finding,
    Where,
    build_finding,
    confidence_in,
    confidence_without_replay,
)
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.late_group import ONCE_SHARE, are_late_together
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.periods import how_often
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.stragglers import StragglerRow, waits_for
from kinetoscope.texts.wording import format_ms, ranks_named

_ALWAYS_TOLD = 0.05
"""Who waits for a rank for this part of a step is told of it, whatever a replay says."""

_ABOUT_AS_LONG = 0.75
"""A straggler of a tensor parallel group is waited for there, and then as long in its data parallel group."""

_ADVICE_ON_CAUSES = {
    "data": "Give every rank the same num_workers, storage and work per sample. DistributedSampler gives each rank as "
    "many samples, but not equally expensive ones: spread long samples over the ranks.",
    "host": "Find CPU work that other ranks do not do, such as logging or saving: move it to a background thread, or "
    "split it over all ranks. Check top for other processes on the same cores.",
    "device": "Compare GPU clocks and temperature with nvidia-smi -q -d CLOCK,PERFORMANCE, and the sizes of the "
    "batches: a batch_sampler that groups samples by length evens them out.",
    "processor": "The loop was ready, but waited longer for a CPU than on other ranks. Check top for other processes "
    "on the host, reserve cores for each rank (taskset, numactl, a cpuset), and start no more ranks, workers and "
    "threads (OMP_NUM_THREADS) than cores.",
    "unknown": "The cause was not recorded: record with diagnose=True to see what the loop does in this time.",
}
_CAUSES = {
    "data": " (slow DataLoader)",
    "host": " (slow CPU code)",
    "device": " (slow GPU kernels)",
    "processor": " (CPU contention)",
}
"""Causes in titles."""


def stragglers(case: Case, *, has_input_bound: bool) -> Iterable[Finding]:
    """Yield findings on ranks that the others wait for: those that delay them together, or else each costly one.

    With ``has_input_bound``, a finding on the loaders of the other ranks explains slow loaders of some ranks alone, and
    a faster loader of the late ranks may gain less than a replay shows: then the others wait for their own loaders.
    """
    if case.late:
        yield from _late(case, case.late, has_input_bound)
    for row in case.report.stragglers:
        is_costly = row.cost_ns_per_step >= _ALWAYS_TOLD * case.step_ns
        is_explained = has_input_bound and row.cause == "data"
        if is_costly and not is_explained and not case.late and row.rank not in case.late_ranks | case.explained_ranks:
            yield from _late(case, [row], has_input_bound)
    for row in case.late_once:
        yield from _once(case, row)


def _once(case: Case, row: StragglerRow) -> Iterable[Finding]:
    """The finding on a rank that was late in a single step. That may be chance, so it is never sure."""
    fix = Fix(Change(on_time=frozenset([row.rank])), late=frozenset(late.rank for late in case.late))
    saving_ns = case.saving_ns(fix)
    worth_ns = row.cost_ns_per_step if saving_ns is None else saving_ns
    if worth_ns < ONCE_SHARE * case.step_ns:
        return
    late_ns = row.cost_ns_per_step * case.num_steps
    found = build_finding(
        "straggler",
        f"Straggler: rank {row.rank} delayed one of {case.num_steps} steps by {format_ms(late_ns)} ms",
        _ADVICE_ON_CAUSES[row.cause],
        confidence=confidence_without_replay(worth_ns / case.step_ns),
        evidence={"num_late_steps": 1, "late_ns": late_ns},
        where=case.where_late([row]),
        cost_ns=min(max(row.cost_ns_per_step, worth_ns), case.step_ns),
        saving_ns=saving_ns,
    )
    yield case.keep_fix(found, fix)


def _late(case: Case, rows: Sequence[StragglerRow], has_input_bound: bool) -> Iterable[Finding]:
    """The finding on some ranks, if they cost enough."""
    ranks = frozenset(row.rank for row in rows)
    fix = Fix(Change(on_time=ranks))
    saving_ns = None if case.late_phases else case.saving_ns(fix)
    cost_ns = _cost_ns(case, rows) if saving_ns is None else max(_cost_ns(case, rows), saving_ns)
    cost_ns = min(cost_ns, case.step_ns)
    share = (cost_ns if saving_ns is None else saving_ns) / case.step_ns
    most_ns, on_most = case.most_of_late_ns(fix, saving_ns)
    if max(share, cost_ns / case.step_ns / 2) < LEAST_SHARE * HIGH_SHARE:
        return
    found = build_finding(
        "straggler",
        _title(case, rows, cost_ns),
        _advice(case, rows) + on_most + (case.may_wait_for_core() if _may_be_chance(rows) else ""),
        confidence=_confidence(case, rows, share, has_input_bound),
        evidence={
            **_evidence(rows),
            "share_of_operators": _share_of_more_operators(case, ranks),
            "saving_at_most_ns": most_ns,
        },
        where=_where(case, rows),
        cost_ns=cost_ns,
        saving_ns=saving_ns,
        period=_period(rows),
    )
    yield case.keep_fix(found, fix)


def _share_of_more_operators(case: Case, ranks: frozenset[int]) -> float | None:
    """Return the share of a late rank's operators that the other ranks do not have; None if it has no more."""
    others = frozenset(case.report.run["ranks"]) - ranks
    more = case.operators_of(ranks) - case.operators_of(others)
    return case.share_of_operators(more) if more > 0 else None


def _where(case: Case, rows: Sequence[StragglerRow]) -> Where:
    """Return the location of stragglers, with the markers that show their lateness."""
    late = [case.late_phases[row.rank] for row in rows if row.rank in case.late_phases]
    where = case.where_late(rows)
    return replace(where, spans=(*dict.fromkeys(one.marker for one in late if one.marker), *where.spans))


def _confidence(case: Case, rows: Sequence[StragglerRow], share: float, has_input_bound: bool) -> str:
    """Return the confidence: at most medium where the loaders of other ranks may be slow, too, and where ranks that are
    late now and then may be so by chance, since loops wait much for CPUs, or may do so."""
    is_guess = case.is_guess or bool(case.late_phases)
    confidence = (confidence_without_replay if is_guess else confidence_in)(share)
    by_chance = (case.run_queue_delay.is_high or case.on_full_cores is not None) and _may_be_chance(rows)
    is_uncertain = by_chance or (has_input_bound and _cause(rows) == "data")
    return "medium" if is_uncertain and confidence == "high" else confidence


def _may_be_chance(rows: Sequence[StragglerRow]) -> bool:
    """Whether they are late now and then, for what a processor is needed for."""
    return _period(rows) is None and _cause(rows) != "device"


def _cost_ns(case: Case, rows: Sequence[StragglerRow]) -> float:
    """What each other rank waits for the last of them in a step."""
    if len(rows) == 1 or case.late_phases:
        return max(row.cost_ns_per_step for row in rows)
    waits = waits_for(case.timed_calls, {row.rank for row in rows})
    late = {step for row in rows for step in row.steps}
    return sum(wait for step, wait in waits.items() if step in late) / max(1, case.num_steps)


def _title(case: Case, rows: Sequence[StragglerRow], cost_ns: float) -> str:
    ranks, cause = sorted(row.rank for row in rows), _cause_in_title(case, rows)
    num_late = len(frozenset.intersection(*(frozenset(row.steps) for row in rows)))
    group = _group_of(case, ranks)
    if not num_late or not are_late_together(rows):
        what = f" cost {format_ms(cost_ns)} ms/step"
        return add_detail(add_detail(f"Alternating stragglers: {ranks_named(ranks)}", group, len(what)) + what, cause)
    is_one = len(rows) == 1
    named = f"Straggler: rank {ranks[0]}" if is_one else f"Stragglers: {_name(case, ranks)}"
    verb = "delays" if is_one else "delay"
    steps = how_often(num_late, case.num_steps, _period(rows))
    what = f" {verb} {steps} by {format_ms(cost_ns * case.num_steps / num_late)} ms"
    return add_detail(add_detail(named, group, len(what)) + what, cause)


def _cause_in_title(case: Case, rows: Sequence[StragglerRow]) -> str:
    """Return the cause in parentheses, with the phase where only phases show the lateness; "" if it is unknown."""
    cause = _CAUSES.get(_cause(rows), "")
    phases = {case.late_phases[row.rank].phase for row in rows if row.rank in case.late_phases}
    phase = phases.pop() if len(phases) == 1 else ""
    return f"{cause.removesuffix(')')} in {phase})" if phase and cause else cause


def _group_of(case: Case, ranks: Sequence[int]) -> str:
    """Return the kind of process group in which the others wait most for these ranks, in parentheses; "" if all calls
    are of one group, or that kind has no title.

    Where they wait about as long in several groups, it is that of the first call.
    """
    if len({call.ranks for call in case.timed_calls}) <= 1:
        return ""
    titles = {name: title for one in case.signs for name, title in one.group_titles.items()}
    late = [call for call in case.timed_calls if call.late_rank in ranks and call.waits_ns]
    waits = Counter[str]()
    for call in late:
        waits[titles.get(call.group or "", "")] += max(call.waits_ns or ())
    most = {title for title, ns in waits.items() if ns >= _ABOUT_AS_LONG * max(waits.values())}
    longest_ns = max((max(call.waits_ns or ()) for call in late), default=0)
    long = (titles.get(call.group or "", "") for call in late if max(call.waits_ns or ()) >= longest_ns / 2)
    title = next((title for title in long if title in most), "")
    return f" ({title} group)" if title else ""


def _name(case: Case, ranks: Sequence[int]) -> str:
    """Return the name of several ranks, with their host where they are all of its ranks."""
    hosts = _hosts(case, ranks)
    named = f" of {', '.join(hosts)}" if hosts else ""
    return f"{ranks_named(ranks)}{named}"


def _hosts(case: Case, ranks: Sequence[int]) -> list[str]:
    """The hosts whose ranks these are, if they are all ranks of some hosts; a host of one rank is no reason."""
    host_of = {row.rank: row.host for row in case.report.ranks if row.rank is not None}
    hosts = {host_of.get(rank) for rank in ranks}
    of_hosts = {rank for rank, host in host_of.items() if host in hosts}
    if None in hosts or of_hosts != set(ranks) or len(of_hosts) == len(hosts):
        return []
    return sorted(host for host in hosts if host is not None)


def _period(rows: Sequence[StragglerRow]) -> int | None:
    """In every which step all of them are late."""
    periods = {row.period for row in rows}
    return periods.pop() if len(periods) == 1 else None


def _cause(rows: Sequence[StragglerRow]) -> str:
    """The cause of most of them."""
    return Counter(row.cause for row in rows).most_common(1)[0][0]


def _advice(case: Case, rows: Sequence[StragglerRow]) -> str:
    if len(rows) == 1:
        return _ADVICE_ON_CAUSES[_cause(rows)]
    if len(causes := dict.fromkeys(row.cause for row in rows)) > 1:
        return " ".join(_advice_on_some([row for row in rows if row.cause == cause]) for cause in causes)
    hosts = _hosts(case, [row.rank for row in rows])
    first = "First check what is different on this host. " if len(hosts) == 1 else ""
    return f"{first}{_ADVICE_ON_CAUSES[_cause(rows)]}"


def _advice_on_some(rows: Sequence[StragglerRow]) -> str:
    """The advice on those of a group that are late for the same reason."""
    ranks = sorted(row.rank for row in rows)
    return f"{ranks_named(ranks).capitalize()}: {_ADVICE_ON_CAUSES[rows[0].cause]}"


def _evidence(rows: Sequence[StragglerRow]) -> dict[str, float | None]:
    longer = [dict(row.evidence) for row in rows]
    names = dict.fromkeys(name for one in longer for name in one)
    return {
        "num_late_ranks": len(rows) if len(rows) > 1 else None,
        "num_late_steps": len({step for row in rows for step in row.steps}),
        "period": _period(rows),
        **{name: fmean(one[name] for one in longer if name in one) for name in names},
    }
