"""Reading of pulses: all steps, in order, exactly or as sums, for files of any writer."""

import os

import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.errors import TraceFileError
from kinetoscope.pulse.layout import (
    BLOCK,
    COARSE_AT,
    FOLDER,
    NOW,
    NOW_AT,
    NUM_EXACT,
    SLOTS_AHEAD,
    STEPS_PER_FINE,
    SUFFIX,
    Phase,
)
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.pulse.pulses import find_pulses, read_pulse
from kinetoscope.testing import FakeClock

MS = 1_000_000


class Run:
    """A run whose pulse is written by a clock that the test moves."""

    def __init__(self, folder, rank=0, restart=0, start="20261126T000000-1-aa"):
        self.folder, self.clock = folder, FakeClock(tick_ns=0)
        self.pulse, self.num_steps = PulseRecorder(self.clock), 0
        self.pulse.open(folder, Ranks(rank, rank, 2, 2), Attempt("run", restart, os.getpid(), f"{start}{rank}", "host"))

    def step(self, duration_ns, phase=Phase.OTHER, samples=0):
        self.pulse.enter(phase)
        self.clock.advance(duration_ns)
        self.num_steps += 1
        self.pulse.end_step(Timestamp(batch=self.num_steps, epoch=self.num_steps // 10, sample=samples))

    def read(self):
        (pulses,) = find_pulses(self.folder).values()
        return pulses[0]


def test_each_step_has_its_number_its_time_and_its_phases(tmp_path):
    run = Run(tmp_path)
    run.step(3 * MS)
    run.step(5 * MS, Phase.DATA_WAIT)
    run.step(7 * MS)
    pulse = run.read()
    assert [(row.step, row.num_steps, row.duration_ns) for row in pulse.rows] == [
        (0, 1, 3 * MS),
        (1, 1, 5 * MS),
        (2, 1, 7 * MS),
    ]
    assert [row.by_phase[Phase.DATA_WAIT] for row in pulse.rows] == [None, 5 * MS, 0], "before it was watched"
    assert [row.by_phase[Phase.FORWARD] for row in pulse.rows] == [None] * 3
    assert pulse.rows[1].begin_ns - pulse.rows[0].begin_ns == 3 * MS
    assert pulse.rows[2].begin_ns == run.clock.unix_ns() - 7 * MS
    run.pulse.close()


def test_current_activity_is_shown_with_memory_and_speed(tmp_path):
    run = Run(tmp_path)
    for count in range(1, 40):
        run.step(100 * MS, samples=count * 8)
    run.pulse.enter(Phase.EVALUATION)
    run.clock.advance(MS)
    pulse = run.read().header
    assert (pulse.phase, pulse.num_steps, pulse.has_ended) == (Phase.EVALUATION, 39, False)
    assert pulse.phase_since_ns == pulse.heartbeat_ns == run.clock.unix_ns() - MS
    assert pulse.samples_per_s == pytest.approx(80)
    assert (pulse.tokens_per_s, pulse.loss, pulse.device_bytes) == (None, None, None)
    assert pulse.resident_bytes > 10**6
    run.pulse.close()
    assert run.read().header.has_ended


def test_while_it_is_recorded_it_looks_more_seldom(tmp_path):
    """Functions that Python calls are in a recording with stacks."""
    run, looked = Run(tmp_path), []
    run.pulse._write_gauges = lambda rates: looked.append(run.num_steps)
    for number in range(1, 41):
        run.clock.advance(500 * MS)
        run.num_steps = number
        run.pulse.end_step(Timestamp(batch=number), is_recorded=number <= 30)
    assert looked == [20, 32, 34, 36, 38, 40]
    del run.pulse._write_gauges
    run.pulse.close()


def test_old_steps_are_sums_of_which_none_is_lost(tmp_path):
    run, num_steps = Run(tmp_path), NUM_EXACT + 70 * STEPS_PER_FINE + 5
    for number in range(num_steps):
        run.step(MS + number, Phase.FORWARD if number % 2 else Phase.BACKWARD)
    pulse = run.read()
    assert sum(row.num_steps for row in pulse.rows) == pulse.header.num_steps == num_steps
    assert sum(row.duration_ns for row in pulse.rows) == sum(MS + number for number in range(num_steps))
    assert [row.num_steps for row in pulse.rows[:3]] == [6 * STEPS_PER_FINE, STEPS_PER_FINE, STEPS_PER_FINE]
    assert [row.step for row in pulse.rows] == sorted(row.step for row in pulse.rows)
    first = pulse.rows[0]
    assert (first.min_duration_ns, first.max_duration_ns, first.slowest_step) == (
        MS,
        MS + 6 * STEPS_PER_FINE - 1,
        6 * STEPS_PER_FINE - 1,
    )
    assert first.squares == pytest.approx(sum((MS + number) ** 2 for number in range(6 * STEPS_PER_FINE)))
    assert first.by_phase[Phase.FORWARD] is None, "the first step did not know of it"
    second = pulse.rows[1]
    assert second.by_phase[Phase.FORWARD] + second.by_phase[Phase.BACKWARD] == second.duration_ns
    run.pulse.close()


def test_a_pulse_that_was_being_written_is_read_and_says_so(tmp_path):
    run = Run(tmp_path)
    for _ in range(NUM_EXACT + 3):
        run.step(MS)
    (path,) = (tmp_path / FOLDER).glob("*.pulse")
    content = bytearray(path.read_bytes())
    (sequence, *_) = NOW.unpack_from(content, NOW_AT)
    content[NOW_AT : NOW_AT + 8] = (sequence + 1).to_bytes(8, "little")
    run.pulse.close()
    path.write_bytes(content)
    pulse = run.read()
    assert sum(row.num_steps for row in pulse.rows) == NUM_EXACT + 2
    assert pulse.notes == [
        f"Of {NUM_EXACT + 3:,} steps, 1 cannot be read.",
        "It was being written when it was read, or when its process was killed.",
    ]


def test_last_start_of_each_rank_and_attempt_is_found(tmp_path):
    for rank, restart, start in ((0, 0, "b"), (0, 0, "a"), (1, 0, "a"), (0, 1, "c")):
        run = Run(tmp_path, rank, restart, start)
        run.step(MS)
        run.pulse.close()
    found = find_pulses(tmp_path)
    starts = {attempt: [pulse.header.process.attempt.start for pulse in pulses] for attempt, pulses in found.items()}
    assert starts == {0: ["b0", "a1"], 1: ["c0"]}


def test_only_its_user_can_read_a_pulse_and_it_is_small_once_the_run_is_over(tmp_path):
    run = Run(tmp_path)
    (path,) = (tmp_path / FOLDER).glob("*.pulse")
    assert (path.stat().st_mode & 0o777, path.stat().st_size) == (0o600, 2_097_120)
    run.pulse.close()
    run.pulse.close()
    assert path.stat().st_size < 400_000
    assert run.read().rows == []


def damaged(content, how):
    if how == "cut":
        return content[:5000]
    if how == "other version":
        return content[:8] + b"\2" + content[9:]
    if how == "no process":
        return content[:512] + b"\xff" * 4 + content[516:]
    if how == "impossible numbers":
        return content[: NOW_AT + 8] + b"\xff" * 40 + content[NOW_AT + 48 :]
    return b"x" * len(content)


@pytest.mark.parametrize("how", ["cut", "other version", "no process", "impossible numbers", "another file"])
def test_invalid_pulse_is_a_reported_error_and_hides_no_other(tmp_path, how):
    for rank in range(2):
        run = Run(tmp_path, rank)
        run.step(MS)
        run.pulse.close()
    first, _ = sorted((tmp_path / FOLDER).glob("*.pulse"))
    first.write_bytes(damaged(first.read_bytes(), how))
    with pytest.raises(TraceFileError, match=r"pulse"):
        read_pulse(RunFolder(tmp_path), f"{FOLDER}/{first.name}")
    assert [pulse.header.process.ranks.rank for pulse in find_pulses(tmp_path)[0]] == [1]


def test_nothing_is_followed_out_of_the_folder(tmp_path):
    run = Run(tmp_path / "other")
    run.pulse.close()
    (path,) = (tmp_path / "other" / FOLDER).glob("*.pulse")
    (tmp_path / "run" / FOLDER).mkdir(parents=True)
    (tmp_path / "run" / FOLDER / f"a{SUFFIX}").symlink_to(path)
    os.mkfifo(tmp_path / "run" / FOLDER / f"b{SUFFIX}")
    assert find_pulses(tmp_path / "run") == {}
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / FOLDER).symlink_to(tmp_path / "other" / FOLDER)
    assert find_pulses(tmp_path / "linked") == {}


def test_disk_space_for_later_steps_is_ensured_without_fallocate(tmp_path, monkeypatch):
    """As on macOS. Without that room, a step on a full disk would end the process by SIGBUS."""
    monkeypatch.delattr(os, "posix_fallocate")
    run = Run(tmp_path)
    for _ in range(4 * NUM_EXACT):
        run.step(MS)
    run.step(2_000 * MS)  # room is made once a second
    (file,) = (tmp_path / FOLDER).glob(f"*{SUFFIX}")
    with open(file, "rb") as stream:
        first_hole = os.lseek(stream.fileno(), 0, os.SEEK_HOLE)
    num_places = (first_hole - COARSE_AT) // BLOCK.size
    assert num_places > SLOTS_AHEAD + 100
    assert run.read().rows[-1].step == 4 * NUM_EXACT
    run.pulse.close()
