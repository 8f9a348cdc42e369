"""What a run does now, in the words that a terminal and a page show."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from kinetoscope.core.text.wording import counted, lasting, memory_size, printable, ranks_named, shortened, shown
from kinetoscope.pages.run_list import RankNow, RunNow
from kinetoscope.pulse.glances import NUM_LAST
from kinetoscope.status.judging import RankStatus, RunState, RunStatus

MOST_ROWS = 16
"""Of more ranks, the odd ones have rows, and the rest is summed up."""

_MOST_SENTENCES = 3
_LONGEST_HOST = 30


def run_now(status: RunStatus) -> RunNow:
    """The status in words."""
    ranks = status.ranks
    odd = [rank for rank in ranks if rank.is_odd]
    with_rows = ranks if len(ranks) <= MOST_ROWS else odd[:MOST_ROWS]
    columns = [title for title, (say, may_be_empty) in _COLUMNS.items() if not may_be_empty or any(map(say, ranks))]
    if len({rank.host for rank in ranks}) < 2:
        columns.remove("host")
    return RunNow(
        state=status.state.value,
        headline=_headline(status),
        sentences=[
            *_about_odd(ranks),
            *_some(_about_collectives(status), "more group"),
            *_about_missing(status),
            *_some(map(printable, status.notes), "more note"),
        ],
        columns=columns,
        rows=[
            RankNow(state=rank.state.value, cells=[_COLUMNS[title][0](rank) for title in columns]) for rank in with_rows
        ],
        rest=_summed_up([*ranks] if not with_rows else [rank for rank in ranks if rank not in with_rows]),
    )


def _headline(status: RunStatus) -> str:
    if not status.ranks:
        return "nothing seen"
    num_ranks, world_size = len(status.ranks), status.world_size or 0
    of = f"{num_ranks:,} of {counted(world_size, 'rank')}" if world_size > num_ranks else counted(num_ranks, "rank")
    parts = [f"attempt {status.attempt}" if status.attempt else "", of, *_progress(status.ranks)]
    return f"{status.state.value}: {', '.join(filter(None, parts))}"


def _progress(ranks: Sequence[RankStatus]) -> Iterable[str]:
    """Which step they have completed, and what a step takes."""
    steps = [rank.step for rank in ranks if rank.step is not None]
    if steps:
        yield f"step {max(steps):,}" if min(steps) == max(steps) else f"steps {min(steps):,} to {max(steps):,}"
    now = [rank.step_ns for rank in ranks if rank.step_ns is not None]
    whole = [rank.run_step_ns for rank in ranks if rank.run_step_ns is not None]
    if now:
        over = f"; {lasting(median(whole))} over the run" if whole else ""
        yield f"{lasting(median(now))} a step (last {NUM_LAST} steps{over})"


# -- sentences


def _about_odd(ranks: Sequence[RankStatus]) -> Iterable[str]:
    yield from _some(_each(ranks, _killed), "more rank")
    yield from _some(_hanging(ranks), "more sentence")
    for say in (_silent, _long, _behind):
        yield from _some(_each(ranks, say), "more rank")


def _each(ranks: Sequence[RankStatus], say: Callable[[RankStatus], str]) -> Iterable[str]:
    return (f"Rank {rank.rank} {said}." for rank in ranks if (said := say(rank)))


def _some(sentences: Iterable[str], thing: str) -> Iterable[str]:
    found = [*sentences]
    yield from found[:_MOST_SENTENCES]
    if len(found) > _MOST_SENTENCES:
        yield f"And {counted(len(found) - _MOST_SENTENCES, thing)} like that."


def _killed(rank: RankStatus) -> str:
    if rank.state is not RunState.KILLED:
        return ""
    after = "before its first step was complete" if rank.step is None else f"after step {rank.step:,}"
    stuck = ", where it hung" if rank.hang and rank.hang.hangs else ", which took long" if rank.hang else ""
    return f"was killed {after}, in {_phase(rank)}{stuck}{_at(rank)}"


def _hanging(ranks: Sequence[RankStatus]) -> Iterable[str]:
    """Those that hang alike in one sentence."""
    alike: dict[object, list[RankStatus]] = {}
    for rank in ranks:
        if rank.state is RunState.HANGING:
            alike.setdefault((rank.is_stopped, rank.phase, rank.hang), []).append(rank)
    for found in alike.values():
        first, names = found[0], ranks_named(sorted(one.rank for one in found)).capitalize()
        longest = max(found, key=lambda rank: rank.phase_ns or 0)
        where = f"in {_phase(first)} for {'' if len(found) == 1 else 'up to '}{_for(longest)}"
        if first.is_stopped:
            yield f"{names} {'is' if len(found) == 1 else 'are'} stopped by a signal, {where}."
        else:
            held = ", without the GIL, which something holds" if first.hang and first.hang.holds_gil else ""
            yield f"{names} {'hangs' if len(found) == 1 else 'hang'} {where}{held}{_at(first)}."


def _long(rank: RankStatus) -> str:
    if rank.state in (RunState.HANGING, RunState.KILLED) or rank.hang is None:
        return ""
    return f"takes long in {_phase(rank)}, {_for(rank)} by now{_at(rank)}"


def _at(rank: RankStatus) -> str:
    return f": {printable(rank.hang.place)}" if rank.hang and rank.hang.place else ""


def _silent(rank: RankStatus) -> str:
    if rank.state is not RunState.SILENT:
        return ""
    return f"on {printable(rank.host)} has had no heartbeat for {lasting(rank.quiet_ns)}, in {_phase(rank)}"


def _behind(rank: RankStatus) -> str:
    return f"is {counted(rank.behind, 'step')} behind" if rank.behind else ""


def _about_collectives(status: RunStatus) -> Iterable[str]:
    """Who waits for whom."""
    for found in status.collectives:
        what, waits = printable(found.collective or "a collective"), "waits" if len(found.waiting) == 1 else "wait"
        waiting, missing = map(ranks_named, (found.waiting, found.missing))
        yield f"In {what}, number {found.sequence:,} of group {shown(found.group)}, {waiting} {waits} for {missing}."


def _about_missing(status: RunStatus) -> Iterable[str]:
    if status.missing:
        yield f"There is no pulse of {ranks_named(status.missing)}."


def _summed_up(ranks: Sequence[RankStatus]) -> str:
    """Ranks that have no row, in one line."""
    if not ranks:
        return ""
    states = Counter(rank.state.value for rank in ranks).most_common()
    phases = Counter(_phase(rank) for rank in ranks if rank.phase).most_common()
    said = [
        ", ".join(f"{count:,} {state}" for state, count in states),
        ", ".join(_progress(ranks)),
        ", ".join(f"{count:,} in {phase}" for phase, count in phases),
    ]
    return f"{counted(len(ranks), 'more rank')}: {'; '.join(filter(None, said))}"


# -- cells; "" is what is not known


def _phase(rank: RankStatus) -> str:
    return (rank.phase or "").replace("_", " ")


def _for(rank: RankStatus) -> str:
    return _said(rank.phase_ns, lasting)


def _state(rank: RankStatus) -> str:
    return "stopped" if rank.is_stopped else rank.state.value


def _said(value: float | None, say: Callable[..., str]) -> str:
    return "" if value is None else say(value)


_COLUMNS: dict[str, tuple[Callable[[RankStatus], str], bool]] = {
    "rank": (lambda rank: str(rank.rank), False),
    "state": (_state, False),
    "step": (lambda rank: _said(rank.step, "{:,}".format), False),
    "behind": (lambda rank: f"{rank.behind:,}" if rank.behind else "", True),
    "phase": (_phase, True),
    "for": (_for, True),
    "takes": (lambda rank: _said(rank.step_ns, lasting), False),
    "over run": (lambda rank: _said(rank.run_step_ns, lasting), False),
    "loss": (lambda rank: _said(rank.loss, "{:.4g}".format), True),
    "device": (lambda rank: _said(rank.device_bytes, memory_size), True),
    "memory": (lambda rank: _said(rank.resident_bytes, memory_size), True),
    "samples/s": (lambda rank: _said(rank.samples_per_s, "{:,.4g}".format), True),
    "tokens/s": (lambda rank: _said(rank.tokens_per_s, "{:,.4g}".format), True),
    "host": (lambda rank: shortened(rank.host, _LONGEST_HOST), False),
}
"""What is said of a rank, and whether a column in which nothing is known is left out."""
