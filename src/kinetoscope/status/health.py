"""Health of a running job and of each of its ranks."""

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil
from pathlib import Path

from kinetoscope.core.text.wording import find_gaps
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.process_runs import describe_other_runs
from kinetoscope.pulse.snapshot import RankSnapshot, read_run_snapshot
from kinetoscope.pulse.stalls import BlockedCollective
from kinetoscope.status.hangs import Hang, find_blocking_collectives, find_hang
from kinetoscope.status.process_state import ProcessState, read_process_state

HEARTBEAT_TIMEOUT_S, HEARTBEAT_TIMEOUT_STEPS = 60.0, 20
"""A rank on another machine is unresponsive without a heartbeat for this long, and for the time of so many steps."""

LONG_PHASE_TIMEOUT_S = 600.0
"""The same during the first steps, an evaluation, a checkpoint or the saving of a recording."""

_LONG_PHASES = (Phase.EVALUATION, Phase.CHECKPOINT)
_NUM_FIRST_STEPS = 3
_MAX_CLOCK_LEAD_NS = 60_000_000_000


class RunState(Enum):
    """Health of a run or rank, as far as this machine can tell, the worst first.

    The state of a run is the worst of its ranks.
    """

    KILLED = "killed"
    """Its process ended without closing the run; known on its own machine only."""

    FAILED = "failed"
    """An exception ended it."""

    HUNG = "hanging"
    """It has reported a hang, or its process is suspended."""

    UNRESPONSIVE = "silent"
    """On another machine, without a heartbeat for long: it may be hung or dead."""

    RECORDING = "recording"
    UNKNOWN = "unknown"
    FINISHED = "finished"


ACTIVE_STATES = (RunState.HUNG, RunState.UNRESPONSIVE, RunState.RECORDING)
"""States of a run that has not ended, as far as is known."""

ENDED_STATES = (RunState.KILLED, RunState.FAILED, RunState.FINISHED)

_SEVERITY = {state: place for place, state in enumerate(RunState)}


@dataclass(frozen=True, kw_only=True)
class RankStatus:
    """Status of a rank; None is unknown.

    ``num_steps`` have ended, the last one with the number ``step``; the rank is ``behind`` the fastest one by so many
    steps. It is or was last in ``phase``, for ``phase_ns``; its last heartbeat is ``quiet_ns`` ago. A step takes
    ``step_ns`` now, and took ``run_step_ns`` on average over the run.
    """

    rank: int
    state: RunState
    host: str
    pid: int
    start: str
    is_stopped: bool
    hang: Hang | None
    num_steps: int
    step: int | None
    behind: int
    phase: str | None
    phase_ns: int | None
    quiet_ns: int
    step_ns: float | None
    run_step_ns: float | None
    resident_bytes: int | None
    device_bytes: int | None
    loss: float | None
    samples_per_s: float | None
    tokens_per_s: float | None

    @property
    def is_abnormal(self) -> bool:
        """The rank lags behind, or is neither recording nor finished."""
        return self.behind > 0 or self.state not in (RunState.RECORDING, RunState.FINISHED)


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Status of a run: the ``ranks`` of its last attempt with a pulse, abnormal ones first, of ``world_size``.

    ``snapshots`` are the pulses that it was derived from. In ``collectives``, some ranks wait for others. ``notes`` are
    sentences on later training runs in the same folder, and on files that could not be read.
    """

    state: RunState = RunState.UNKNOWN
    attempt: int | None = None
    world_size: int | None = None
    ranks: list[RankStatus] = field(default_factory=list)
    snapshots: list[RankSnapshot] = field(default_factory=list)
    collectives: list[BlockedCollective] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        """A rank has not ended, as far as is known."""
        return any(rank.state in ACTIVE_STATES for rank in self.ranks)

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Ranks without a pulse, as ranges of first and last."""
        return find_gaps((rank.rank for rank in self.ranks), self.world_size or 0)


def read_run_status(run_folder: Path) -> RunStatus:
    """Return the status of the run in a folder; it never raises, whatever the folder contains."""
    found = read_run_snapshot(run_folder)
    now_ns = time.time_ns()
    statuses = [_read_rank_status(run_folder, snapshot, now_ns) for snapshot in found.last]
    if not statuses:
        return RunStatus(notes=found.notes)
    pairs = zip(statuses, found.last, strict=True)
    hanging = (
        snapshot.header for rank, snapshot in pairs if rank.hang is not None and rank.state is not RunState.KILLED
    )
    collectives = [*find_blocking_collectives(run_folder, hanging)]
    late = {rank for collective in collectives for rank in collective.missing}
    return RunStatus(
        state=min((rank.state for rank in statuses), key=_SEVERITY.__getitem__),
        attempt=found.last[0].header.process.attempt.restart,
        world_size=max(snapshot.header.process.ranks.world_size for snapshot in found.last),
        ranks=sorted(_add_lags(statuses, found.last), key=lambda rank: _build_sort_key(rank, late)),
        snapshots=found.last,
        collectives=collectives,
        notes=[*describe_other_runs(run_folder), *found.notes],
    )


def _build_sort_key(rank: RankStatus, late: Container[int]) -> tuple[int, bool, bool, int, int]:
    """Return a sort key with abnormal ranks first: by severity, then those that others may wait for, then by lag."""
    return _SEVERITY[rank.state], not rank.is_stopped, rank.rank not in late, -rank.behind, rank.rank


def _read_rank_status(run_folder: Path, snapshot: RankSnapshot, now_ns: int) -> RankStatus:
    """Return the status of one rank at ``now_ns``, in unix nanoseconds."""
    header = snapshot.header
    process = ProcessState.UNKNOWN if header.has_ended else read_process_state(run_folder, header.process)
    if process in (ProcessState.RUNNING, ProcessState.STOPPED):
        now_ns = header.clock.unix_ns(time.monotonic_ns())  # its clock is this machine's
    hang = None if header.has_ended else find_hang(run_folder, header)
    state = classify_rank(snapshot, process, hang, now_ns)
    return RankStatus(
        rank=header.process.ranks.rank,
        state=state,
        host=header.process.attempt.host,
        pid=header.process.attempt.pid,
        start=header.process.attempt.start,
        is_stopped=process is ProcessState.STOPPED,
        hang=hang,
        num_steps=header.num_steps,
        step=snapshot.step,
        behind=0,
        phase=None if header.has_ended else header.phase_name,
        phase_ns=max(0, now_ns - header.phase_since_ns) if state in ACTIVE_STATES else None,
        quiet_ns=max(0, now_ns - header.heartbeat_ns),
        step_ns=snapshot.step_ns,
        run_step_ns=snapshot.run_step_ns,
        resident_bytes=header.resident_bytes,
        device_bytes=header.device_bytes,
        loss=header.loss,
        samples_per_s=header.samples_per_s,
        tokens_per_s=header.tokens_per_s,
    )


def classify_rank(snapshot: RankSnapshot, process: ProcessState, hang: Hang | None, now_ns: int) -> RunState:
    """Return the state of a rank at ``now_ns``, in unix nanoseconds."""
    if snapshot.header.has_ended:
        return RunState.FAILED if snapshot.header.has_failed else RunState.FINISHED
    if process is ProcessState.DEAD:
        return RunState.KILLED
    if process is ProcessState.STOPPED or (hang is not None and hang.hangs):
        return RunState.HUNG
    if process is ProcessState.RUNNING:
        return RunState.RECORDING
    quiet_ns = now_ns - snapshot.header.heartbeat_ns
    if quiet_ns < -_MAX_CLOCK_LEAD_NS:
        return RunState.UNKNOWN  # the clocks of the machines differ
    return RunState.UNRESPONSIVE if quiet_ns > _compute_heartbeat_timeout_ns(snapshot) else RunState.RECORDING


def _compute_heartbeat_timeout_ns(snapshot: RankSnapshot) -> float:
    """Return the time without a heartbeat after which a rank is unresponsive."""
    header = snapshot.header
    is_long_phase = header.is_saving or header.phase in _LONG_PHASES or header.num_steps < _NUM_FIRST_STEPS
    min_timeout_ns = (LONG_PHASE_TIMEOUT_S if is_long_phase else HEARTBEAT_TIMEOUT_S) * 1e9
    return max(min_timeout_ns, HEARTBEAT_TIMEOUT_STEPS * (snapshot.step_ns or 0))


def _add_lags(ranks: Sequence[RankStatus], snapshots: Sequence[RankSnapshot]) -> list[RankStatus]:
    """Return the ranks with the number of steps that each is behind the fastest one.

    Pulses are not read at the same moment, and ranks may be a step apart: differences up to that are no lag.
    """
    active = [
        (rank, snapshot) for rank, snapshot in zip(ranks, snapshots, strict=True) if rank.state is not RunState.FINISHED
    ]
    steps = [(rank.step, rank.num_steps) for rank, _ in active if rank.step is not None]
    if not steps:
        return [*ranks]
    newest_step, num_steps = max(steps)
    moments = [snapshot.read_ns for _, snapshot in active]
    fastest_ns = min((snapshot.step_ns for _, snapshot in active if snapshot.step_ns), default=1.0)
    allowed = 1 + ceil((max(moments) - min(moments)) / fastest_ns)
    return [
        replace(rank, behind=lag if lag > allowed and rank.state is not RunState.FINISHED else 0)
        for rank in ranks
        for lag in [newest_step - (newest_step - num_steps if rank.step is None else rank.step)]
    ]
