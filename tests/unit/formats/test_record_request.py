"""A request to record has numbers only, and one that is not quite right is none."""

import os
import struct

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.formats.record_request import (
    REQUEST_BYTES,
    RecordRequest,
    decode_request,
    make_request_file,
    read_request,
    request_sequence,
    validate_ranks,
    write_request,
)
from kinetoscope.native import native
from kinetoscope.pulse.layout import FILE_BYTES, Phase, WakeReason

REQUEST = RecordRequest(7, 10, 1234, 1_795_000_000_000_000_000, frozenset([0, 3, 2047]))


@pytest.fixture
def path(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    make_request_file(folder)
    make_request_file(folder)  # another rank of the node
    os.close(folder)
    return tmp_path / "record.request"


@pytest.mark.parametrize("ranks", [None, frozenset([0]), frozenset([0, 3, 2047])])
def test_a_request_comes_back_as_it_was_written(path, ranks):
    written = RecordRequest(7, 10, 1234, 17, ranks)
    assert read_request(str(path)) is None, "no request yet"
    write_request(str(path), lambda before: written)
    assert read_request(str(path)) == written
    assert read_request(os.fsencode(path)) == written
    assert request_sequence(str(path)) == 7
    assert written.is_for(3) is (ranks is None or 3 in ranks)
    assert path.stat().st_size == REQUEST_BYTES


def damaged(at, value):
    content = bytearray(REQUEST.encoded())
    content[at : at + len(value)] = value
    return bytes(content)


def signed(**changes):
    """With a right checksum and a wrong number."""
    fields = {"sequence": 7, "num_steps": 10, "first_step": 5, "requested_unix_ns": 0, "ranks": None}
    return RecordRequest(**fields | changes).encoded()


DAMAGED = {
    "nothing": b"",
    "zeros": bytes(REQUEST_BYTES),
    "ones": b"\xff" * REQUEST_BYTES,
    "text": b"record everything\n".ljust(REQUEST_BYTES),
    "too short": REQUEST.encoded()[:-1],
    "too long": REQUEST.encoded() + b"\0",
    "far too long": REQUEST.encoded() + bytes(1 << 20),
    "another magic": damaged(0, b"KSPULSE\0"),
    "another step": damaged(24, struct.pack("<q", 99)),
    "more steps": damaged(12, struct.pack("<I", 11)),
    "another rank": damaged(60, b"\xff"),
    "no checksum": damaged(REQUEST_BYTES - 8, bytes(8)),
    "no number": signed(sequence=0),
    "no steps": signed(num_steps=0),
    "101 steps": signed(num_steps=101),
    "all steps": signed(num_steps=0xFFFF_FFFF),
    "a step before the first": signed(first_step=-1),
    "a step that never comes": signed(first_step=1 << 62),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_or_excessive_request_counts_as_none(path, kind):
    path.write_bytes(DAMAGED[kind])
    assert read_request(str(path)) is None
    assert decode_request(DAMAGED[kind]) is None


def hostile(kind, path):
    """Make the file one that may not be obeyed, though what is in it is right."""
    content = path.with_name("other")
    content.write_bytes(REQUEST.encoded())
    content.chmod(0o600)
    path.unlink()
    if kind == "a link":
        path.symlink_to(content)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path, 0o600)
    elif kind == "writable by others":
        content.rename(path)
        path.chmod(0o622)
    elif kind == "writable by the group":
        content.rename(path)
        path.chmod(0o620)
    elif kind == "somebody else's":
        if os.geteuid() != 0:
            pytest.skip("giving files away needs root")
        content.rename(path)
        os.chown(path, 12345, 12345)
    else:
        assert kind == "not there"


HOSTILE = [
    *("a link", "a folder", "a pipe", "writable by others", "writable by the group", "somebody else's", "not there"),
]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_others_may_have_written_is_none(path, kind):
    hostile(kind, path)
    assert read_request(str(path)) is None
    assert request_sequence(str(path)) == 0
    with pytest.raises(OSError, match=r"."):
        write_request(str(path), lambda before: REQUEST)


NEVER = (1 << 62,) * len(Phase)


def test_a_thread_that_waits_is_woken_by_a_request_and_by_each_only_once(path):
    writer = native.PulseWriter(bytearray(FILE_BYTES))
    writer.watch(os.fsencode(path))
    write_request(str(path), lambda before: REQUEST)
    assert writer.wait(NEVER, 0, 60_000_000_000, 0) == WakeReason.REQUESTED
    assert writer.wait(NEVER, 0, 1_500_000_000, REQUEST.sequence) == WakeReason.DUE
    writer.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_thread_that_waits_is_not_woken_by_a_file_of_others(path, name):
    hostile(name, path)
    writer = native.PulseWriter(bytearray(FILE_BYTES))
    writer.watch(os.fsencode(path))
    assert writer.wait(NEVER, 0, 300_000_000, 0) == WakeReason.DUE
    writer.close()


def test_waiting_thread_wakes_once_for_a_long_phase_and_at_the_end(path):
    writer = native.PulseWriter(bytearray(FILE_BYTES))
    writer.watch(b"")
    limits = (0,) * len(Phase)
    assert writer.wait(limits, 0, 60_000_000_000, 0) == WakeReason.STALLED
    writer.stop_waiting()
    assert writer.wait(limits, 0, 60_000_000_000, 0) == WakeReason.STOPPED
    writer.close()


def test_ranks_that_a_request_cannot_name_are_refused():
    assert validate_ranks([0, 2047]) == {0, 2047}
    for ranks in ([], [2048], [-1]):
        with pytest.raises(SettingsError, match="--ranks"):
            validate_ranks(ranks)
