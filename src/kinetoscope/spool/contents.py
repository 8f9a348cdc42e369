"""Contents of a spool folder: the records of each thread, and a sentence for each damaged part.

Other files than a damaged one are read nevertheless. Spooled records are unpacked each time they are read. Child
processes open no window: they record while their parent does, and the parent collects their records when its window has
closed.
"""

import os
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from kinetoscope.core.job.ranks import is_process_alive
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.errors import TraceFileError
from kinetoscope.spool.chunk import (
    MAX_CHUNK_BYTES,
    ChunkHeader,
    RecordName,
    SpoolEntry,
    TrackHeader,
    num_chunk_records,
    read_chunk,
    read_names,
    read_spool,
    read_track,
    readable_records,
)
from kinetoscope.spool.lost_chunks import ChunkSummary
from kinetoscope.spool.record import (
    MARK,
    RECORD_BYTES,
    Flag,
    Kind,
    Record,
    ThreadRecords,
    ThreadSlice,
    TrackMark,
    pack_records,
    record_columns,
    split_by_thread,
    unpack_records,
)

_FILE_NAME = re.compile(r"([0-9]{1,10})(?:-[0-9]{1,10})?\.(track|chunk|spool|names)")
_MAX_TRACK_BYTES = 8 << 20
_MAX_SPOOL_ENTRIES = 100_000
_MAX_KEPT_BYTES = 512 << 20  # of chunks; any further ones are read from their files each time


@dataclass(frozen=True, slots=True)
class SpooledPart:
    """Some of a thread's records, which ``load`` returns; its length is their number.

    ``window`` is the number of their window if their process opens windows. A child process's records may be of several
    windows.
    """

    window: int
    num_records: int
    load: Callable[[], bytes] = field(repr=False)

    def __len__(self) -> int:
        return self.num_records

    def read(self) -> bytes:
        """Return the records, 32 bytes each."""
        return self.load()


@dataclass(slots=True)
class SpooledTrack:
    """The unsaved records of one thread, and its open spans.

    ``parts`` are its records, oldest first. ``monotonic_ns`` and ``unix_ns`` are the same moment on two clocks; records
    have nanoseconds on the monotonic clock.
    """

    number: int
    pid: int
    tid: int
    name: str
    rank: int
    is_main: bool
    monotonic_ns: int
    unix_ns: int
    num_dropped: int = 0
    """The number of records dropped in the window of ``dropped_ns``, when the last of them was dropped."""
    dropped_ns: int = 0
    parts: list[SpooledPart] = field(default_factory=list, repr=False)
    open_spans: list[Record] = field(default_factory=list)
    """Spans in progress. Their ``end`` is 0; their ``series`` is the number of the window in which they began."""

    def records(self) -> Iterator[Record]:
        """Return every record, oldest first."""
        return chain.from_iterable(unpack_records(part.read()) for part in self.parts)

    def num_dropped_between(self, began_ns: int, closed_ns: int) -> int:
        """Return the number of records that were dropped in the window between two moments."""
        return self.num_dropped if began_ns <= self.dropped_ns <= closed_ns else 0


@dataclass(slots=True)
class SpooledProcess:
    """The data of one process in a spool folder."""

    pid: int
    names: list[RecordName]
    tracks: list[SpooledTrack]
    chunks: list[ChunkSummary] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SpoolContents:
    """The data of the processes of a spool folder, and a sentence for each unreadable part."""

    processes: list[SpooledProcess]
    damages: list[str]


def read_spool_folder(folder: str | os.PathLike[str], *, without_pid: int = 0) -> SpoolContents:
    """Read everything in a spool folder, whether its processes still run or were killed.

    The files of the process ``without_pid`` are not read. Unreadable parts are left out and named in ``damages``.
    Raises OSError if the folder itself cannot be read.
    """
    reader = _Reader(Path(folder), without_pid)
    # The open spans before the chunks: a span that ends meanwhile is then found twice rather than not at all.
    reader.read_tracks()
    # The chunks before the spools to which they are moved, for the same reason.
    reader.read_chunks()
    reader.read_spools()
    reader.read_all_names()
    return SpoolContents(reader.processes(), reader.damages)


def find_spool_pids(folder: Path) -> set[int]:
    """Return the processes with data in a spool folder."""
    return {int(match[1]) for name in os.listdir(folder) if (match := _FILE_NAME.fullmatch(name))}


def delete_collected_files(folder: Path, pid: int, read_to_ns: int) -> None:
    """Delete the files of a child process whose records, all before ``read_to_ns``, were collected.

    These are its full chunks, and if it has ended all its files.
    """
    has_ended = not is_process_alive(pid)
    is_needed = False
    for path in folder.glob(f"{pid}-*.chunk"):
        content = path.read_bytes()
        with suppress(TraceFileError):
            _, records = read_chunk(content) or (None, b"")
            is_later = _has_begun_after(read_to_ns, records)
            is_needed |= is_later
            is_full = 0 < _num_records(records) == num_chunk_records(content)  # 0 < : it may be about to fill it
            if not is_later and (has_ended or is_full):
                path.unlink(missing_ok=True)
    if has_ended and not is_needed:
        for path in [*folder.glob(f"{pid}-*.track"), folder / f"{pid}.names"]:
            path.unlink(missing_ok=True)


def _has_begun_after(moment_ns: int, records: bytes) -> bool:
    columns = record_columns(records)
    return any(begin > moment_ns and kind != MARK for begin, kind in zip(columns.begin, columns.kind, strict=True))


class _Reader:
    """A reader of a folder, file by file, which collects the data of each process."""

    def __init__(self, folder: Path, without_pid: int) -> None:
        self._folder = RunFolder(folder)
        self._without_pid = without_pid
        self._tracks: dict[int, dict[int, SpooledTrack]] = defaultdict(dict)
        self._chunks: dict[int, list[_Chunk]] = defaultdict(list)
        self._names: dict[int, list[RecordName]] = {}
        self._num_kept_bytes = 0
        self._last: tuple[_Chunk | None, bytes] = None, b""
        self.damages: list[str] = []

    # -- file by file -----------------------------------------------------------------------------------------

    def read_tracks(self) -> None:
        for pid, name in self._files("track"):
            with self._naming_damage(name):
                header, open_spans = read_track(self._folder.read(name, _MAX_TRACK_BYTES)) or (None, [])
                if header is not None:
                    self._tracks[pid][header.track] = _track(header, open_spans)

    def read_chunks(self) -> None:
        for pid, name in self._files("chunk"):
            with self._naming_damage(name):
                header, records = self._read_chunk(name)
                if header is not None and header.track:
                    self._chunks[pid].append(_Chunk(header, _num_records(records), self._keep(name, records)))

    def read_spools(self) -> None:
        for pid, name in self._files("spool"):
            with self._naming_damage(name), self._folder.open(name) as file:
                in_files = {_key(chunk.header) for chunk in self._chunks[pid]}
                damages: list[str] = []
                entries = islice(read_spool(file, damages), _MAX_SPOOL_ENTRIES)
                new = [entry for entry in entries if _key(entry.header) not in in_files]
                self._chunks[pid] += [self._spooled(name, entry) for entry in new]
                self.damages += [f"{name}: {damage}." for damage in damages]

    def read_all_names(self) -> None:
        for pid, name in self._files("names"):
            with self._naming_damage(name):
                self._names[pid], damages = read_names(self._folder.read(name))
                self.damages += [f"{name}: {damage}." for damage in damages]

    def _files(self, kind: str) -> Iterator[tuple[int, str]]:
        """Yield the files of this ``kind``, with the pids of their processes."""
        for name in self._folder.names():
            match = _FILE_NAME.fullmatch(name)
            if match is None and name.endswith(f".{kind}"):
                self.damages.append(f"{name} is left out: Kinetoscope gives no file such a name.")
            elif match is not None and match[2] == kind and int(match[1]) != self._without_pid:
                yield int(match[1]), name

    @contextmanager
    def _naming_damage(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            pass  # its process has deleted it meanwhile
        except (TraceFileError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            self.damages.append(f"{name} is left out: {str(why).rstrip('.')}.")

    def _read_chunk(self, name: str) -> tuple[ChunkHeader | None, bytes]:
        return read_chunk(self._folder.read(name, MAX_CHUNK_BYTES)) or (None, b"")

    def _keep(self, name: str, records: bytes) -> Callable[[], bytes]:
        """Return a function that returns a chunk's records.

        They are kept in memory, within bounds: a running process may delete the file.
        """
        self._num_kept_bytes += len(records)
        if self._num_kept_bytes <= _MAX_KEPT_BYTES:
            return lambda: records
        return lambda: self._read_chunk(name)[1]

    def _spooled(self, name: str, entry: SpoolEntry) -> "_Chunk":
        def load() -> bytes:
            with suppress(FileNotFoundError), self._folder.open(name) as file:
                return entry.unpack(os.pread(file.fileno(), entry.num_bytes, entry.offset))
            return b""

        return _Chunk(entry.header, entry.header.num_records, load)

    # -- together ---------------------------------------------------------------------------------------------

    def processes(self) -> list[SpooledProcess]:
        """Return the data, process by process."""
        pids = self._tracks.keys() | self._chunks.keys() | self._names.keys()
        return [self._process(pid) for pid in sorted(pids)]

    def _process(self, pid: int) -> SpooledProcess:
        names, tracks = self._names.get(pid, []), self._tracks[pid]
        num_damaged: Counter[str] = Counter()
        found: list[ChunkSummary] = []
        for chunk in sorted(self._chunks[pid], key=lambda chunk: chunk.header.sequence):
            num_damaged.update(self._distribute(chunk, pid, len(names), found))
        for track in tracks.values():
            named = [span for span in track.open_spans if span.name < len(names)]
            track.open_spans = [span for span in named if not _has_ended(span, track.parts)]
        self.damages += [
            f"{number:,} records of {thread} are left out: they are damaged, or {pid}.names lacks their names."
            for thread, number in num_damaged.items()
            if number
        ]
        return SpooledProcess(pid, names, [tracks[number] for number in sorted(tracks)], found)

    def _distribute(self, chunk: "_Chunk", pid: int, num_names: int, chunks: list[ChunkSummary]) -> dict[str, int]:
        """Add a chunk's records to the tracks of their threads, and the chunk to ``chunks``.

        Returns:
            The number of unreadable records of each thread.
        """
        packed, header, last_track = self._read(chunk), chunk.header, chunk.header.track
        num_damaged = Counter({_placeholder_mark(chunk.header).name: chunk.num_records - _num_records(packed)})
        for thread_slice in split_by_thread(packed, _placeholder_mark(chunk.header)):
            track = self._tracks[pid].get(thread_slice.mark.track) or self._add_ended(
                pid, chunk.header, thread_slice.mark
            )
            whole, last_track = self._part(chunk, thread_slice), thread_slice.mark.track
            part = _readable(whole, num_names) if track is not None else None
            num_damaged[thread_slice.mark.name] += len(whole) - len(part or ())
            if track is not None and part:
                track.parts.append(part)
        capacity = chunk.num_records if header.packed_bytes else header.num_records
        chunks.append(
            ChunkSummary(header.sequence, header.window, header.track, last_track, chunk.num_records, capacity)
        )
        return num_damaged

    def _add_ended(self, pid: int, header: ChunkHeader, mark: TrackMark) -> SpooledTrack | None:
        """Add a track for a thread that has ended or whose track file cannot be read.

        It gets the clock of another track, which is the same in the whole folder, or of the chunk. None if neither has
        one.
        """
        known = next((track for tracks in self._tracks.values() for track in tracks.values()), header)
        if known is header and not header.has_clock:
            return None
        clock = known.monotonic_ns, known.unix_ns
        track = SpooledTrack(mark.track, pid, mark.tid, mark.name, known.rank, mark.is_main, *clock)
        return self._tracks[pid].setdefault(mark.track, track)

    def _part(self, chunk: "_Chunk", thread_slice: ThreadSlice) -> SpooledPart:
        def load() -> bytes:
            return self._read(chunk)[thread_slice.first * RECORD_BYTES : thread_slice.end * RECORD_BYTES]

        return SpooledPart(chunk.header.window, thread_slice.end - thread_slice.first, load)

    def _read(self, chunk: "_Chunk") -> bytes:
        """Return a chunk's records.

        The last chunk stays in memory, because the threads that share it are read in a row.
        """
        last, packed = self._last
        if last is not chunk:
            packed = chunk.load()
            self._last = chunk, packed
        return packed


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk in its file or in a spool; ``load`` returns its records, track marks included."""

    header: ChunkHeader
    num_records: int
    load: Callable[[], bytes]


def _key(header: ChunkHeader) -> tuple[int, int, int]:
    return header.sequence, header.track, header.window


def _placeholder_mark(header: ChunkHeader) -> TrackMark:
    """Return the mark of records before a chunk's first one, which exist only if that was damaged."""
    return TrackMark(header.track, header.track, f"thread {header.track}, whose name is lost", False)


def _num_records(packed: bytes) -> int:
    return len(packed) // RECORD_BYTES


def _track(header: TrackHeader, open_spans: list[Record]) -> SpooledTrack:
    return SpooledTrack(
        number=header.track,
        pid=header.pid,
        tid=header.tid,
        name=header.name.rstrip(b"\0").decode(errors="replace"),
        rank=header.rank,
        is_main=bool(header.is_main),
        monotonic_ns=header.monotonic_ns,
        unix_ns=header.unix_ns,
        num_dropped=header.num_dropped,
        dropped_ns=header.dropped_ns if header.num_dropped else 0,
        open_spans=open_spans,
    )


def _readable(part: SpooledPart, num_names: int) -> SpooledPart:
    """Return the part without its unreadable records."""
    num_readable = _num_records(readable_records(part.read(), num_names))
    if num_readable == len(part):
        return part
    return SpooledPart(part.window, num_readable, lambda: readable_records(part.read(), num_names))


def _has_ended(span: Record, parts: list[SpooledPart]) -> bool:
    """Return whether there is a record of a span that was open when the tracks were read, among the last ones."""
    begin = struct.pack("<q", span.begin)
    for packed in map(SpooledPart.read, reversed(parts)):
        offset = packed.find(begin)
        while offset >= 0:
            if offset % RECORD_BYTES == 0:
                (ended,) = unpack_records(packed[offset : offset + RECORD_BYTES])
                if (ended.begin, ended.name, ended.depth) == (span.begin, span.name, span.depth):
                    return True
            offset = packed.find(begin, offset + 1)
        (first,) = unpack_records(packed[:RECORD_BYTES])
        if (first.end if first.kind == Kind.SPAN else first.begin) < span.begin:
            return False  # what comes before ended before the span began
    return False


# -- child processes ----------------------------------------------------------------------------------------------

Intern = Callable[[str, tuple[str, ...]], int]
"""Returns the id of a name with its categories."""


def collect_child_records(folder: Path, intern: Intern, began_ns: int, closed_ns: int) -> list[ThreadRecords]:
    """Return the records of the other processes in the window between two moments.

    They have the name ids that ``intern`` returns. A span that was open when the window closed is cut there.
    """
    taken = []
    for child in read_spool_folder(folder, without_pid=os.getpid()).processes:
        ids = [intern(name.name, name.categories) for name in child.names]
        taken += [child_records_in_window(track, ids, began_ns, closed_ns) for track in child.tracks]
    return [thread for thread in taken if thread.num_records or thread.num_dropped]


def child_records_in_window(track: SpooledTrack, ids: Sequence[int], began_ns: int, closed_ns: int) -> ThreadRecords:
    """Return the records of a thread of a child process in the window between two moments.

    A record belongs to the window of its start; a span that ended later, or is still open, is cut at the window's
    end. ``ids`` are the new ids of the child process's names.
    """
    records = _in_window(track, len(ids), began_ns, closed_ns)
    packed = pack_records(_renamed(record, ids, closed_ns) for record in records)
    num_dropped = track.num_dropped_between(began_ns, closed_ns)
    return ThreadRecords.of(track.tid, track.name, False, packed, num_dropped)


def delete_child_records(folder: Path, closed_ns: int) -> None:
    """Delete the files of other processes whose records all began before a moment.

    Their process must have ended or filled them. The folder itself may have been deleted by the user.
    """
    with suppress(FileNotFoundError):
        for pid in find_spool_pids(folder) - {os.getpid()}:
            delete_collected_files(folder, pid, closed_ns)


def _in_window(track: SpooledTrack, num_names: int, began_ns: int, closed_ns: int) -> Iterator[Record]:
    """Yield the records that began in a window; spans open at its end are cut there."""
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
