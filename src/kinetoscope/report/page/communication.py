"""Collective calls of a run in groups, and the waits of ranks for each other."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import median_low

from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.core.text.wording import format_count, format_percent
from kinetoscope.pages.page_data import BreakdownPart, CallGroup, Column, Communication, DelayingRank, Waits
from kinetoscope.report.labels import UNKNOWN, build_breakdown_part

_MAX_SIZES = 6
"""More sizes than that are grouped by powers of two."""

_LABELS = {"skew_ns": "waiting for the last rank", "transfer_ns": "transfer", "unknown_ns": UNKNOWN}


def build_communication(calls: Sequence[CollectiveRow]) -> Communication | None:
    """Return all calls in groups, the longest first; None without calls."""
    if not calls:
        return None
    total_ns, skew_ns, transfer_ns, unknown_ns = _sum_times(calls)
    groups = [
        group
        for calls_of_group in _group_by(calls, lambda call: (call.group, call.name))
        for group in _group_by_size(calls_of_group)
    ]
    return Communication(
        summary=_describe(len(calls), total_ns, skew_ns, transfer_ns, unknown_ns),
        total_ns=total_ns,
        skew_ns=skew_ns,
        transfer_ns=transfer_ns,
        unknown_ns=unknown_ns,
        parts=_build_parts(total_ns, skew_ns, transfer_ns, unknown_ns),
        groups=sorted(groups, key=lambda group: -group.total_ns),
        lengths=Column.of(map(_compute_length_ns, calls)),
    )


def build_waits(calls: Iterable[CollectiveRow]) -> Waits:
    """Return the time that each rank waited for each other rank."""
    calls = list(calls)
    ranks = sorted({rank for call in calls for rank in call.ranks})
    indices = {rank: index for index, rank in enumerate(ranks)}
    waited = [[0] * len(ranks) for _ in ranks]
    delaying: dict[int, DelayingRank] = {}
    for call in calls:
        if call.late_rank is None or call.waits_ns is None:
            continue
        for rank, wait_ns in zip(call.ranks, call.waits_ns, strict=True):
            waited[indices[rank]][indices[call.late_rank]] += wait_ns
        delaying[call.late_rank] = _add_call(delaying.get(call.late_rank), call.late_rank, call.waits_ns)
    known = sorted((rank for rank in delaying.values() if rank.total_ns > 0), key=lambda rank: -rank.total_ns)
    return Waits(ranks=ranks, waited=waited if known else [], delaying=known)


def _add_call(delaying: DelayingRank | None, rank: int, waits_ns: Sequence[int]) -> DelayingRank:
    """Return the waits for a rank with those of one more call."""
    delaying = delaying or DelayingRank(rank=rank, num_calls=0, total_ns=0, max_ns=0)
    waited_ns = sum(waits_ns)
    return DelayingRank(
        rank=rank,
        num_calls=delaying.num_calls + (waited_ns > 0),
        total_ns=delaying.total_ns + waited_ns,
        max_ns=max(delaying.max_ns, *waits_ns),
    )


def _group_by_size(calls: Sequence[CollectiveRow]) -> list[CallGroup]:
    """Return the groups of calls by size, or by powers of two."""
    has_many_sizes = len({call.bytes for call in calls}) > _MAX_SIZES

    def size(call: CollectiveRow) -> int | None:
        return 1 << (call.bytes.bit_length() - 1) if has_many_sizes and call.bytes else call.bytes

    return [
        _build_group(
            calls_of_group, size(calls_of_group[0]), is_at_least=has_many_sizes and bool(calls_of_group[0].bytes)
        )
        for calls_of_group in _group_by(calls, size)
    ]


def _build_group(calls: Sequence[CollectiveRow], num_bytes: int | None, *, is_at_least: bool) -> CallGroup:
    total_ns, skew_ns, transfer_ns, unknown_ns = _sum_times(calls)
    is_known = unknown_ns < total_ns
    rates = [call.bandwidth_bytes_per_s for call in calls if call.bandwidth_bytes_per_s is not None]
    return CallGroup(
        group=calls[0].group,
        name=calls[0].name,
        bytes=num_bytes,
        is_at_least=is_at_least,
        num_ranks=calls[0].num_ranks,
        num_calls=len(calls),
        total_ns=total_ns,
        skew_ns=skew_ns if is_known else None,
        transfer_ns=transfer_ns if is_known else None,
        unknown_ns=unknown_ns,
        skew_share=skew_ns / (skew_ns + transfer_ns) if skew_ns + transfer_ns else None,
        bandwidth_bytes_per_s=median_low(rates) if rates else None,
        parts=_build_parts(total_ns, skew_ns, transfer_ns, unknown_ns) if is_known else [],
    )


def _sum_times(calls: Iterable[CollectiveRow]) -> tuple[int, int, int, int]:
    """Return the total time of calls, and its parts: waiting for the last rank, transfer, and unknown."""
    total_ns = skew_ns = transfer_ns = unknown_ns = 0
    for call in calls:
        total_ns += _compute_length_ns(call)
        skew_ns += call.skew_ns or 0
        transfer_ns += call.transfer_ns or 0
        unknown_ns += _compute_length_ns(call) - (call.skew_ns or 0) - (call.transfer_ns or 0)
    return total_ns, skew_ns, transfer_ns, unknown_ns


def _build_parts(total_ns: int, skew_ns: int, transfer_ns: int, unknown_ns: int) -> list[BreakdownPart]:
    """Return the parts of the time of calls; these add up to it."""
    times = {"skew_ns": skew_ns, "transfer_ns": transfer_ns} | ({"unknown_ns": unknown_ns} if unknown_ns else {})
    return [build_breakdown_part(name, _LABELS[name], time_ns, total_ns) for name, time_ns in times.items()]


def _describe(num_calls: int, total_ns: int, skew_ns: int, transfer_ns: int, unknown_ns: int) -> str:
    total = f"{format_count(num_calls, 'call')} took {total_ns / 1e6:,.3g} ms"
    parts = _build_parts(total_ns, skew_ns, transfer_ns, unknown_ns)
    summary = [f"{format_percent(part.share)} {part.label}" for part in parts if part.time_ns and part.share]
    return f"{total}: {', '.join(summary)}." if summary else f"{total}."


def _compute_length_ns(call: CollectiveRow) -> int:
    """Return the time from the first rank's start to the last one's end."""
    return max(call.ends_ns) - min(call.starts_ns)


def _group_by(values: Iterable[CollectiveRow], key: Callable[[CollectiveRow], Hashable]) -> list[list[CollectiveRow]]:
    groups: dict[Hashable, list[CollectiveRow]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return list(groups.values())
