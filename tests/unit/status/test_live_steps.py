"""status/live_steps.py: the figures, phases and steps of a run that is being watched."""

import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.pulse import pulse_recorder
from kinetoscope.pulse.layout import NUM_EXACT, Phase
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.pulse.snapshot import NUM_LAST
from kinetoscope.status.health import read_run_status
from kinetoscope.status.live_steps import MAX_PIECES, read_live_steps
from kinetoscope.testing import FakeClock

MS = 1_000_000


class Rank:
    """A rank whose steps a test makes: a wait for data, a backward pass, and other work."""

    def __init__(self, folder, rank=0, world_size=1):
        self.clock, self.num_steps = FakeClock(tick_ns=0), 0
        self.pulse = PulseRecorder(self.clock)
        self.pulse.open(folder, Ranks(rank, rank, world_size, world_size), Attempt("run", 0, 1, f"2026-{rank}", "host"))

    def step(self, count=1, data_ms=0, backward_ms=0, other_ms=1):
        for _ in range(count):
            for phase, time_ms in ((Phase.DATA_WAIT, data_ms), (Phase.BACKWARD, backward_ms), (Phase.OTHER, other_ms)):
                if time_ms:
                    self.pulse.enter(phase)
                    self.clock.advance(time_ms * MS)
            self.num_steps += 1
            self.pulse.end_step(Timestamp(batch=self.num_steps))


@pytest.fixture(autouse=True)
def no_memory(monkeypatch):
    monkeypatch.setattr(pulse_recorder, "read_resident_bytes", lambda: 3 << 20)
    monkeypatch.setattr(pulse_recorder, "read_device_bytes", lambda: None)


def read(folder):
    return read_live_steps(folder, read_run_status(folder))


def test_before_the_first_step_is_complete_nothing_is_shown(tmp_path):
    assert read(tmp_path) is None
    rank = Rank(tmp_path)
    assert read(tmp_path) is None
    rank.pulse.close()


def test_figures_are_medians_over_ranks_and_the_largest_memory(tmp_path):
    ranks = [Rank(tmp_path, number, 2) for number in range(2)]
    ranks[0].step(100, other_ms=10)
    ranks[1].step(99, other_ms=12)
    figures = {figure.name: figure.value for figure in read(tmp_path).figures}
    assert figures == {
        "Step time": "11.0 ms",
        "Over the run": "11.0 ms",
        "Step": "98 to 99",
        "Memory": "3.0 MiB at most",
    }
    for rank in ranks:
        rank.pulse.close()


def test_phases_are_those_of_the_last_steps_and_unwatched_ones_are_unknown(tmp_path):
    rank = Rank(tmp_path)
    rank.step(200, data_ms=100)
    rank.step(NUM_LAST, data_ms=6, backward_ms=3, other_ms=1)
    phases = {phase.name: phase for phase in read(tmp_path).phases}
    assert phases["data_wait"].label == "waiting for data"
    assert [phases[name].time_ns for name in ("data_wait", "backward", "other")] == [6 * MS, 3 * MS, MS]
    assert phases["data_wait"].share == pytest.approx(0.6)
    assert sum(phase.share or 0 for phase in phases.values()) == pytest.approx(1)
    assert phases["evaluation"].time_ns is None
    rank.pulse.close()


@pytest.mark.parametrize("num_steps", [1, 7, MAX_PIECES, MAX_PIECES + 1, NUM_EXACT + 900])
def test_pieces_are_all_steps_in_order_however_many_there_are(tmp_path, num_steps):
    rank = Rank(tmp_path)
    rank.step(num_steps, data_ms=1, other_ms=2)
    pieces = read(tmp_path).pieces
    assert len(pieces) <= MAX_PIECES + 1
    assert sum(piece.num_steps for piece in pieces) == num_steps
    assert [piece.step for piece in pieces[1:]] == [piece.last_step + 1 for piece in pieces[:-1]]
    assert {piece.mean_ns for piece in pieces} == {3 * MS}
    assert {piece.phases_ns[Phase.DATA_WAIT] for piece in pieces} == {MS}
    rank.pulse.close()


def test_what_is_no_pulse_hides_none(tmp_path):
    rank = Rank(tmp_path)
    rank.step(5)
    for name in ("2026-9.pulse", "x.pulses"):
        (tmp_path / "pulse" / name).write_bytes(b"KSPULSE\0" + b"\xff" * 5000)
    assert len(read(tmp_path).pieces) == 5
    rank.pulse.close()
    (tmp_path / "pulse" / "2026-0.pulse").write_bytes(b"")
    assert read(tmp_path) is None
