"""merge: where counters stand in Perfetto. What is known of each file flows in; which series stand apart flows out.

Only all files of a rank together tell which numbers never change, and which series is the only one of its subject.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from kinetoscope.formats.chrome import Event
from kinetoscope.formats.perfetto import CounterPlaces, counter_numbers, counter_uuid, series_hash, subject_hash
from kinetoscope.formats.tracks import plain_pid
from kinetoscope.merge.input_file import CounterSeries, InputFile

_FACT = struct.Struct("<QQdII")  # CounterFact in `src/native/rewrite/counters.h`
_MOST_SERIES = 1 << 16  # of a file or a rank; more than anybody reads


def read_counter_facts(facts: bytes | None, pids: Sequence[Any]) -> list[CounterSeries] | None:
    """What C says of the counters of a file; ``pids`` are those of its tracks."""
    if facts is None:
        return None
    return [
        CounterSeries(pids[track], hashed, subject, None if has_changed else value)
        for hashed, subject, value, track, has_changed in _FACT.iter_unpack(facts)
    ]


def find_counters(events: Iterable[Event]) -> list[CounterSeries] | None:
    """The same from the events themselves; None where there are too many."""
    values: dict[tuple[Any, str, str], float | None] = {}
    for event in events:
        if event.get("ph") == "C" and "ts" in event:
            for series, value in counter_numbers(event):
                key = plain_pid(event.get("pid")), str(event.get("name", "")), series
                values[key] = value if values.setdefault(key, value) == value else None
    if len(values) > _MOST_SERIES:
        return None
    return [
        CounterSeries(pid, series_hash(name, series), subject_hash(name), value)
        for (pid, name, series), value in values.items()
    ]


def counter_places(files: Sequence[InputFile]) -> CounterPlaces:
    """Where the counters of all files stand. Those of a rank with too many stand in the group of their subject."""
    alone: set[int] = set()
    unchanged: set[int] = set()
    for rank, found in _by_rank(files).items():
        sizes = Counter(series.subject for series in found)
        for series in found:
            if series.value is not None:
                unchanged.add(counter_uuid(series.hashed, rank))
            elif sizes[series.subject] == 1:
                alone.add(counter_uuid(series.hashed, rank))
    return CounterPlaces(frozenset(alone), frozenset(unchanged))


def _by_rank(files: Sequence[InputFile]) -> dict[int, list[CounterSeries]]:
    """The series of each rank, each once; not of those of which too little is known."""
    by_rank: dict[int, dict[int, CounterSeries]] = defaultdict(dict)
    unknown = {rank for file in files if file.counters is None for rank in file.ranks}
    for file in files:
        for series in file.counters or ():
            found = by_rank[file.rank_of(series.pid)]
            is_same = found.get(series.hashed, series).value == series.value
            found[series.hashed] = series if is_same else series._replace(value=None)
    unknown |= {rank for rank, found in by_rank.items() if len(found) > _MOST_SERIES}
    return {rank: list(found.values()) for rank, found in by_rank.items() if rank not in unknown}
