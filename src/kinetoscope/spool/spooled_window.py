"""Collects the filled chunks of a window from the recorder, on the writer thread, until the window is saved."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kinetoscope.native import native
from kinetoscope.spool.chunk import Spool, SpooledRecords
from kinetoscope.spool.record import MOST_MARKS, RECORD_BYTES, Stretch, ThreadRecords, TrackMark, stretches

_AT_ONCE = 4  # chunks: with 1 there are more waits for the GIL; 4 packed ones take no more memory than one chunk
_UNMARKED = TrackMark(0, 0, "unknown thread", False)
Taken = tuple[int, int, str, bool, int, list[native.Chunk]]
"""One track: its number, the tid and name of its current thread, whether that is the main thread, how many records were
dropped, and its chunks, in which earlier threads may have recorded too."""


class _Reader:
    """Reads spooled chunks and keeps the last one, because the threads that share it are read in a row."""

    def __init__(self) -> None:
        self._last: tuple[SpooledRecords | None, bytes] = None, b""

    def read(self, spooled: SpooledRecords) -> bytes:
        last, packed = self._last
        if last is not spooled:
            packed = spooled.read()
            self._last = spooled, packed
        return packed


class _ParkedChunk:
    """A chunk's records, in its own file or, once they were spooled, in the spool."""

    def __init__(self, chunk: native.Chunk, reader: _Reader) -> None:
        self.chunk: native.Chunk | None = chunk
        self._spooled: SpooledRecords | None = None
        self._reader = reader
        # Nothing is kept here per thread: thousands of threads may share a chunk.
        self._only_stretch = _whole(chunk) if chunk.num_marks == 1 else None

    def move_to(self, spooled: SpooledRecords) -> None:
        self.chunk, self._spooled = None, spooled

    @property
    def num_records(self) -> int:
        return len(self.chunk) if self.chunk is not None else len(self._spooled or ())

    def read(self) -> memoryview:
        if self.chunk is not None:
            return memoryview(self.chunk)
        assert self._spooled is not None
        return memoryview(self._reader.read(self._spooled))

    def stretches(self) -> Iterator[Stretch]:
        return stretches(self.read(), _UNMARKED) if self._only_stretch is None else iter((self._only_stretch,))


def _whole(chunk: native.Chunk) -> Stretch | None:
    """The only stretch of a chunk in which a single thread has recorded."""
    beginning = memoryview(chunk)[: (MOST_MARKS + 1) * RECORD_BYTES]
    return next((found._replace(end=len(chunk)) for found in stretches(beginning, _UNMARKED)), None)


@dataclass(frozen=True, slots=True)
class _ChunkPart:
    """The records of one thread in a chunk."""

    chunk: _ParkedChunk
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    def read(self) -> memoryview:
        return self.chunk.read()[self.first * RECORD_BYTES : self.end * RECORD_BYTES]


@dataclass(slots=True)
class _ParkedThread:
    mark: TrackMark
    num_dropped: int = 0
    parts: list[_ChunkPart] = field(default_factory=list)

    def records(self) -> ThreadRecords:
        return ThreadRecords(self.mark.tid, self.mark.name, self.mark.is_main, self.parts, self.num_dropped)


class SpooledWindow:
    """The chunks of one window. If there is a live ``folder``, they are spooled there, which takes less disk space
    and no memory.

    ``on_full(folder, error)`` is called when there is no space for the spool; the chunks stay as they are then.
    """

    def __init__(self, window: int, folder: str | None, on_full: Callable[[str, OSError], object]) -> None:
        self._on_full = on_full
        self._chunks: list[_ParkedChunk] = []
        self._dropped: list[tuple[TrackMark, int]] = []
        self._folder, self._window = folder, window
        self._spool = Spool(folder, window) if folder is not None else None
        self._full_spool: Spool | None = None
        self._waiting: list[_ParkedChunk] = []
        self._reader = _Reader()

    def add(self, taken: list[Taken]) -> list[_ParkedChunk]:
        """Adds what was taken from a recorder, and returns the new chunks."""
        added = []
        for track, tid, name, is_main, num_dropped, chunks in taken:
            added += [_ParkedChunk(chunk, self._reader) for chunk in chunks]
            if num_dropped:
                self._dropped.append((TrackMark(track, tid, name, is_main), num_dropped))
        self._chunks += added
        return added

    def put_away(self, taken: list[Taken]) -> bool:
        """Adds chunks that were filled while the window is open, and spools the oldest chunks that are not spooled yet.

        Returns whether there are more to spool.
        """
        self._waiting += self.add(taken)
        native.seal_chunks(_chunks_of(self._waiting))  # they take no memory while they wait
        chunks, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
        return self._spool is not None and bool(chunks) and self._move_into(self._spool, chunks)

    def _move_into(self, spool: Spool, parked: list[_ParkedChunk]) -> bool:
        chunks = _chunks_of(parked)
        try:
            spooled = spool.add(chunks)
        except OSError as error:
            self._spool_is_full(spool, error)
            return False
        for chunk, records in zip(parked, spooled, strict=True):
            chunk.move_to(records)
        native.discard_chunks(chunks)
        return bool(self._waiting)

    def _spool_is_full(self, spool: Spool, error: OSError) -> None:
        self._full_spool, self._spool = spool, None
        self._on_full(str(spool.path.parent), error)

    @property
    def num_written(self) -> int:
        """The number of records and track marks in files."""
        return sum(parked.num_records for parked in self._chunks if parked.chunk is None or parked.chunk.has_file)

    def set_aside(self) -> None:
        """Frees the memory of the chunks, and the unused space in their files."""
        native.seal_chunks(_chunks_of(self._chunks))

    def keep_on_disk(self) -> int:
        """Writes to the spool what is in memory only, until the disk is full. Returns how many records are still in
        memory only."""
        in_memory = [parked for parked in self._chunks if parked.chunk is not None and not parked.chunk.has_file]
        while in_memory and self._write(in_memory[0]):
            in_memory.pop(0)
        return sum(parked.num_records for parked in in_memory)

    def _write(self, parked: _ParkedChunk) -> bool:
        if self._folder is None or parked.chunk is None:
            return False
        self._spool = self._spool or self._full_spool or Spool(self._folder, self._window)
        chunks = [parked.chunk]
        try:
            (spooled,) = self._spool.add(chunks)
        except OSError:
            return False
        parked.move_to(spooled)
        native.discard_chunks(chunks)
        return True

    def threads(self) -> list[ThreadRecords]:
        """All records, by thread."""
        if self._spool is None:
            native.seal_chunks(_chunks_of(self._chunks))  # records that are kept must not keep unused space too
        threads: dict[int, _ParkedThread] = {}
        for chunk in self._chunks:
            for mark, first, end in chunk.stretches():
                thread = threads.setdefault(mark.track, _ParkedThread(mark))
                thread.parts.append(_ChunkPart(chunk, first, end))
        for mark, num_dropped in self._dropped:
            threads.setdefault(mark.track, _ParkedThread(mark)).num_dropped += num_dropped
        return [thread.records() for thread in threads.values()]

    def release(self) -> None:
        """Deletes all files. Records that are still held can be read all the same."""
        for chunk in _chunks_of(self._chunks):
            chunk.leave_file()
        for spool in (self._spool, self._full_spool):
            if spool is not None:
                spool.delete()


def _chunks_of(parked: list[_ParkedChunk]) -> list[native.Chunk]:
    """The chunks that were not spooled."""
    return [parked_chunk.chunk for parked_chunk in parked if parked_chunk.chunk is not None]
