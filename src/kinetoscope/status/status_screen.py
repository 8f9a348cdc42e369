"""Status of a run as sentences and table cells, for a terminal and a page."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from kinetoscope.core.text.wording import (
    format_count,
    format_duration,
    format_memory,
    format_ranks,
    sanitize,
    sanitize_sentence,
    shorten_name,
)
from kinetoscope.pages.run_list import STATE_LABELS, RankLine, StatusScreen
from kinetoscope.pulse.snapshot import NUM_LAST
from kinetoscope.status.health import RankStatus, RunState, RunStatus

MAX_ROWS = 16
"""Limit of rows; of more ranks, abnormal ones have rows, and the rest is summed up in one line."""

_MAX_SENTENCES = 3
_MAX_HOST_LENGTH = 30


def build_status_screen(status: RunStatus) -> StatusScreen:
    """Return the status as sentences and rows."""
    ranks = status.ranks
    abnormal = [rank for rank in ranks if rank.is_abnormal]
    with_rows = ranks if len(ranks) <= MAX_ROWS else abnormal[:MAX_ROWS]
    columns = [
        title for title, (describe, may_be_empty) in _COLUMNS.items() if not may_be_empty or any(map(describe, ranks))
    ]
    if len({rank.host for rank in ranks}) < 2:
        columns.remove("host")
    return StatusScreen(
        state=status.state.value,
        headline=_build_headline(status),
        sentences=[
            *_describe_abnormal(ranks),
            *_limit_sentences(_describe_collectives(status), "more group"),
            *_describe_missing(status),
            *_limit_sentences(map(sanitize_sentence, status.notes), "more note"),
        ],
        columns=columns,
        rows=[
            RankLine(state=rank.state.value, cells=[_COLUMNS[title][0](rank) for title in columns])
            for rank in with_rows
        ],
        rest=_summarize_rest([*ranks] if not with_rows else [rank for rank in ranks if rank not in with_rows]),
    )


def _build_headline(status: RunStatus) -> str:
    """Return the state, the number of ranks, the step and the step time."""
    if not status.ranks:
        return "nothing seen"
    num_ranks, world_size = len(status.ranks), status.world_size or 0
    of = (
        f"{num_ranks:,} of {format_count(world_size, 'rank')}"
        if world_size > num_ranks
        else format_count(num_ranks, "rank")
    )
    parts = [f"attempt {status.attempt}" if status.attempt else "", of, *_describe_progress(status.ranks)]
    return f"{_format_label(status.state)}: {', '.join(filter(None, parts))}"


def _describe_progress(ranks: Sequence[RankStatus]) -> Iterable[str]:
    """Yield the last completed steps and the step time."""
    steps = [rank.step for rank in ranks if rank.step is not None]
    if steps:
        yield f"step {max(steps):,}" if min(steps) == max(steps) else f"steps {min(steps):,} to {max(steps):,}"
    now = [rank.step_ns for rank in ranks if rank.step_ns is not None]
    whole = [rank.run_step_ns for rank in ranks if rank.run_step_ns is not None]
    if now:
        over = f"; {format_duration(median(whole))} over the run" if whole else ""
        yield f"{format_duration(median(now))}/step (last {NUM_LAST} steps{over})"


# -- sentences


def _describe_abnormal(ranks: Sequence[RankStatus]) -> Iterable[str]:
    """Yield sentences on killed, failed, hung, unresponsive, slow and lagging ranks."""
    for describe in (_describe_killed, _describe_failed):
        yield from _limit_sentences(_describe_each(ranks, describe), "more rank")
    yield from _limit_sentences(_describe_hung(ranks), "more sentence")
    for describe in (_describe_unresponsive, _describe_slow_phase, _describe_lag):
        yield from _limit_sentences(_describe_each(ranks, describe), "more rank")


def _describe_each(ranks: Sequence[RankStatus], describe: Callable[[RankStatus], str]) -> Iterable[str]:
    """Yield a sentence for each rank that ``describe`` returns a text on."""
    return (f"Rank {rank.rank} {text}." for rank in ranks if (text := describe(rank)))


def _limit_sentences(sentences: Iterable[str], noun: str) -> Iterable[str]:
    """Yield the first sentences, and one on the number of the others."""
    found = [*sentences]
    yield from found[:_MAX_SENTENCES]
    if len(found) > _MAX_SENTENCES:
        yield f"And {format_count(len(found) - _MAX_SENTENCES, noun)} like that."


def _describe_killed(rank: RankStatus) -> str:
    """Return the end of a killed rank; "" for others."""
    if rank.state is not RunState.KILLED:
        return ""
    stuck = ", where it hung" if rank.hang and rank.hang.hangs else ", which took long" if rank.hang else ""
    return f"was killed {_format_last_step(rank)}, in {_format_phase(rank)}{stuck}{_format_location(rank)}"


def _describe_failed(rank: RankStatus) -> str:
    """Return the end of a rank that an exception ended; "" for others."""
    return f"failed with an exception {_format_last_step(rank)}" if rank.state is RunState.FAILED else ""


def _format_last_step(rank: RankStatus) -> str:
    return "before its first step was complete" if rank.step is None else f"after step {rank.step:,}"


def _describe_hung(ranks: Sequence[RankStatus]) -> Iterable[str]:
    """Yield one sentence for all ranks that hang in the same phase and location."""
    groups: dict[object, list[RankStatus]] = {}
    for rank in ranks:
        if rank.state is RunState.HUNG:
            groups.setdefault((rank.is_stopped, rank.phase, rank.hang), []).append(rank)
    for found in groups.values():
        first, names = found[0], format_ranks(sorted(one.rank for one in found)).capitalize()
        slowest = max(found, key=lambda rank: rank.phase_ns or 0)
        where = f"in {_format_phase(first)} for {'' if len(found) == 1 else 'up to '}{_format_phase_time(slowest)}"
        if first.is_stopped:
            yield f"{names} {'is' if len(found) == 1 else 'are'} suspended (SIGSTOP), {where}."
        else:
            waits_for_gil = ", waiting for the GIL" if first.hang and first.hang.holds_gil else ""
            yield f"{names} {'hangs' if len(found) == 1 else 'hang'} {where}{waits_for_gil}{_format_location(first)}."


def _describe_slow_phase(rank: RankStatus) -> str:
    """Return the phase that takes long without a certain hang; "" for other ranks."""
    if rank.state in (RunState.HUNG, RunState.KILLED) or rank.hang is None:
        return ""
    return f"takes long in {_format_phase(rank)}, {_format_phase_time(rank)} by now{_format_location(rank)}"


def _format_location(rank: RankStatus) -> str:
    """Return the source location of a hang after a colon; "" if unknown."""
    return f": {sanitize_sentence(rank.hang.location)}" if rank.hang and rank.hang.location else ""


def _describe_unresponsive(rank: RankStatus) -> str:
    """Return the time without heartbeat; "" for responsive ranks."""
    if rank.state is not RunState.UNRESPONSIVE:
        return ""
    silence = f"has had no heartbeat for {format_duration(rank.quiet_ns)}"
    return f"on {sanitize_sentence(rank.host)} {silence}, in {_format_phase(rank)}"


def _describe_lag(rank: RankStatus) -> str:
    """Return the number of steps that a rank lags behind; "" without a lag."""
    return f"is {format_count(rank.behind, 'step')} behind" if rank.behind else ""


def _describe_collectives(status: RunStatus) -> Iterable[str]:
    """Yield a sentence for each collective in which ranks wait for others."""
    for found in status.collectives:
        what, waits = (
            sanitize_sentence(found.collective or "a collective"),
            "waits" if len(found.waiting) == 1 else "wait",
        )
        waiting, missing = map(format_ranks, (found.waiting, found.missing))
        yield f"In {what}, number {found.sequence:,} of group {sanitize(found.group)}, {waiting} {waits} for {missing}."


def _describe_missing(status: RunStatus) -> Iterable[str]:
    """Yield a sentence on ranks without a pulse."""
    if status.missing:
        yield f"There is no pulse of {format_ranks(status.missing)}."


def _summarize_rest(ranks: Sequence[RankStatus]) -> str:
    """Return a line on the ranks without a row."""
    if not ranks:
        return ""
    states = Counter(_format_label(rank.state) for rank in ranks).most_common()
    phases = Counter(_format_phase(rank) for rank in ranks if rank.phase).most_common()
    parts = [
        ", ".join(f"{count:,} {state}" for state, count in states),
        ", ".join(_describe_progress(ranks)),
        ", ".join(f"{count:,} in {phase}" for phase, count in phases),
    ]
    return f"{format_count(len(ranks), 'more rank')}: {'; '.join(filter(None, parts))}"


# -- cells; "" is unknown


def _format_phase(rank: RankStatus) -> str:
    return (rank.phase or "").replace("_", " ")


def _format_phase_time(rank: RankStatus) -> str:
    return _format_known(rank.phase_ns, format_duration)


def _format_state(rank: RankStatus) -> str:
    return "suspended" if rank.is_stopped else _format_label(rank.state)


def _format_label(state: RunState) -> str:
    return STATE_LABELS.get(state.value, state.value)


def _format_known(value: float | None, describe: Callable[..., str]) -> str:
    """Return the formatted value; "" if it is unknown."""
    return "" if value is None else describe(value)


_COLUMNS: dict[str, tuple[Callable[[RankStatus], str], bool]] = {
    "rank": (lambda rank: str(rank.rank), False),
    "state": (_format_state, False),
    "step": (lambda rank: _format_known(rank.step, "{:,}".format), False),
    "behind": (lambda rank: f"{rank.behind:,}" if rank.behind else "", True),
    "phase": (_format_phase, True),
    "for": (_format_phase_time, True),
    "takes": (lambda rank: _format_known(rank.step_ns, format_duration), False),
    "over run": (lambda rank: _format_known(rank.run_step_ns, format_duration), False),
    "loss": (lambda rank: _format_known(rank.loss, "{:.4g}".format), True),
    "device": (lambda rank: _format_known(rank.device_bytes, format_memory), True),
    "memory": (lambda rank: _format_known(rank.resident_bytes, format_memory), True),
    "samples/s": (lambda rank: _format_known(rank.samples_per_s, "{:,.4g}".format), True),
    "tokens/s": (lambda rank: _format_known(rank.tokens_per_s, "{:,.4g}".format), True),
    "host": (lambda rank: shorten_name(rank.host, _MAX_HOST_LENGTH), False),
}
"""Format function of each column, and whether the column is hidden if all its cells are empty."""
