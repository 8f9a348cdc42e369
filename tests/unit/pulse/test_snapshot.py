"""Current state of many ranks, from headers and last steps: of the last launch, for files of any writer."""

import random
from contextlib import closing

import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.pulse import node_copier, pulse_recorder, snapshot
from kinetoscope.pulse.layout import ABOUT_AT, FOLDER, GAUGES, GAUGES_AT, NOW, NOW_AT, NUM_EXACT, SUFFIX, Phase
from kinetoscope.pulse.node_copier import COPY_SUFFIX
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.pulse.pulses import find_pulses, read_pulse
from kinetoscope.pulse.snapshot import NUM_LAST, read_run_snapshot
from kinetoscope.testing import FakeClock

MS = 1_000_000


class Rank:
    """A rank whose clock the test moves; all begin at the same moment unless it was moved ``later_ns``."""

    def __init__(self, folder, rank=0, world_size=2, restart=0, start="a", later_ns=0):
        self.folder, self.clock, self.num_steps = folder, FakeClock(tick_ns=0), 0
        self.clock.advance(later_ns)
        self.pulse = PulseRecorder(self.clock)
        attempt = Attempt("run", restart, 1, f"2026-{start}-{rank}", "host")
        self.pulse.open(folder, Ranks(rank, rank, world_size, world_size), attempt)

    def step(self, duration_ns, count=1):
        for _ in range(count):
            self.clock.advance(duration_ns)
            self.num_steps += 1
            self.pulse.end_step(Timestamp(batch=self.num_steps))

    def close(self):
        self.pulse.close()


def ranks_seen(folder):
    return [snapshot.header.process.ranks.rank for snapshot in read_run_snapshot(folder).last]


def test_a_rank_s_step_and_how_long_steps_take_now_and_took_over_the_run(tmp_path):
    rank = Rank(tmp_path)
    rank.step(10 * MS, 100)
    rank.step(30 * MS, NUM_LAST)
    rank.pulse.enter(Phase.EVALUATION)
    (snapshot,) = read_run_snapshot(tmp_path).last
    assert (snapshot.step, snapshot.header.num_steps, snapshot.step_ns) == (99 + NUM_LAST, 100 + NUM_LAST, 30 * MS)
    assert snapshot.run_step_ns == pytest.approx((100 * 10 + NUM_LAST * 30) * MS / (100 + NUM_LAST))
    assert snapshot.header.phase is Phase.EVALUATION
    rank.close()


def test_before_the_first_step_is_complete_nothing_is_known_of_steps(tmp_path):
    rank = Rank(tmp_path)
    rank.clock.advance(5 * MS)
    (snapshot,) = read_run_snapshot(tmp_path).last
    assert (snapshot.step, snapshot.step_ns, snapshot.run_step_ns) == (None, None, None)
    rank.close()


@pytest.mark.parametrize("num_steps", [NUM_EXACT - 3, NUM_EXACT + 5, NUM_EXACT + 64 * 64 + 200, 3 * NUM_EXACT + 17])
def test_long_run_keeps_its_last_steps_and_totals(num_steps, tmp_path):
    """They go round in a ring, and the first one is in a block."""
    rank = Rank(tmp_path)
    rank.step(4 * MS, num_steps - 40)
    rank.step(2 * MS, 40)
    (snapshot,) = read_run_snapshot(tmp_path).last
    assert (snapshot.step, snapshot.step_ns) == (num_steps - 1, 2 * MS)
    assert snapshot.run_step_ns == pytest.approx((4 * (num_steps - 40) + 2 * 40) * MS / num_steps)
    rank.close()
    assert read_run_snapshot(tmp_path).last[0].header.has_ended


def test_the_header_is_that_of_the_whole_pulse(tmp_path):
    rank = Rank(tmp_path)
    rank.step(600 * MS, 4)
    (snapshot,) = read_run_snapshot(tmp_path).last
    ((pulse,),) = find_pulses(tmp_path).values()
    assert snapshot.header == pulse.header
    assert snapshot.run_step_ns == sum(row.duration_ns for row in pulse.rows) / len(pulse.rows)
    rank.close()


def test_restarted_run_shows_its_last_attempt(tmp_path):
    ranks = [Rank(tmp_path, rank, restart=0) for rank in range(2)] + [Rank(tmp_path, 0, restart=1, start="b")]
    (snapshot,) = read_run_snapshot(tmp_path).last
    assert snapshot.header.process.attempt.restart == 1
    for rank in ranks:
        rank.close()


def test_files_of_an_earlier_launch_are_ignored(tmp_path):
    """The second launch has fewer ranks, and its rank 1 has not begun yet."""
    first = [Rank(tmp_path, rank, world_size=3, later_ns=rank * MS) for rank in range(3)]
    for rank in first:
        rank.step(10 * MS, 10)
    second = Rank(tmp_path, 0, world_size=2, start="b", later_ns=1000 * MS)
    assert ranks_seen(tmp_path) == [0]
    late = Rank(tmp_path, 1, world_size=2, start="b", later_ns=9000 * MS)
    assert ranks_seen(tmp_path) == [0, 1]
    for rank in (*first, second, late):
        rank.close()


def test_rank_without_a_heartbeat_from_its_start_is_detected(tmp_path):
    """One that began long before the others is no leftover, as nothing was launched twice."""
    ranks = [Rank(tmp_path, 1), Rank(tmp_path, 0, later_ns=100_000 * MS)]
    ranks[1].step(10 * MS, 10)
    assert ranks_seen(tmp_path) == [0, 1]
    for rank in ranks:
        rank.close()


def test_copies_on_a_network_file_system_are_of_the_moment_when_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr(pulse_recorder, "is_on_network", lambda path: True)
    monkeypatch.setattr(node_copier, "BETWEEN_COPIES_S", 3600)
    monkeypatch.setattr(node_copier.tempfile, "tempdir", str(tmp_path))
    run = tmp_path / "run"
    with closing(Rank(run, 0)) as first, closing(Rank(run, 1)) as second:
        for rank in (first, second):
            rank.step(7 * MS, 50)
        first.pulse._copies._copy()
        (copy,) = (run / FOLDER).glob(f"*{COPY_SUFFIX}")
        found = read_run_snapshot(run).last
        assert [(snapshot.step, snapshot.step_ns) for snapshot in found] == [(49, 7 * MS)] * 2
        assert {snapshot.read_ns for snapshot in found} == {copy.stat().st_mtime_ns}
        whole = copy.read_bytes()
        for length in range(0, len(whole), 977):
            copy.write_bytes(whole[:length])
            assert len(read_run_snapshot(run).last) <= 2
    assert [snapshot.header.has_ended for snapshot in read_run_snapshot(run).last] == [True, True]


def test_pulse_in_creation_is_not_reported_as_damaged(tmp_path):
    rank = Rank(tmp_path)
    (tmp_path / FOLDER / f"new{SUFFIX}").write_bytes(bytes(500_000))
    found = read_run_snapshot(tmp_path)
    assert (len(found.last), found.notes) == (1, [])
    rank.close()


def test_unread_runs_have_unknown_values(tmp_path):
    rank = Rank(tmp_path)
    (path,) = (tmp_path / FOLDER).glob(f"*{SUFFIX}")
    with path.open("r+b") as file:
        file.seek(GAUGES_AT)
        file.write(bytes(GAUGES.size))
    header = read_run_snapshot(tmp_path).last[0].header
    assert (header.loss, header.resident_bytes, header.samples_per_s) == (None, None, None)
    rank.close()


def test_latest_of_very_many_files_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "MAX_FILES", 3)
    ranks = [Rank(tmp_path, rank, world_size=5, start=f"{rank}") for rank in range(5)]
    found = read_run_snapshot(tmp_path)
    assert [snapshot.header.process.ranks.rank for snapshot in found.last] == [2, 3, 4]
    assert found.notes == [f"There are 5 pulses in {tmp_path / FOLDER}: only the last 3 were looked at."]
    for rank in ranks:
        rank.close()


def test_any_changed_bytes_are_read_or_reported_in_a_sentence(tmp_path):
    rank = Rank(tmp_path)
    rank.step(10 * MS, 50)
    rank.close()
    (path,) = (tmp_path / FOLDER).glob(f"*{SUFFIX}")
    whole, chance = path.read_bytes(), random.Random(1)
    places = [*range(NOW_AT + NOW.size), *range(GAUGES_AT, GAUGES_AT + GAUGES.size), *range(ABOUT_AT, ABOUT_AT + 300)]
    for _ in range(1000):
        content = bytearray(whole)
        for _ in range(chance.choice((1, 2, 8))):
            content[chance.choice(places)] = chance.randrange(256)
        path.write_bytes(content)
        found = read_run_snapshot(tmp_path)
        assert len(found.last) + len(found.notes) == 1 or not bytes(content).startswith(whole[:8])


def test_a_pulse_cut_anywhere_is_read_without_an_error(tmp_path):
    rank = Rank(tmp_path)
    rank.step(10 * MS, 50)
    rank.close()
    (path,) = (tmp_path / FOLDER).glob(f"*{SUFFIX}")
    whole = path.read_bytes()
    for length in [*range(0, 9000, 61), len(whole) // 2]:
        path.write_bytes(whole[:length])
        found = read_run_snapshot(tmp_path)
        assert found.last == []
        assert len(found.notes) == bool(length)


def test_a_folder_without_pulses_and_one_behind_a_link_have_none(tmp_path):
    assert read_run_snapshot(tmp_path) == snapshot.RunSnapshot()
    Rank(tmp_path / "elsewhere").close()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FOLDER).symlink_to(tmp_path / "elsewhere" / FOLDER)
    found = read_run_snapshot(tmp_path / "run")
    assert found.last == []
    assert len(found.notes) == 1
    assert read_pulse(RunFolder(tmp_path / "elsewhere"), f"{FOLDER}/2026-a-0{SUFFIX}").header.has_ended
