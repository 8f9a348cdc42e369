"""recording: what worker processes recorded. Their files in the live folder flow in; their threads' records flow out,
with this process's name ids.

A worker opens and closes no window: it records while the parent's control says so, and the parent reads what it left
when a window has closed. Runs on the writer thread.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kinetoscope.formats.live_records import LiveTrack, delete_read, live_pids, read_live_folder
from kinetoscope.formats.record import Flag, Kind, Record, pack_records
from kinetoscope.recording.recorder import NameTable, ThreadRecords


def take_child_records(folder: Path, names: NameTable, began_ns: int, closed_ns: int) -> list[ThreadRecords]:
    """What every process but this one recorded in the window between two moments, with this process's name ids.

    A span that was open when the window closed is cut there.
    """
    taken = []
    for child in read_live_folder(folder, without_pid=os.getpid()).processes:
        ids = [names.intern(it.name, it.categories) for it in child.names]
        taken += [child_records_in_window(track, ids, began_ns, closed_ns) for track in child.tracks]
    return [it for it in taken if it.num_records or it.num_dropped]


def child_records_in_window(track: LiveTrack, ids: Sequence[int], began_ns: int, closed_ns: int) -> ThreadRecords:
    """What a worker process's thread recorded in the window between two moments. Each record belongs to the window in
    which it began; a span that ended later, or is still open, is cut at the window's end.

    ``ids`` are the ids by which the names of the worker's records are to go.
    """
    packed = pack_records(_renamed(it, ids, closed_ns) for it in _in_window(track, len(ids), began_ns, closed_ns))
    num_dropped = track.num_dropped_between(began_ns, closed_ns)
    return ThreadRecords.of(track.tid, track.name, False, packed, num_dropped)


def delete_child_records(folder: Path, closed_ns: int) -> None:
    """Deletes the files of other processes with nothing in them that was recorded after a moment, once their process
    has ended or gone on to the next one."""
    for pid in live_pids(folder) - {os.getpid()}:
        delete_read(folder, pid, closed_ns)


def _in_window(track: LiveTrack, num_names: int, began_ns: int, closed_ns: int) -> Iterator[Record]:
    """The records that began in a window; spans open at its end are cut there."""
    for record in track.records():
        if began_ns <= record.begin <= closed_ns and record.name < num_names:
            yield record
    for record in track.open_spans:
        if began_ns <= record.begin <= closed_ns and record.name < num_names:
            yield record._replace(end=closed_ns, flags=Flag.CUT)


def _renamed(record: Record, ids: Sequence[int], closed_ns: int) -> Record:
    series = ids[record.series] if record.kind == Kind.COUNTER and record.series < len(ids) else 0
    record = record._replace(name=ids[record.name], series=series)
    if record.kind == Kind.SPAN and record.end > closed_ns:
        return record._replace(end=closed_ns, flags=record.flags | Flag.CUT)
    return record
