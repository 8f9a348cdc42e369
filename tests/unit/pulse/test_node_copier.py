"""Pulses of a run on a network file system are in local storage; one rank of a node copies them all."""

import os
from pathlib import Path

import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.pulse import node_copier, pulse_recorder
from kinetoscope.pulse.layout import FOLDER
from kinetoscope.pulse.node_copier import find_copied_pulses, local_folder
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.pulse.pulses import find_pulse, find_pulses
from kinetoscope.testing import FakeClock
from support.polling import wait_for


@pytest.fixture
def on_network(monkeypatch, tmp_path):
    """The run's folder, which is taken for one on a network file system."""
    monkeypatch.setattr(pulse_recorder, "is_on_network", lambda path: True)
    monkeypatch.setattr(node_copier, "BETWEEN_COPIES_S", 0.02)
    monkeypatch.setattr(node_copier.tempfile, "tempdir", str(tmp_path))
    return tmp_path / "run"


def open_pulse(folder, rank):
    pulse = PulseRecorder(FakeClock())
    pulse.open(folder, Ranks(rank, rank, 2, 2), Attempt("run", 0, os.getpid(), f"20261126T000000-1-{rank}", "host"))
    return pulse


def steps_found(folder):
    return [pulse.header.num_steps for pulses in find_pulses(folder).values() for pulse in pulses]


def take(pulse, count):
    for number in range(count):
        pulse.end_step(Timestamp(batch=number + 1))


def test_one_rank_copies_for_all_and_another_continues_when_it_is_gone(on_network):
    first, second = (open_pulse(on_network, rank) for rank in range(2))
    take(first, 3)
    take(second, 4)
    wait_for(lambda: steps_found(on_network) == [3, 4], lambda: steps_found(on_network))
    assert len(list((on_network / FOLDER).glob("*.pulses"))) == 1
    of_second = find_pulse(on_network, "20261126T000000-1-1")
    assert of_second is not None
    assert len(of_second.rows) == 4
    assert find_pulse(on_network, "20261126T000000-1-2") is None
    first.close()
    take(second, 5)
    wait_for(lambda: steps_found(on_network) == [3, 9], lambda: steps_found(on_network))
    second.close()
    assert sorted(path.suffix for path in (on_network / FOLDER).glob("*.pulse")) == [".pulse", ".pulse"]
    assert all(pulse.header.has_ended for pulse in find_pulses(on_network)[0])
    assert not list(on_network.parent.glob("kinetoscope-pulse-*")), "nothing is left in local storage"


def test_a_folder_that_somebody_else_has_made_there_is_not_used(on_network):
    expected = local_folder(on_network)
    expected.rmdir()
    expected.mkdir(0o777)
    expected.chmod(0o777)
    found = local_folder(on_network)
    assert found != expected
    assert found.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [b"", b"KSPULSES", b"KSPULSES\xff\xff\xff\xff", b"KSPULSES\1\0\0\0\xff\xff\0\0x"])
def test_a_copy_that_was_cut_or_is_none_has_what_is_whole(content, on_network):
    Path(on_network / FOLDER).mkdir(parents=True)
    copy = on_network / FOLDER / "x.pulses"
    copy.write_bytes(content)
    with copy.open("rb") as stream:
        assert sum(length for _, length in find_copied_pulses(stream.fileno())) == content.endswith(b"x")
    assert find_pulses(on_network) == {}
