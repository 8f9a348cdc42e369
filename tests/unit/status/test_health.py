"""Health of ranks and a run: by their pulses, and by their processes where these are on this machine."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinetoscope.core.clock.clock import Anchor, ClockLine
from kinetoscope.core.job.ranks import Attempt, Ranks, pid_space
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.pulse.header import PulseHeader
from kinetoscope.pulse.layout import FOLDER, Phase, StallState
from kinetoscope.pulse.pulse_recorder import PulseProcess, PulseRecorder
from kinetoscope.pulse.snapshot import RankSnapshot
from kinetoscope.pulse.stalls import STACKS_SUFFIX, STALL_SUFFIX, GroupState, StalledPhase, StallFile
from kinetoscope.status import health
from kinetoscope.status.hangs import Hang
from kinetoscope.status.health import RunState, RunStatus, classify_rank, read_run_status
from kinetoscope.status.process_state import ProcessState, read_process_state
from kinetoscope.status.status_screen import build_status_screen
from kinetoscope.testing import FakeClock

S = 1_000_000_000
MS = 1_000_000
NOW = 1_790_000_000 * S
LINE = ClockLine(Anchor(0, NOW - 1000 * S), Anchor(0, NOW - 1000 * S))
HERE, ELSEWHERE = ProcessState.RUNNING, ProcessState.UNKNOWN


def snapshot(quiet_s=0.0, step_ns=10 * MS, num_steps=100, phase=Phase.OTHER, has_ended=False, has_failed=False):
    """Return a rank's last snapshot, so many seconds old."""
    process = PulseProcess(Ranks(), Attempt("run", 0, 1, "start", "host"), 0, NOW - 1000 * S)
    last_ns = NOW - round(quiet_s * S)
    header = PulseHeader(
        process=process,
        clock=LINE,
        num_steps=num_steps,
        phase=phase,
        phase_since_ns=last_ns,
        heartbeat_ns=last_ns,
        has_ended=has_ended,
        has_failed=has_failed,
        resident_bytes=None,
        device_bytes=None,
        loss=None,
        samples_per_s=None,
        tokens_per_s=None,
    )
    return RankSnapshot(header, NOW, num_steps - 1, step_ns, step_ns)


@pytest.mark.parametrize(
    ("pulse", "process", "hang", "expected"),
    [
        (snapshot(), HERE, None, RunState.RECORDING),
        (snapshot(quiet_s=3600), HERE, None, RunState.RECORDING),
        (snapshot(), ProcessState.STOPPED, None, RunState.HUNG),
        (snapshot(), ProcessState.DEAD, None, RunState.KILLED),
        (snapshot(), HERE, Hang(), RunState.HUNG),
        (snapshot(), HERE, Hang(hangs=False), RunState.RECORDING),
        (snapshot(), ProcessState.DEAD, Hang(), RunState.KILLED),
        (snapshot(has_ended=True), ProcessState.DEAD, None, RunState.FINISHED),
        (snapshot(has_ended=True, has_failed=True), ProcessState.DEAD, None, RunState.FAILED),
        (snapshot(quiet_s=3600, has_ended=True), ELSEWHERE, None, RunState.FINISHED),
        (snapshot(), ELSEWHERE, Hang(), RunState.HUNG),
        (snapshot(quiet_s=59), ELSEWHERE, None, RunState.RECORDING),
        (snapshot(quiet_s=61), ELSEWHERE, None, RunState.UNRESPONSIVE),
        (snapshot(quiet_s=61, step_ns=4 * S), ELSEWHERE, None, RunState.RECORDING),
        (snapshot(quiet_s=81, step_ns=4 * S), ELSEWHERE, None, RunState.UNRESPONSIVE),
        (snapshot(quiet_s=500, phase=Phase.CHECKPOINT), ELSEWHERE, None, RunState.RECORDING),
        (snapshot(quiet_s=601, phase=Phase.EVALUATION), ELSEWHERE, None, RunState.UNRESPONSIVE),
        (snapshot(quiet_s=500, num_steps=1), ELSEWHERE, None, RunState.RECORDING),
        (snapshot(quiet_s=-30), ELSEWHERE, None, RunState.RECORDING),
        (snapshot(quiet_s=-3600), ELSEWHERE, None, RunState.UNKNOWN),
    ],
)
def test_rank_is_classified_by_its_pulse_and_its_process(pulse, process, hang, expected):
    assert classify_rank(pulse, process, hang, NOW) is expected


# -- a run


class Rank:
    """A rank of a run of four, with a real pulse that began just now; ``pid_space`` is where its pid counts."""

    def __init__(self, folder, rank, num_steps, monkeypatch, host="host", space="", **process):
        self.clock = FakeClock(tick_ns=0, **process)
        self.pulse = PulseRecorder(self.clock)
        monkeypatch.setattr("kinetoscope.pulse.pulse_recorder.pid_space", lambda: space)
        attempt = Attempt("run", 0, os.getpid(), f"2026-{rank}", host)
        self.pulse.open(folder, Ranks(rank, rank, 4, 4), attempt)
        for number in range(num_steps):
            self.clock.advance(10 * MS)
            self.pulse.end_step(Timestamp(batch=1000 + number))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Make ranks of a run, whose clocks show what it is now, and close them at the end."""
    monkeypatch.setattr(health.time, "time_ns", lambda: FakeClock(tick_ns=0).unix_ns() + S)
    ranks = []

    def make(*numbers_of_steps, **of_rank):
        for number in numbers_of_steps:
            ranks.append(Rank(tmp_path, len(ranks), number, monkeypatch, space="another.1", **of_rank))
        return tmp_path

    yield make, ranks
    for rank in ranks:
        rank.pulse.close()


def test_the_state_of_a_run_is_that_of_its_worst_rank(run, monkeypatch):
    make, ranks = run
    folder = make(20, 20)
    assert read_run_status(folder).state is RunState.RECORDING
    ranks[0].pulse.close()
    assert read_run_status(folder).state is RunState.RECORDING
    ranks[1].pulse.close()
    assert read_run_status(folder).state is RunState.FINISHED
    make(20)
    monkeypatch.setattr(health, "read_process_state", lambda folder, process: ProcessState.STOPPED)
    assert read_run_status(folder).state is RunState.HUNG
    make(20)
    states = {2: ProcessState.STOPPED, 3: ProcessState.DEAD}
    monkeypatch.setattr(health, "read_process_state", lambda folder, process: states[process.ranks.rank])
    status = read_run_status(folder)
    assert status.state is RunState.KILLED
    assert [rank.rank for rank in status.ranks] == [3, 2, 0, 1], "abnormal ranks first"


def test_later_training_runs_of_the_process_are_listed(run, monkeypatch):
    make, ranks = run
    folder = make(3)
    assert read_run_status(folder).notes == []
    ranks.append(Rank(folder / "2", 0, 3, monkeypatch, space="another.1"))
    note = (
        "This process trained 2 times, and this is the first training run. The last is in folder 2. 1: 3 steps of 10 "
        "ms; 2: 3 steps of 10 ms."
    )
    assert read_run_status(folder).notes == [note]
    assert note in build_status_screen(read_run_status(folder)).sentences


def test_ranks_behind_are_reported_with_their_number_of_steps(run):
    make, _ = run
    status = read_run_status(make(50, 49, 20, 0))
    lags = {rank.rank: rank.behind for rank in status.ranks}
    assert lags == {0: 0, 1: 0, 2: 30, 3: 50}, "a step apart is no lag; batches were counted from 1000 on"
    assert [rank.rank for rank in status.ranks] == [3, 2, 0, 1]
    assert {rank.step for rank in status.ranks if rank.rank != 3} == {1048, 1047, 1018}


def test_ranks_without_a_pulse_are_named_as_ranges():
    rank = RunStatus().missing
    assert rank == []
    present = {number: object.__new__(health.RankStatus) for number in (2, 3, 7)}
    for number, status in present.items():
        object.__setattr__(status, "rank", number)
    assert RunStatus(world_size=10, ranks=[*present.values()]).missing == [(0, 1), (4, 6), (8, 9)]
    assert RunStatus(world_size=2**31 - 1, ranks=[*present.values()]).missing[-1] == (8, 2**31 - 2)


def test_empty_folder_has_unknown_state(tmp_path):
    assert read_run_status(tmp_path) == RunStatus()
    assert read_run_status(tmp_path / "none") == RunStatus()


# -- hangs


def read_hang(rank, folder):
    (found,) = read_run_status(folder).ranks
    return found.hang, found.state


def test_probe_result_of_a_phase_is_valid_until_the_phase_ends(run):
    make, (ranks) = run
    folder = make(20)
    (rank,) = ranks
    phase, since_ns = rank.pulse.current_phase()
    rank.clock.advance(40 * S)
    rank.pulse.record_stall(StallState.LONG, phase, since_ns, 7, "train.py(3): save")
    assert read_hang(rank, folder) == (Hang(hangs=False, location="train.py(3): save"), RunState.RECORDING)
    rank.pulse.record_stall(StallState.HUNG, phase, since_ns, 7, "train.py(4): \N{SNOWMAN}" + "x" * 300)
    hang, state = read_hang(rank, folder)
    assert (hang.hangs, hang.holds_gil, state) == (True, False, RunState.HUNG)
    assert hang.location.startswith("train.py(4): \N{SNOWMAN}xxx")
    rank.pulse.enter(Phase.FORWARD)
    assert read_hang(rank, folder) == (None, RunState.RECORDING)


def test_a_rank_that_could_not_look_closer_for_long_holds_its_gil(run, monkeypatch):
    """It says so itself: a rank that had no processor has not looked closer, either."""
    make, ranks = run
    folder = make(20)
    (rank,) = ranks
    phase, since_ns = rank.pulse.current_phase()
    rank.clock.advance(40 * S)
    rank.pulse.record_stall(StallState.SUSPECTED, phase, since_ns, 7)
    now_ns = rank.clock.unix_ns()
    monkeypatch.setattr(health.time, "time_ns", lambda: now_ns + 15 * S)
    assert read_hang(rank, folder) == (None, RunState.RECORDING)
    rank.pulse.record_stall(StallState.GIL_HELD, phase, since_ns, 7)
    assert read_hang(rank, folder) == (Hang(holds_gil=True), RunState.HUNG)
    start = read_run_status(folder).ranks[0].start
    stack = f'Thread 0x{7:016x} (most recent call first):\n  File "train.py", line 9 in hold\n'
    (folder / FOLDER / f"{start}{STACKS_SUFFIX}").write_text(stack)
    assert read_hang(rank, folder)[0].location.endswith("train.py(9): hold")


def test_hung_ranks_are_reported_with_who_waits_for_whom(run):
    make, ranks = run
    folder = make(20, 20, 20)
    for number, rank in enumerate(ranks):
        phase, since_ns = rank.pulse.current_phase()
        rank.pulse.record_stall(StallState.HUNG, phase, since_ns, 7)
        group = GroupState("default_pg", [0, 1, 2], 12 if number != 1 else 11, "all_reduce")
        stuck = StalledPhase("backward", True, 20, 0, 1, 2, "", [], [group])
        attempt = Attempt("run", 0, 1, f"2026-{number}")
        rank.pulse.write_sibling(STALL_SUFFIX, StallFile(Ranks(number), attempt, [stuck]).encoded())
    status = read_run_status(folder)
    assert [rank.rank for rank in status.ranks] == [1, 0, 2], "the one that others wait for comes first"
    (found,) = status.collectives
    assert (found.group, found.sequence, found.waiting, found.missing) == ("default_pg", 12, [0, 2], [1])
    ranks[1].clock.advance(MS)
    ranks[1].pulse.enter(Phase.FORWARD)
    assert read_run_status(folder).collectives == [], "it has gone on, and what it found is old"


# -- processes


def process_of(pid, space=None, monotonic_ns=None, start="none"):
    """Return the pulse of a process that has started just now."""
    monotonic_ns = time.monotonic_ns() if monotonic_ns is None else monotonic_ns
    space = pid_space() if space is None else space
    return PulseProcess(Ranks(), Attempt("run", 0, pid, start, "host"), monotonic_ns, time.time_ns(), space)


@pytest.fixture
def sleeper():
    command = [sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


linux = pytest.mark.skipif(not pid_space(), reason="only Linux lists its pids")


@linux
def test_a_process_runs_until_it_has_ended(sleeper, tmp_path):
    process = process_of(sleeper.pid)
    assert read_process_state(tmp_path, process) is ProcessState.RUNNING
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert read_process_state(tmp_path, process) is ProcessState.DEAD, "no process has waited for it yet"
    sleeper.wait()
    assert read_process_state(tmp_path, process) is ProcessState.DEAD


BUSY = "print(flush=True)\nimport os\nwhile True: os.getppid()"


@linux
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_process_that_is_stopped_for_moments_runs(tmp_path):
    """A process that is suspended at each of its system calls."""
    command = ["strace", "-o", os.devnull, sys.executable, "-S", "-c", BUSY]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tracer:
        tracer.stdout.readline()
        (pid,) = map(int, Path(f"/proc/{tracer.pid}/task/{tracer.pid}/children").read_text().split())
        found = {read_process_state(tmp_path, process_of(pid)) for _ in range(100)}
        os.kill(pid, signal.SIGKILL)
    assert found == {ProcessState.RUNNING}


@linux
def test_another_process_with_the_same_pid_is_not_the_one(sleeper, tmp_path):
    """It began after the pulse, whose process must have ended before."""
    assert read_process_state(tmp_path, process_of(sleeper.pid, monotonic_ns=0)) is ProcessState.DEAD


@linux
def test_process_of_another_machine_has_unknown_state(tmp_path):
    assert read_process_state(tmp_path, process_of(2**30, space="another.1")) is ProcessState.UNKNOWN


@linux
def test_in_another_container_of_this_machine_the_lock_tells(tmp_path):
    """Without a spool folder, nothing does."""
    machine = pid_space().partition(".")[0]
    assert read_process_state(tmp_path, process_of(2**30, space=f"{machine}.1")) is ProcessState.UNKNOWN
