"""live: what was taken out of the recorder in C. Chunks flow in, while their window is open and when it closes;
each thread's records flow out. All of it on the writer thread.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kinetoscope import _native
from kinetoscope.live.chunk import Spool, SpooledRecords
from kinetoscope.live.record import MOST_MARKS, RECORD_BYTES, Stretch, ThreadRecords, TrackMark, stretches

_AT_ONCE = 4  # chunks: fewer waits for the GIL than with 1, and no more compressed bytes at hand than one chunk has
_UNMARKED = TrackMark(0, 0, "unknown thread", False)
Taken = tuple[int, int, str, bool, int, list[_native.Chunk]]
"""Of one track: its number, the tid and name of the thread that has it now, whether that is the main one, how many
records found no space, and chunks, in which other threads may have recorded before."""


class _Reader:
    """Reads chunks, and remembers the last one: threads that share a chunk are read one after the other."""

    def __init__(self) -> None:
        self._last: tuple[SpooledRecords | None, bytes] = None, b""

    def read(self, spooled: SpooledRecords) -> bytes:
        last, packed = self._last
        if last is not spooled:
            packed = spooled.read()
            self._last = spooled, packed
        return packed


class _ParkedChunk:
    """A chunk's records, in its own file or, once they were spooled, in that one."""

    def __init__(self, chunk: _native.Chunk, reader: _Reader) -> None:
        self.chunk: _native.Chunk | None = chunk
        self._spooled: SpooledRecords | None = None
        self._reader = reader
        # Nothing here is kept for each of the threads that share a chunk: they may be thousands.
        self._only_stretch = _whole(chunk) if chunk.num_marks == 1 else None

    def move_to(self, spooled: SpooledRecords) -> None:
        self.chunk, self._spooled = None, spooled

    def read(self) -> memoryview:
        if self.chunk is not None:
            return memoryview(self.chunk)
        assert self._spooled is not None
        return memoryview(self._reader.read(self._spooled))

    def stretches(self) -> Iterator[Stretch]:
        return iter((self._only_stretch,)) if self._only_stretch is not None else self._find_stretches()

    def _find_stretches(self) -> Iterator[Stretch]:
        return stretches(self.read(), _UNMARKED)


def _whole(chunk: _native.Chunk) -> Stretch | None:
    """The one stretch of a chunk in which one thread has recorded."""
    beginning = memoryview(chunk)[: (MOST_MARKS + 1) * RECORD_BYTES]
    return next((it._replace(end=len(chunk)) for it in stretches(beginning, _UNMARKED)), None)


@dataclass(frozen=True, slots=True)
class _ChunkPart:
    """What one thread has in a chunk."""

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


class ParkedWindow:
    """The chunks of one window. In the live ``folder`` they are spooled, so that they take less space and no memory.

    ``on_full(folder, error)`` is told when there is no space for that: the chunks stay as they are.
    """

    def __init__(self, window: int, folder: str | None, on_full: Callable[[str, OSError], object]) -> None:
        self._on_full = on_full
        self._chunks: list[_ParkedChunk] = []
        self._dropped: list[tuple[TrackMark, int]] = []
        self._spool = Spool(folder, window) if folder is not None else None
        self._full_spool: Spool | None = None
        self._waiting: list[_ParkedChunk] = []
        self._reader = _Reader()

    def add(self, taken: list[Taken]) -> list[_ParkedChunk]:
        """Adds what a recorder gave, and returns the chunks that are new."""
        added = []
        for track, tid, name, is_main, num_dropped, chunks in taken:
            added += [_ParkedChunk(chunk, self._reader) for chunk in chunks]
            if num_dropped:
                self._dropped.append((TrackMark(track, tid, name, is_main), num_dropped))
        self._chunks += added
        return added

    def put_away(self, taken: list[Taken]) -> bool:
        """Adds what was filled while the window is open, and takes the oldest of what was added out of the way.

        Returns whether there is more to take out of the way.
        """
        self._waiting += self.add(taken)
        _native.seal_chunks(_chunks_of(self._waiting))  # they take no memory until it is their turn
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
        _native.discard_chunks(chunks)
        return bool(self._waiting)

    def _spool_is_full(self, spool: Spool, error: OSError) -> None:
        self._full_spool, self._spool = spool, None
        self._on_full(str(spool.path.parent), error)

    def set_aside(self) -> None:
        """Gives back the memory of what was added, and the space that it does not use."""
        _native.seal_chunks(_chunks_of(self._chunks))

    def threads(self) -> list[ThreadRecords]:
        """All that was added, by thread."""
        if self._spool is None:
            _native.seal_chunks(_chunks_of(self._chunks))  # whoever keeps the records keeps no empty space with them
        threads: dict[int, _ParkedThread] = {}
        for chunk in self._chunks:
            for mark, first, end in chunk.stretches():
                thread = threads.setdefault(mark.track, _ParkedThread(mark))
                thread.parts.append(_ChunkPart(chunk, first, end))
        for mark, num_dropped in self._dropped:
            threads.setdefault(mark.track, _ParkedThread(mark)).num_dropped += num_dropped
        return [thread.records() for thread in threads.values()]

    def release(self) -> None:
        """Deletes all files. Whoever keeps records can go on reading them."""
        for chunk in _chunks_of(self._chunks):
            chunk.leave_file()
        for spool in (self._spool, self._full_spool):
            if spool is not None:
                spool.delete()


def _chunks_of(parked: list[_ParkedChunk]) -> list[_native.Chunk]:
    """Those that were not spooled."""
    return [it.chunk for it in parked if it.chunk is not None]
