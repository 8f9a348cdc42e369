"""Stragglers: the ranks that others wait for, in which steps, and for what cause."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import fmean, median, stdev
from typing import NamedTuple

from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.analysis.ranks.transitive_waits import Wait, find_peers, remove_transitive_waits
from kinetoscope.analysis.steps.periods import find_period_of_steps
from kinetoscope.analysis.steps.step_time import step_time_ns
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.optional_numbers import sum_or_none

MIN_SHARE_OF_STEP = 0.02
"""A rank is reported if the others wait for it for more than this share of a step (the contract's share)."""

MIN_CLOCK_BOUNDS = 4
_MIN_LATE_STEPS = 2
_MIN_LATE_SHARE, _MIN_ALWAYS_LATE_SHARE = 0.5, 0.25
"""A step counts as late if the wait in it is at least half of that in the steps with the longest waits. For a rank that
is late by a quarter of that in nearly all steps, these count."""
_MIN_SHARE_OF_STEPS = 0.7

_MIN_SHARE_OF_LONGEST = 0.05
"""A step with less than this share of the longest wait is not late. Without this, one wait of 39 ms turned waits of
0.02 ms in four other steps into "every 2nd step", of high confidence."""

_EARLY_SHARE = 0.25
"""Lateness counts from the mean of this share of the ranks, the earliest. The earliest one of many is so by noise."""

ByStep = Mapping[int, Mapping[int, float]]
"""Nanoseconds by rank and step."""

_MIN_STANDARD_ERRORS = 2
"""A rank is late if its mean lateness exceeds this many standard errors."""


@dataclass(frozen=True, kw_only=True)
class StragglerRow(PlainData):
    """A straggler.

    Attributes:
        cost_ns_per_step: how long each other rank waits for it per step, on average; waits for several count for each.
        steps: its late steps.
        cause: ``data``, ``host``, ``device``, ``processor`` (run-queue delay) or ``unknown``.
        period: n if it is late in every n-th step, known for 8 steps or more; else None.
        evidence: pairs of name and number.
    """

    _pairs = ("evidence",)

    rank: int
    cost_ns_per_step: int
    steps: tuple[int, ...]
    cause: str
    period: int | None
    evidence: tuple[tuple[str, int | float], ...]


class PhaseLateness(NamedTuple):
    """Lateness of a rank in a phase, in nanoseconds by step, with the marker that shows it."""

    phase: str
    cause: str
    by_step: Mapping[int, float]
    marker: str | None = None


@dataclass(frozen=True)
class StragglerCandidates:
    """Late ranks of a run.

    Attributes:
        rows: ranks that the others wait for while they compute nothing, the worst first.
        candidates: late ranks, the latest first, also those that cost nothing since the others still compute. Only a
            replay shows their cost.
        calls: the timed calls, without transitive waits.
        phases: the phase in which each rank is late, where no calls were recorded.
    """

    rows: list[StragglerRow] = field(default_factory=list)
    candidates: list[StragglerRow] = field(default_factory=list)
    calls: list[CollectiveRow] = field(default_factory=list)
    phases: Mapping[int, PhaseLateness] = field(default_factory=dict)


def find_straggler_candidates(
    calls: Sequence[CollectiveRow],
    steps: Sequence[StepRow],
    clock_bound_ns: int = 0,
    messages: Sequence[Wait] = (),
) -> StragglerCandidates:
    """Return the late ranks, each compared with the ranks of its process groups.

    Args:
        calls: all calls of the run.
        steps: the steps of all ranks.
        clock_bound_ns: the error of clocks; waits below four times that do not count.
        messages: the waits of ranks for messages.
    """
    calls = [call for call in calls if call.waits_ns is not None and call.step is not None]
    if not calls or not steps:
        return StragglerCandidates()
    calls = remove_transitive_waits(calls, messages)
    peers = find_peers(calls)
    min_ns, bound_ns = MIN_SHARE_OF_STEP * (step_time_ns(steps) or 0.0), MIN_CLOCK_BOUNDS * clock_bound_ns
    num_steps = len({row.step for row in steps})
    lateness = _lateness_within_groups(calls)
    late = {rank for rank, by_step in lateness.items() if is_late(by_step, num_steps, max(min_ns, bound_ns))}
    candidate_ranks = late | {
        rank for rank, wait_ns in _sum_waits_for_last(calls, peers).items() if wait_ns > min_ns * num_steps
    }
    found: dict[int, StragglerRow] = {}
    for rank, waits in _waits_by_rank(calls, candidate_ranks, peers).items():
        row = build_row(rank, waits, num_steps, bound_ns)
        is_costly = row.cost_ns_per_step > min_ns and len(row.steps) >= _MIN_LATE_STEPS
        if is_costly or rank in late:
            found[rank] = row if is_costly else replace(row, steps=_late_steps(lateness[rank], bound_ns))
    rows = _add_causes(found, steps, {call.step for call in calls if call.step is not None}, peers)
    return StragglerCandidates(
        sorted(
            (row for row in rows if row.cost_ns_per_step > min_ns), key=lambda row: (-row.cost_ns_per_step, row.rank)
        ),
        sorted(rows, key=lambda row: (-sum(lateness[row.rank].values()), row.rank)),
        calls,
    )


def find_replayed_stragglers(after_first: ByStep, steps: Sequence[StepRow]) -> list[StragglerRow]:
    """Return the ranks that are late in a replay, the latest first. Their cost is their lateness.

    Args:
        after_first: maximum lateness to a call by rank and step, in ns.
        steps: the recorded steps.
    """
    num_steps = len({row.step for row in steps})
    min_ns, lateness = MIN_SHARE_OF_STEP * (step_time_ns(steps) or 0.0), _subtract_early_ranks(after_first)
    found = {rank: build_row(rank, by_step, num_steps, 0) for rank, by_step in lateness.items()}
    late = {
        rank: row for rank, row in found.items() if row.cost_ns_per_step > min_ns and len(row.steps) >= _MIN_LATE_STEPS
    }
    call_steps = {step for by_step in after_first.values() for step in by_step}
    return sorted(_add_causes(late, steps, call_steps), key=lambda row: (-row.cost_ns_per_step, row.rank))


def wait_for_stragglers_ns(calls: Iterable[CollectiveRow], late: StragglerCandidates, num_steps: int) -> float:
    """Return the time per step that a rank waits for stragglers, also through others.

    It is the mean of ``num_steps`` rows of all ranks.
    """
    if not late.rows:
        return 0.0
    ranks = {row.rank for row in late.rows}
    waits_ns = sum(_wait_ns(call) for call in late.calls if call.late_rank in ranks)
    passed_on_ns = sum(map(_wait_ns, calls)) - sum(map(_wait_ns, late.calls))
    return (waits_ns + passed_on_ns) / max(1, num_steps)


def _wait_ns(call: CollectiveRow) -> int:
    return sum(call.waits_ns) if call.waits_ns and call.step is not None else 0


def _sum_waits_for_last(calls: Sequence[CollectiveRow], peers: Mapping[int, Collection[int]]) -> dict[int, float]:
    """Return the sum of waits for each rank where it started last, as the mean of its peers, in ns."""
    waits: defaultdict[int, float] = defaultdict(float)
    for call in calls:
        if call.late_rank is not None and call.waits_ns is not None:
            waits[call.late_rank] += sum(call.waits_ns) / len(peers[call.late_rank])
    return waits


def _waits_by_rank(
    calls: Sequence[CollectiveRow], ranks: Collection[int], peers: Mapping[int, Collection[int]]
) -> dict[int, dict[int, float]]:
    """Return `wait_by_step` for each of ``ranks`` alone, in one pass over many calls."""
    found: dict[int, defaultdict[int, float]] = {rank: defaultdict(float) for rank in ranks}
    for call in calls:
        starts = [(rank, start) for rank, start in zip(call.ranks, call.starts_ns, strict=True) if rank in found]
        waits, last_ns = sorted(call.waits_ns or ()), max(call.starts_ns)
        until = [0, *accumulate(waits)]
        for rank, start_ns in starts:
            early_ns = last_ns - start_ns
            index = bisect_right(waits, early_ns)  # its own wait is no longer than that
            waited_ns = until[-1] - until[index] - early_ns * (len(waits) - index)
            found[rank][call.step or 0] += waited_ns / len(peers[rank])
    return {rank: dict(by_step) for rank, by_step in found.items()}


def wait_by_step(calls: Iterable[CollectiveRow], ranks: Collection[int]) -> dict[int, float]:
    """Return by step how long each peer waited for the last of ``ranks`` and computed nothing.

    It is the mean of the peers, in ns.
    """
    calls = list(calls)
    peers = find_peers(calls)
    num_others = max(1, len({peer for rank in ranks for peer in peers.get(rank, ())} - {*ranks}))
    waits: defaultdict[int, float] = defaultdict(float)
    for call in calls:
        if call.waits_ns is None or call.step is None:
            continue
        starts = [start for rank, start in zip(call.ranks, call.starts_ns, strict=True) if rank in ranks]
        others = [wait for rank, wait in zip(call.ranks, call.waits_ns, strict=True) if rank not in ranks]
        if starts and others:
            early_ns = max(call.starts_ns) - max(starts)
            waits[call.step] += sum(wait - early_ns for wait in others if wait > early_ns) / num_others
    return dict(waits)


def lateness_by_rank(calls: Iterable[CollectiveRow]) -> dict[int, dict[int, float]]:
    """Return by rank and step the maximum delay of its call after the first rank's, in ns.

    Ranks that still compute do not wait for it, but it is late nevertheless.
    """
    latest: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for call in calls:
        if call.waits_ns is None or call.step is None:
            continue
        first_ns, step = min(call.starts_ns), call.step
        for rank, start_ns in zip(call.ranks, call.starts_ns, strict=True):
            latest[rank][step] = max(latest[rank][step], start_ns - first_ns)
    return {rank: dict(by_step) for rank, by_step in latest.items()}


def _lateness_within_groups(calls: Sequence[CollectiveRow]) -> dict[int, dict[int, float]]:
    """Return by rank and step its maximum lateness in one of its groups, beyond that of the earliest ranks, in ns."""
    by_group: defaultdict[tuple[int, ...], list[CollectiveRow]] = defaultdict(list)
    for call in calls:
        by_group[call.ranks].append(call)
    latest: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for of_group in by_group.values():
        for rank, by_step in _subtract_early_ranks(lateness_by_rank(of_group)).items():
            for step, ns in by_step.items():
                latest[rank][step] = max(latest[rank].get(step, ns), ns)
    return latest


def _subtract_early_ranks(after_first: ByStep) -> dict[int, dict[int, float]]:
    """Return the lateness of each rank by step, less that of the earliest quarter of the ranks."""
    by_lateness = sorted(after_first, key=lambda rank: (sum(after_first[rank].values()), rank))
    early = by_lateness[: max(1, int(_EARLY_SHARE * len(by_lateness)))]
    steps = {step for by_step in after_first.values() for step in by_step}
    usual = {step: fmean(after_first[rank].get(step, 0) for rank in early) for step in steps}
    return {rank: {step: ns - usual[step] for step, ns in by_step.items()} for rank, by_step in after_first.items()}


def is_late(by_step: Mapping[int, float], num_steps: int, min_ns: float) -> bool:
    """Return whether a rank is late by more than ``min_ns`` on average, beyond noise."""
    late = [*by_step.values(), *[0.0] * (num_steps - len(by_step))]
    if len(late) < _MIN_LATE_STEPS:
        return False
    return fmean(late) > max(min_ns, _MIN_STANDARD_ERRORS * stdev(late) / len(late) ** 0.5)


def build_row(rank: int, waits: Mapping[int, float], num_steps: int, bound_ns: float) -> StragglerRow:
    """Return the row of a rank from the waits for it by step, without its cause."""
    late = _late_steps(waits, bound_ns)
    return StragglerRow(
        rank=rank,
        cost_ns_per_step=round(sum(waits[step] for step in late) / num_steps),
        steps=late,
        cause="unknown",
        period=find_period_of_steps(late, num_steps),
        evidence=(),
    )


def _late_steps(waits: Mapping[int, float], bound_ns: float) -> tuple[int, ...]:
    """Return the steps in which the others waited for a rank."""
    longest = sorted(waits.values())[-max(1, len(waits) // 4) :]

    def late(share: float) -> tuple[int, ...]:
        min_wait_ns = max(share * median(longest), _MIN_SHARE_OF_LONGEST * longest[-1], bound_ns, 1)
        return tuple(sorted(step for step, wait in waits.items() if wait >= min_wait_ns))

    if not waits:
        return ()
    always = late(_MIN_ALWAYS_LATE_SHARE)
    return always if len(always) >= _MIN_SHARE_OF_STEPS * len(waits) else late(_MIN_LATE_SHARE)


def _add_causes(
    found: Mapping[int, StragglerRow],
    steps: Sequence[StepRow],
    call_steps: Collection[int],
    peers: Mapping[int, Collection[int]] | None = None,
) -> list[StragglerRow]:
    """Return the rows with the parts of a step that took their ranks longer, since the last of ``call_steps``.

    They are compared with their peers that are not late, or else with all such ranks. Where all are late, each is
    compared with all others, in steps in which these are not.
    """
    by_rank: defaultdict[int, dict[int, StepRow]] = defaultdict(dict)
    for row in steps:
        if row.rank is not None:
            by_rank[row.rank][row.step] = row
    outside = {rank: rows for rank, rows in by_rank.items() if rank not in found}
    num_steps = len({row.step for row in steps})
    in_time = {rank: _exclude_steps(found[rank].steps if rank in found else (), rows) for rank, rows in by_rank.items()}

    def others(rank: int) -> Sequence[Mapping[int, StepRow]]:
        near = [outside[peer] for peer in (peers or {}).get(rank, ()) if peer in outside]
        return near or [*outside.values()] or [rows for other, rows in in_time.items() if other != rank]

    return [_add_cause(row, by_rank[rank], others(rank), num_steps, call_steps) for rank, row in found.items()]


def _exclude_steps(late: Collection[int], rows: Mapping[int, StepRow]) -> Mapping[int, StepRow]:
    """Return the rows of a rank without its late steps; all if it was late in each."""
    return {step: row for step, row in rows.items() if step not in late} or rows


def _add_cause(
    row: StragglerRow,
    own: Mapping[int, StepRow],
    others: Sequence[Mapping[int, StepRow]],
    num_steps: int,
    call_steps: Collection[int],
) -> StragglerRow:
    late_ns = row.cost_ns_per_step * num_steps / max(1, len(row.steps))
    found = _cause_of_lateness(row.steps, late_ns, own, others)
    if not found.explains_half:
        before = _cause_of_lateness(
            find_steps_before_lateness(row.steps, own, call_steps), late_ns, own, others, len(row.steps)
        )
        found = before if before.explains_half else found
    evidence = tuple((f"{name}_longer_ns", round(ns)) for name, ns in found.longer_ns.items())
    return replace(row, cause=found.cause, evidence=evidence)


def find_steps_before_lateness(
    late: Collection[int], own: Mapping[int, StepRow], call_steps: Collection[int]
) -> list[int]:
    """Return late steps and those before them, back to the last of ``call_steps``, in which ranks had a common call.

    A rank may be late to the first call of a step because of the end of the step before: a checkpoint, logging, an
    evaluation. Delays earlier in that step already make it late in that step. Steps that accumulate gradients have no
    calls.
    """
    found, ordered = set[int](), sorted(call_steps)
    for step in late:
        num_before = bisect_left(ordered, step)
        last = ordered[num_before - 1] if num_before else min(own, default=step)
        found.update(one for one in range(last, step + 1) if one in own or one == step)
    return sorted(found)


class _Cause(NamedTuple):
    """Cause of lateness: how much longer than others a rank took for each part, and whether that explains half."""

    cause: str
    longer_ns: Mapping[str, float]
    explains_half: bool


def _cause_of_lateness(
    steps: Sequence[int],
    late_ns: float,
    own: Mapping[int, StepRow],
    others: Sequence[Mapping[int, StepRow]],
    num_late: int | None = None,
) -> _Cause:
    """Return the cause of lateness in these steps.

    Args:
        steps: late steps, and those before them if these may have caused it.
        late_ns: the lateness per late step.
        own: the rank's steps.
        others: the steps of other ranks.
        num_late: number of late steps; by default all.
    """
    fields = {
        **COLUMNS_OF_CAUSES,
        "processor": ("starved_ns",),
        "running": ("running_ns",),
        "host with backward": _HOST_WITH_BACKWARD,
    }
    times = 1.0 if num_late is None else len(steps) / max(1, num_late)
    found = {name: longer_ns(steps, own, others, columns) for name, columns in fields.items()}
    longer = {name: times * ns for name, ns in found.items() if ns is not None}
    running_ns, backward_ns = longer.pop("running", 0.0), longer.pop("host with backward", None)
    if "device" not in longer and backward_ns is not None:
        longer["host"] = max(longer.get("host", 0.0), backward_ns)
    cause = max(
        (name for name in COLUMNS_OF_CAUSES if longer.get(name, 0.0) > _MIN_SHARE_OF_LATENESS * late_ns),
        key=lambda name: longer[name],
        default="unknown",
    )
    max_other_ns = max(longer.get("data", 0.0), longer.get("device", 0.0), MIN_DELAY_TIMES_RUNNING * running_ns)
    if longer.get("processor", 0.0) > max(max_other_ns, late_ns / 2):
        cause = "processor"
    return _Cause(cause, longer, longer.get(cause, 0.0) > late_ns / 2)


def longer_ns(
    steps: Iterable[int], own: Mapping[int, StepRow], others: Sequence[Mapping[int, StepRow]], fields: Sequence[str]
) -> float | None:
    """Return by how much a rank's time in these fields exceeds that of the typical other one, on average.

    None if it is unknown.
    """
    differences = []
    for step in steps:
        known_others = [known for rows in others if step in rows and (known := _sum(rows[step], fields)) is not None]
        own_ns = _sum(own[step], fields) if step in own else None
        if own_ns is not None and known_others:
            differences.append(own_ns - median(known_others))
    return fmean(differences) if differences else None


COLUMNS_OF_CAUSES = {
    "data": ("data_wait_ns",),
    "device": ("device_compute_ns",),
    "host": ("forward_ns", "python_ns", "optimizer_ns", "between_ns", "gc_ns", "unknown_ns"),
}
"""The columns of steps that show a cause."""

_HOST_WITH_BACKWARD = (*COLUMNS_OF_CAUSES["host"], "backward_ns")
"""The same for the CPU where it computes, without a device."""

_MIN_SHARE_OF_LATENESS = 0.05
"""A part of the step that took a rank longer by less than this share of the waits for it is not the cause."""

MIN_DELAY_TIMES_RUNNING = 2
"""Run-queue delay is the cause if it exceeds that of others by at least so many times what the rank runs longer."""


def _sum(row: StepRow, fields: Sequence[str]) -> int | None:
    return sum_or_none(getattr(row, name) for name in fields)
