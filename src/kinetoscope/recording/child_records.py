"""recording: what child processes (dataloader workers) recorded into their parent's live folder. Files flow in, records
flow to the parent's cycle. Runs on the writer thread.
"""

import os
from pathlib import Path

from kinetoscope.formats.chunk import LiveProcess, LiveTrack, delete_read, read_live_folder
from kinetoscope.formats.record import Flag, Kind, Record, pack_records
from kinetoscope.recording.recorder import NameTable, ThreadRecords


def take_child_records(folder: Path, names: NameTable, began_ns: int, closed_ns: int) -> list[ThreadRecords]:
    """What every process but this one recorded in the window between two moments, with this process's name ids.

    A span that was open when the window closed is cut there. Files with nothing later in them are deleted, once their
    process has ended or gone on to the next one.
    """
    children = read_live_folder(folder, without_pid=os.getpid())
    taken = [_thread_records(child, track, names, began_ns, closed_ns) for child in children for track in child.tracks]
    for child in children:
        delete_read(folder, child.pid, closed_ns)
    return [it for it in taken if it.packed or it.num_dropped]


def _thread_records(
    child: LiveProcess, track: LiveTrack, names: NameTable, began_ns: int, closed_ns: int
) -> ThreadRecords:
    ids = [names.intern(it.name, it.categories) for it in child.names]
    cut = [it._replace(end=closed_ns, flags=Flag.CUT) for it in track.open_spans]
    in_window = [it for it in track.records + cut if began_ns <= it.begin <= closed_ns and it.name < len(ids)]
    packed = pack_records(_renamed(it, ids, closed_ns) for it in in_window)
    return ThreadRecords(track.tid, track.name, False, packed, track.num_dropped)


def _renamed(record: Record, ids: list[int], closed_ns: int) -> Record:
    series = ids[record.series] if record.kind == Kind.COUNTER and record.series < len(ids) else 0
    record = record._replace(name=ids[record.name], series=series)
    if record.kind == Kind.SPAN and record.end > closed_ns:
        return record._replace(end=closed_ns, flags=record.flags | Flag.CUT)
    return record
