"""CPU contention of a run: the run-queue delay of its loops, and the CPU use of the job and of other processes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict

from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.run_queue_delay import RunQueueDelay
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.optional_numbers import sum_or_none
from kinetoscope.core.text.wording import format_percent

MIN_STEAL_SHARE = 0.03
MIN_WALL_NS = 200_000_000
"""Linux counts the CPU time of all processes in ticks of 10 ms: in a shorter window their share is off by over 5 %."""

_MIN_OWN_SHARE = 0.5
_OWN_RATIO = 3
"""A job contends with itself if it uses most of the CPU time, and this many times as much as all others."""

_MIN_OWN_SHARE_ALONE = 0.8
"""The same where the share of the others is unknown, or where the hypervisor steals CPU time."""

_MIN_SLOWDOWN = 1.1


class Contention(TypedDict):
    """CPU contention while a run was recorded, on the host whose loops waited longest; None where unknown.

    Percentages are of the time of all CPUs that the job may use. ``slowdown`` is the wall time of the loop's thread,
    divided by its wall time less its run-queue delay.
    """

    own_percent: float | None
    others_percent: float | None
    steal_percent: float | None
    slowdown: float | None


@dataclass(frozen=True, kw_only=True)
class CpuUse:
    """Shares of the time of all CPUs that a job may use on one host, and its limits; None where unknown."""

    own_share: float | None = None
    others_share: float | None = None
    steal_share: float | None = None
    throttled_share: float | None = None
    num_throttled: float | None = None
    num_cores: int | None = None
    num_threads: int | None = None
    num_ranks: int = 0

    @property
    def is_job_oversubscribed(self) -> bool:
        """True if threads of the job contend with one another for the CPUs."""
        if self.own_share is None:
            return False
        if self.others_share is None:
            return self.own_share >= _MIN_OWN_SHARE_ALONE
        is_stolen = (self.steal_share or 0) >= MIN_STEAL_SHARE and self.own_share < _MIN_OWN_SHARE_ALONE
        return not is_stolen and self.own_share >= max(_MIN_OWN_SHARE, _OWN_RATIO * self.others_share)

    def to_evidence(self) -> dict[str, float | None]:
        """Return the numbers as evidence of a finding."""
        return asdict(self)


def find_cpu_use(
    steps: Iterable[StepRow], ranks: Iterable[RankRow], notes: Iterable[tuple[int | None, Mapping[str, int]]]
) -> CpuUse:
    """Return the use of the CPUs of the host whose loops waited longest for one.

    Args:
        steps: steps of all ranks, with their run-queue delay.
        ranks: rows with the host of each rank.
        notes: for each window its rank and the numbers of its note ``processors``. The ranks of a host add up.
    """
    hosts = {row.rank: row.host for row in ranks}
    delays_ns: dict[str | None, int] = {}
    for row in steps:
        host = hosts.get(row.rank)
        delays_ns[host] = delays_ns.get(host, 0) + (row.starved_ns or 0)
    slowest = max(delays_ns, key=lambda host: delays_ns[host], default=None)
    by_rank: dict[int | None, list[Mapping[str, int]]] = {}
    for rank, note in notes:
        if note.get("wall_ns") and hosts.get(rank) == slowest:
            by_rank.setdefault(rank, []).append(note)
    return _add_ranks(list(by_rank.values())) if by_rank else CpuUse()


def _add_ranks(ranks: Sequence[Sequence[Mapping[str, int]]]) -> CpuUse:
    first = ranks[0]
    shares = (sum_or_none(_share(windows, "own_ns") for windows in ranks), _share(first, "command_ns"))
    own_share = max((share for share in shares if share is not None), default=None)
    is_long = sum(window["wall_ns"] for window in first) >= MIN_WALL_NS
    busy_share, steal_share = (_share(first, name) if is_long else None for name in ("busy_ns", "steal_ns"))
    throttled_ns = _total(first, "throttled_ns")
    return CpuUse(
        own_share=None if own_share is None else min(1.0, own_share),
        others_share=None if busy_share is None else max(0.0, busy_share - (own_share or 0)),
        steal_share=steal_share,
        throttled_share=None if throttled_ns is None else throttled_ns / (_total(first, "wall_ns") or 1),
        num_throttled=_total(first, "num_throttled"),
        num_cores=first[0].get("cores"),
        num_threads=first[0].get("threads"),
        num_ranks=len(ranks),
    )


def _share(windows: Sequence[Mapping[str, int]], name: str) -> float | None:
    """Return a rank's share of the time of all CPUs; at most 1, since the system may count one tick too many."""
    used_ns, wall_ns, cores = _total(windows, name), _total(windows, "wall_ns"), windows[0].get("cores")
    return min(1.0, used_ns / wall_ns / cores) if cores and wall_ns and used_ns is not None else None


def _total(windows: Sequence[Mapping[str, int]], name: str) -> int | None:
    return sum_or_none(window.get(name) for window in windows)


def find_contention(delay: RunQueueDelay, use: CpuUse) -> Contention | None:
    """Return the contention with this delay; None where nothing of it was recorded."""
    shares = (use.own_share, use.others_share, use.steal_share)
    own, others, steal = (None if share is None else round(100 * share, 1) for share in shares)
    slowdown = delay.slowdown
    if slowdown is None and own is None:
        return None
    return Contention(own_percent=own, others_percent=others, steal_percent=steal, slowdown=slowdown)


def is_slowed(contention: Contention | None) -> bool:
    """Return whether contention slows the loop enough to be reported."""
    return contention is not None and (contention["slowdown"] or 1) >= _MIN_SLOWDOWN


def build_contention_notes(contention: Contention | None) -> list[str]:
    """Return sentences on contention that slows the loop, and on its causes."""
    if contention is None or not is_slowed(contention):
        return []
    own, others, steal = (contention[name] for name in ("own_percent", "others_percent", "steal_percent"))
    diagnosis = f"CPU contention: the loop waited for a CPU, and ran {contention['slowdown']:.1f} times slower. "
    if own is None or others is None:
        return [f"{diagnosis}This recording does not show who used the CPUs (top does)."]
    is_stolen = (steal or 0) >= 100 * MIN_STEAL_SHARE
    stolen = f", other guests of its host took {format_percent((steal or 0) / 100)}" if is_stolen else ""
    advice = (
        "Ask for CPUs that are not shared"
        if is_stolen and (steal or 0) > others
        else ("Move other programs to another machine, or reserve CPUs for this job (taskset, cpuset)")
    )
    used = f"This job used {format_percent(own / 100)} of the CPU time, other processes {format_percent(others / 100)}"
    return [f"{diagnosis}{used}{stolen}. {advice}."]
