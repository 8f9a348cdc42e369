"""Filled chunks of a window, collected from the recorder on the writer thread, until the window is saved."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kinetoscope.native import native
from kinetoscope.spool.chunk import SpooledRecords, SpoolFile
from kinetoscope.spool.record import MAX_MARKS, RECORD_BYTES, ThreadRecords, ThreadSlice, TrackMark, split_by_thread

_CHUNKS_PER_CALL = (
    4  # chunks: with 1 there are more waits for the GIL; 4 packed ones take no more memory than one chunk
)
_UNMARKED = TrackMark(0, 0, "unknown thread", False)
DrainedRecords = tuple[int, int, str, bool, int, list[native.Chunk]]
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


class _WindowChunk:
    """A chunk's records, in its own file or, once they were spooled, in the spool."""

    def __init__(self, chunk: native.Chunk, reader: _Reader) -> None:
        self.chunk: native.Chunk | None = chunk
        self._spooled: SpooledRecords | None = None
        self._reader = reader
        # Nothing is kept here per thread: thousands of threads may share a chunk.
        self._only_slice = _find_only_slice(chunk) if chunk.num_marks == 1 else None

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

    def split_by_thread(self) -> Iterator[ThreadSlice]:
        return split_by_thread(self.read(), _UNMARKED) if self._only_slice is None else iter((self._only_slice,))


def _find_only_slice(chunk: native.Chunk) -> ThreadSlice | None:
    """Return the slice of a chunk in which a single thread has recorded: all of it."""
    beginning = memoryview(chunk)[: (MAX_MARKS + 1) * RECORD_BYTES]
    return next((found._replace(end=len(chunk)) for found in split_by_thread(beginning, _UNMARKED)), None)


@dataclass(frozen=True, slots=True)
class _ChunkPart:
    """The records of one thread in a chunk."""

    chunk: _WindowChunk
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    def read(self) -> memoryview:
        return self.chunk.read()[self.first * RECORD_BYTES : self.end * RECORD_BYTES]


@dataclass(slots=True)
class _WindowThread:
    mark: TrackMark
    num_dropped: int = 0
    parts: list[_ChunkPart] = field(default_factory=list)

    def records(self) -> ThreadRecords:
        return ThreadRecords(self.mark.tid, self.mark.name, self.mark.is_main, self.parts, self.num_dropped)


class SpooledWindow:
    """The chunks of one window, which are compressed into a spool file if there is a spool ``folder``.

    That takes less disk space and no memory. ``on_full(folder, error)`` is called when there is no space for it; the
    chunks then remain uncompressed.
    """

    def __init__(self, window: int, folder: str | None, on_full: Callable[[str, OSError], object]) -> None:
        self._on_full = on_full
        self._chunks: list[_WindowChunk] = []
        self._dropped: list[tuple[TrackMark, int]] = []
        self._folder, self._window = folder, window
        self._spool = SpoolFile(folder, window) if folder is not None else None
        self._full_spool: SpoolFile | None = None
        self._waiting: list[_WindowChunk] = []
        self._reader = _Reader()

    def add(self, drained: list[DrainedRecords]) -> list[_WindowChunk]:
        """Add the chunks that were drained from a recorder, and return the new ones."""
        added = []
        for track, tid, name, is_main, num_dropped, chunks in drained:
            added += [_WindowChunk(chunk, self._reader) for chunk in chunks]
            if num_dropped:
                self._dropped.append((TrackMark(track, tid, name, is_main), num_dropped))
        self._chunks += added
        return added

    def spool_filled(self, drained: list[DrainedRecords]) -> bool:
        """Add filled chunks of the open window, and spool the oldest chunks; return whether more are left."""
        self._waiting += self.add(drained)
        native.seal_chunks(_chunks_of(self._waiting))  # they take no memory while they wait
        chunks, self._waiting = self._waiting[:_CHUNKS_PER_CALL], self._waiting[_CHUNKS_PER_CALL:]
        return self._spool is not None and bool(chunks) and self._move_into(self._spool, chunks)

    def _move_into(self, spool: SpoolFile, window_chunk: list[_WindowChunk]) -> bool:
        chunks = _chunks_of(window_chunk)
        try:
            spooled = spool.add(chunks)
        except OSError as error:
            self._spool_is_full(spool, error)
            return False
        for chunk, records in zip(window_chunk, spooled, strict=True):
            chunk.move_to(records)
        native.discard_chunks(chunks)
        return bool(self._waiting)

    def _spool_is_full(self, spool: SpoolFile, error: OSError) -> None:
        self._full_spool, self._spool = spool, None
        self._on_full(str(spool.path.parent), error)

    @property
    def num_written(self) -> int:
        """The total number of records and track marks of the window that are in files."""
        return sum(
            window_chunk.num_records
            for window_chunk in self._chunks
            if window_chunk.chunk is None or window_chunk.chunk.has_file
        )

    def free_memory(self) -> None:
        """Free the memory of the chunks, and the unused space in their files."""
        native.seal_chunks(_chunks_of(self._chunks))

    def flush_to_disk(self) -> int:
        """Write chunks in memory to the spool file, until the disk is full.

        Returns:
            The number of records that are still in memory only.
        """
        in_memory = [
            window_chunk
            for window_chunk in self._chunks
            if window_chunk.chunk is not None and not window_chunk.chunk.has_file
        ]
        while in_memory and self._write(in_memory[0]):
            in_memory.pop(0)
        return sum(window_chunk.num_records for window_chunk in in_memory)

    def _write(self, window_chunk: _WindowChunk) -> bool:
        if self._folder is None or window_chunk.chunk is None:
            return False
        self._spool = self._spool or self._full_spool or SpoolFile(self._folder, self._window)
        chunks = [window_chunk.chunk]
        try:
            (spooled,) = self._spool.add(chunks)
        except OSError:
            return False
        window_chunk.move_to(spooled)
        native.discard_chunks(chunks)
        return True

    def threads(self) -> list[ThreadRecords]:
        """Return all records, by thread."""
        if self._spool is None:
            native.seal_chunks(_chunks_of(self._chunks))  # records that are kept must not keep unused space too
        threads: dict[int, _WindowThread] = {}
        for chunk in self._chunks:
            for mark, first, end in chunk.split_by_thread():
                thread = threads.setdefault(mark.track, _WindowThread(mark))
                thread.parts.append(_ChunkPart(chunk, first, end))
        for mark, num_dropped in self._dropped:
            threads.setdefault(mark.track, _WindowThread(mark)).num_dropped += num_dropped
        return [thread.records() for thread in threads.values()]

    def release(self) -> None:
        """Delete all files; existing records remain readable."""
        for chunk in _chunks_of(self._chunks):
            chunk.leave_file()
        for spool in (self._spool, self._full_spool):
            if spool is not None:
                spool.delete()


def _chunks_of(window_chunk: list[_WindowChunk]) -> list[native.Chunk]:
    """Return the chunks that were not spooled."""
    return [waiting_chunk.chunk for waiting_chunk in window_chunk if waiting_chunk.chunk is not None]
