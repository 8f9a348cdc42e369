"""Lateness of ranks to calls, without the time that they waited for other ranks since the last call in common.

A rank that waits for a straggler in its tensor parallel group is then late to the next call of its data parallel group.
The ranks of that group wait for it, but it only passes on its wait.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.analysis.ranks.point_to_point import SEND


class Wait(NamedTuple):
    """A wait of a rank for another one, and the time at which it ended."""

    rank: int
    until_ns: int
    wait_ns: int


def find_message_waits(parts: pl.DataFrame) -> list[Wait]:
    """Return the waits of receivers for messages, in the order of their ends.

    Args:
        parts: the parts of joined calls, `JoinedCollectives.calls`.
    """
    messages = parts.filter((pl.col("name") == SEND).fill_null(False))
    until = pl.min_horizontal(pl.col("begin").max().over("call"), "paused_until")
    waits = messages.with_columns(until=until, wait=until - pl.col("paused_from"))
    waits = waits.filter((pl.col("rank") != pl.col("source")) & (pl.col("wait") > 0)).sort("until")
    return [Wait(*row) for row in waits.select("rank", "until", "wait").iter_rows()]


def remove_transitive_waits(calls: Sequence[CollectiveRow], messages: Sequence[Wait] = ()) -> list[CollectiveRow]:
    """Return timed calls as if no rank had waited since the last call that all of its ranks took part in.

    ``starts_ns`` are then earlier by these waits, ``waits_ns`` are the rest of each wait, for the ranks themselves, and
    ``late_rank`` is the last one of them. Calls of all ranks, one after the other, remain as they are.
    """
    groups = {frozenset(call.ranks) for call in calls}
    if len(groups) <= 1 and not messages:
        return [*calls]
    within = {group: [other for other in groups if other <= group] for group in groups}
    waited, since = _WaitHistory(), dict[frozenset[int], dict[int, int]]()
    pending, found = deque(messages), []
    for call in sorted(calls, key=lambda call: max(call.starts_ns)):
        last_ns, group, waits = max(call.starts_ns), frozenset(call.ranks), call.waits_ns or ()
        while pending and pending[0].until_ns <= last_ns:
            waited.add(pending.popleft())
        passed_on = waited.since(call, since.get(group, {}))
        found.append(_remove_waits(call, passed_on) if any(passed_on) else call)
        for rank, wait_ns in zip(call.ranks, waits, strict=True):
            waited.add(Wait(rank, last_ns, wait_ns))
        remaining = _remaining_waits(call, passed_on)
        for other in within[group]:
            since[other] = {rank: waited.total_ns(rank) - remaining[rank] for rank in other}
    return found


class _WaitHistory:
    """The waits of each rank so far, in the order of their ends."""

    def __init__(self) -> None:
        self._ends: defaultdict[int, list[int]] = defaultdict(list)
        self._sums: defaultdict[int, list[int]] = defaultdict(lambda: [0])

    def add(self, wait: Wait) -> None:
        """Add a wait that ended no earlier than those before."""
        self._ends[wait.rank].append(wait.until_ns)
        self._sums[wait.rank].append(self._sums[wait.rank][-1] + wait.wait_ns)

    def total_ns(self, rank: int) -> int:
        """Return how long the rank has waited."""
        return self._sums[rank][-1]

    def since(self, call: CollectiveRow, before: Mapping[int, int]) -> list[int]:
        """Return how long each rank of a call has waited until it started it, less what it had waited ``before``."""
        return [
            max(0, self._sums[rank][bisect_right(self._ends[rank], start)] - before.get(rank, 0))
            for rank, start in zip(call.ranks, call.starts_ns, strict=True)
        ]


def _remove_waits(call: CollectiveRow, passed_on: Sequence[int]) -> CollectiveRow:
    starts = [start - ns for start, ns in zip(call.starts_ns, passed_on, strict=True)]
    last_ns = max(starts)
    waits = tuple(min(wait, last_ns - start) for wait, start in zip(call.waits_ns or (), starts, strict=True))
    return replace(call, starts_ns=tuple(starts), waits_ns=waits, late_rank=call.ranks[starts.index(last_ns)])


def _remaining_waits(call: CollectiveRow, passed_on: Sequence[int]) -> dict[int, int]:
    """Return by rank the rest of the waits that it passed on, after the waits of the others for it.

    Ranks that compute during a call do not wait in it: then the late rank is as late to the next call.
    """
    first_ns, max_wait_ns = min(call.starts_ns), max(call.waits_ns or (), default=0)
    each = zip(call.ranks, call.starts_ns, passed_on, strict=True)
    return {rank: max(0, min(ns, start - first_ns) - max_wait_ns) for rank, start, ns in each}


def find_peers(calls: Iterable[CollectiveRow]) -> dict[int, frozenset[int]]:
    """Return the other ranks that take part in calls of each rank."""
    groups = {call.ranks for call in calls}
    ranks = {rank for group in groups for rank in group}
    return {rank: frozenset(other for group in groups if rank in group for other in group) - {rank} for rank in ranks}
