"""Perfetto's trace format: its uuids, and a writer of packets that C encodes.

`src/native/rewrite/perfetto.c` encodes them. Every span is two packets, its begin and its end, on a track of its thread
or stream. A counter has a track for each of its series, in the group of its subject: the part of its name before the
first slash.

Format: protos/perfetto/trace/trace_packet.proto and its imports.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

from kinetoscope.native import native

Event = dict[str, Any]

SUFFIXES = (".pftrace", ".perfetto-trace")
BEGINNING = b"\n\x04\x50\x01\x68\x01"
"""The first packet of every file, which declares that sequence 1 starts without state."""

_COUNTER_BIT = 1 << 63
_FNV_BASIS, _FNV_PRIME = 14695981039346656037, 1099511628211


def process_uuid(pid: int) -> int:
    """Return the uuid of a process in the trace."""
    return (pid + 1 & 0x3FFFFFFF) << 32


def track_uuid(pid: int, tid: int) -> int:
    """Return the uuid of a thread or stream of a process in the trace."""
    return process_uuid(pid) | tid


def counter_uuid(hashed: int, pid: int) -> int:
    """Return the uuid of a series or group of counters of a process in the trace."""
    return (hashed ^ process_uuid(pid)) * _FNV_PRIME & 2**64 - 1 | _COUNTER_BIT


@dataclass(frozen=True, slots=True)
class CounterTracks:
    """The uuids of series that are not directly in the group of their subject."""

    alone: frozenset[int] = frozenset()
    """Directly below the process, because their subject has no other series."""
    unchanged: frozenset[int] = frozenset()
    """In a group within the subject's group, because their value never changes."""


class PerfettoWriter:
    """A writer of a Perfetto trace: encoded packets, and the names of their processes and threads.

    The format has no field for Kinetoscope's header, nor for unknown fields of events.
    """

    base_ns = 0
    """Times are unix nanoseconds."""

    counter_tracks = CounterTracks()
    """The places of all counters that will be written."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._num_sequences = 1
        stream.write(BEGINNING)

    def begin_sequence(self) -> int:
        """Return the number of a new sequence of packets, which numbers its names itself."""
        self._num_sequences += 1
        return self._num_sequences

    def write_packets(self, packets: bytes | bytearray | memoryview) -> None:
        """Add encoded packets of a sequence from `begin_sequence`."""
        self._stream.write(packets)

    def write(self, events: Iterable[Event]) -> None:
        """Add the names and the order of processes and threads, which are in metadata events."""
        described: dict[tuple[int, int, int], dict[str, Any]] = {}
        for event in events:
            kind, _, field = event["name"].partition("_")
            pid, tid = event["pid"], event["tid"]
            key = (process_uuid(pid), pid, 0) if kind == "process" else (track_uuid(pid, tid), pid, tid)
            described.setdefault(key, {})[field] = event["args"].get(field)
        for (uuid, pid, tid), about in described.items():
            name = str(about.get("name", "")).encode(errors="replace")
            self._stream.write(native.track_packet(uuid, process_uuid(pid), pid, tid, name, about.get("sort_index")))


def fnv(key: bytes) -> int:
    """Return the FNV hash of some bytes; `text/bytes.h` computes the same in C."""
    number = _FNV_BASIS
    for byte in key:
        number = (number ^ byte) * _FNV_PRIME & 2**64 - 1
    return number
