"""Titles, locations and advice of stragglers: the ranks, their host, their process group and the cause."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from kinetoscope.analysis.findings.evidence.locations import locate, split_samples
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Where
from kinetoscope.analysis.findings.recording_options import DIAGNOSE, LINE_ADVICE
from kinetoscope.analysis.findings.straggler_groups import are_late_in_same_steps
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.ranks.stragglers import StragglerRow
from kinetoscope.analysis.steps.periods import format_frequency
from kinetoscope.core.text.wording import format_ms, format_ranks

_EQUAL_WAIT_SHARE = 0.75
"""A straggler of a tensor parallel group is waited for there, and then as long in its data parallel group."""

_STALLS_OF_CAUSES = {"data": ("data",), "host": ("python", "blocked", "gc", "compile", "profiler")}
"""Kinds of stalls that may have made a rank late, by cause."""

ADVICE_ON_CAUSES = {
    "data": "Give every rank the same `num_workers`, storage and work per sample. DistributedSampler gives each rank "
    "as many samples, but not equally expensive ones: spread long samples over the ranks.",
    "host": "Find CPU work that other ranks do not do, such as logging or saving: move it to a background thread, or "
    "split it over all ranks. Check `top` for other processes on the same cores.",
    "device": "Compare GPU clocks and temperature with `nvidia-smi -q -d CLOCK,PERFORMANCE`, and the sizes of the "
    "batches: a `batch_sampler` that groups samples by length evens them out.",
    "processor": "Reserve cores for each rank (taskset, numactl, a cpuset), and start no more ranks, workers and "
    "threads (`OMP_NUM_THREADS`) than cores. The loop was ready, but waited longer for a CPU than on other ranks: "
    "check `top` for other processes on the host.",
    "unknown": f"Record what the loop does in this time with {DIAGNOSE}: the cause was not recorded.",
}
_CAUSES = {
    "data": " (slow DataLoader)",
    "host": " (slow CPU code)",
    "device": " (slow GPU kernels)",
    "processor": " (CPU contention)",
}
"""Causes in titles."""


def locate_stragglers(evidence: Evidence, rows: Sequence[StragglerRow]) -> Where:
    """Return the location of stragglers: the ranks, the late steps, and the spans and lines of these ranks in them."""
    stalls, sampled = list[pl.DataFrame](), list[pl.DataFrame]()
    for row in rows:
        is_then = pl.col("kind").is_in(_STALLS_OF_CAUSES.get(row.cause, ())) & pl.col("step").is_in(row.steps)
        for one in (one for one in evidence.windows if one.rank == row.rank):
            stalls.append(one.stalls.filter(is_then))
            sampled.append(split_samples(one).filter(is_then))
    ranks, steps = sorted({row.rank for row in rows}), sorted({step for row in rows for step in row.steps})
    return replace(locate(pl.concat(stalls), pl.concat(sampled)), ranks=tuple(ranks), steps=tuple(steps))


def common_cause(rows: Sequence[StragglerRow]) -> str:
    """Return the cause of most of them."""
    return Counter(row.cause for row in rows).most_common(1)[0][0]


def common_period(rows: Sequence[StragglerRow]) -> int | None:
    """Return n if all of them are late in every n-th step, else None."""
    periods = {row.period for row in rows}
    return periods.pop() if len(periods) == 1 else None


def build_title(evidence: Evidence, rows: Sequence[StragglerRow], cost_ns: float) -> str:
    """Return the title of stragglers that cost each other rank ``cost_ns`` per step."""
    ranks, cause = sorted(row.rank for row in rows), _cause_in_title(evidence, rows)
    num_late = len(frozenset.intersection(*(frozenset(row.steps) for row in rows)))
    group = _group_of(evidence, ranks)
    if not num_late or not are_late_in_same_steps(rows):
        what = f" cost {format_ms(cost_ns)} ms/step"
        return add_detail(add_detail(f"Alternating stragglers: {format_ranks(ranks)}", group, len(what)) + what, cause)
    is_one = len(rows) == 1
    named = f"Straggler: rank {ranks[0]}" if is_one else f"Stragglers: {_name(evidence, ranks)}"
    verb = "delays" if is_one else "delay"
    steps = format_frequency(num_late, evidence.num_steps, common_period(rows))
    what = f" {verb} {steps} by {format_ms(cost_ns * evidence.num_steps / num_late)} ms"
    return add_detail(add_detail(named, group, len(what)) + what, cause)


def _cause_in_title(evidence: Evidence, rows: Sequence[StragglerRow]) -> str:
    """Return the cause in parentheses, with the phase where only phases show the lateness; "" if it is unknown."""
    cause = _CAUSES.get(common_cause(rows), "")
    phases = {evidence.candidates.phases[row.rank].phase for row in rows if row.rank in evidence.candidates.phases}
    phase = phases.pop() if len(phases) == 1 else ""
    return f"{cause.removesuffix(')')} in {phase})" if phase and cause else cause


def _group_of(evidence: Evidence, ranks: Sequence[int]) -> str:
    """Return the kind of process group in which the others wait most for these ranks, in parentheses.

    It is "" if all calls are of one group, or that kind has no title. Where they wait about as long in several groups,
    it is that of the first call.
    """
    if len({call.ranks for call in evidence.candidates.calls}) <= 1:
        return ""
    titles = evidence.communication.group_titles if evidence.communication else {}
    late = [call for call in evidence.candidates.calls if call.late_rank in ranks and call.waits_ns]
    waits = Counter[str]()
    for call in late:
        waits[titles.get(call.group or "", "")] += max(call.waits_ns or ())
    titles_with_max_wait = {title for title, ns in waits.items() if ns >= _EQUAL_WAIT_SHARE * max(waits.values())}
    max_wait_ns = max((max(call.waits_ns or ()) for call in late), default=0)
    long = (titles.get(call.group or "", "") for call in late if max(call.waits_ns or ()) >= max_wait_ns / 2)
    title = next((title for title in long if title in titles_with_max_wait), "")
    return f" ({title} group)" if title else ""


def _name(evidence: Evidence, ranks: Sequence[int]) -> str:
    """Return the name of several ranks, with their host where they are all of its ranks."""
    hosts = _hosts(evidence, ranks)
    named = f" of {', '.join(hosts)}" if hosts else ""
    return f"{format_ranks(ranks)}{named}"


def _hosts(evidence: Evidence, ranks: Sequence[int]) -> list[str]:
    """Return the hosts of these ranks, if they are all ranks of some hosts with several each."""
    host_of = {row.rank: row.host for row in evidence.rows.by_rank if row.rank is not None}
    hosts = {host_of.get(rank) for rank in ranks}
    of_hosts = {rank for rank, host in host_of.items() if host in hosts}
    if None in hosts or of_hosts != set(ranks) or len(of_hosts) == len(hosts):
        return []
    return sorted(host for host in hosts if host is not None)


def advise_on_stragglers(evidence: Evidence, rows: Sequence[StragglerRow], *, has_line: bool) -> str:
    """Return the advice on stragglers, by their causes; ``has_line`` is whether a line of code is known."""
    is_at_line = any(row.cause in ("data", "host") for row in rows)
    on_line = f" {LINE_ADVICE}" if is_at_line and not has_line and not evidence.cpu.is_sampled else ""
    return _advise_on_causes(evidence, rows) + on_line


def _advise_on_causes(evidence: Evidence, rows: Sequence[StragglerRow]) -> str:
    if len(rows) == 1:
        return ADVICE_ON_CAUSES[common_cause(rows)]
    if len(causes := dict.fromkeys(row.cause for row in rows)) > 1:
        return " ".join(_advice_on_some([row for row in rows if row.cause == cause]) for cause in causes)
    hosts = _hosts(evidence, [row.rank for row in rows])
    first = "First check what is different on this host. " if len(hosts) == 1 else ""
    return f"{first}{ADVICE_ON_CAUSES[common_cause(rows)]}"


def _advice_on_some(rows: Sequence[StragglerRow]) -> str:
    """Return the advice on some of a group that are late for the same cause."""
    ranks = sorted(row.rank for row in rows)
    return f"{format_ranks(ranks).capitalize()}: {ADVICE_ON_CAUSES[rows[0].cause]}"
