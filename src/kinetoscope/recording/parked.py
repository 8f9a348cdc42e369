"""recording: what was taken out of the recorder in C. Chunks flow in, while their window is open and when it closes;
each thread's records flow out. All of it on the writer thread.
"""

import logging
from dataclasses import dataclass, field

from kinetoscope import _native
from kinetoscope.formats.chunk import Spool, SpooledRecords
from kinetoscope.recording.recorder import ThreadRecords

_log = logging.getLogger("kinetoscope")
_AT_ONCE = 4  # chunks: fewer waits for the GIL than with 1, and no more compressed bytes at hand than one chunk has
_warned: set[str] = set()
Taken = tuple[int, int, str, bool, int, list[_native.Chunk]]
"""Of one thread: track, tid, name, whether it is the main one, how many records found no space, chunks."""


@dataclass(slots=True)
class _ChunkPart:
    """A chunk's records, in its own file or, once they were spooled, in that one. Then the chunk still stands for the
    file of its track, without which `recover` could not tell whose they are."""

    chunk: _native.Chunk
    spooled: SpooledRecords | None = None

    def __len__(self) -> int:
        return len(self.chunk)

    def read(self) -> bytes | memoryview:
        return self.spooled.read() if self.spooled is not None else self.chunk.read()


@dataclass(slots=True)
class _ParkedThread:
    tid: int
    name: str
    is_main: bool
    num_dropped: int = 0
    parts: list[_ChunkPart] = field(default_factory=list)


class ParkedWindow:
    """The chunks of one window. In the live ``folder`` they are spooled, so that they take less space and no memory."""

    def __init__(self, window: int, folder: str | None) -> None:
        self._threads: dict[int, _ParkedThread] = {}
        self._spool = Spool(folder, window) if folder is not None else None
        self._full_spool: Spool | None = None
        self._waiting: list[_ChunkPart] = []

    def add(self, taken: list[Taken]) -> list[_ChunkPart]:
        """Adds what a recorder gave, and returns the parts that this makes."""
        added = []
        for track, tid, name, is_main, num_dropped, chunks in taken:
            thread = self._threads.setdefault(track, _ParkedThread(tid, name, is_main))
            parts = list(map(_ChunkPart, chunks))
            thread.num_dropped += num_dropped
            thread.parts += parts
            added += parts
        return added

    def put_away(self, taken: list[Taken]) -> bool:
        """Adds what was filled while the window is open, and takes the oldest of what was added out of the way.

        Returns whether there is more to take out of the way.
        """
        self._waiting += self.add(taken)
        _native.seal_chunks([part.chunk for part in self._waiting])  # they take no memory until it is their turn
        parts, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
        return self._spool is not None and bool(parts) and self._move_into(self._spool, parts)

    def _move_into(self, spool: Spool, parts: list[_ChunkPart]) -> bool:
        chunks = [part.chunk for part in parts]
        try:
            spooled = spool.add(chunks)
        except OSError as error:
            self._spool_is_full(spool, error)
            return False
        for part, records in zip(parts, spooled, strict=True):
            part.spooled = records
        _native.discard_chunks(chunks)
        return bool(self._waiting)

    def _spool_is_full(self, spool: Spool, error: OSError) -> None:
        self._full_spool, self._spool = spool, None
        _warn_once(spool, error)

    def set_aside(self) -> None:
        """Gives back the memory of what was added, and the space that it does not use."""
        _native.seal_chunks(
            [it.chunk for thread in self._threads.values() for it in thread.parts if it.spooled is None]
        )

    def threads(self) -> list[ThreadRecords]:
        """All that was added, by thread."""
        return [ThreadRecords(it.tid, it.name, it.is_main, it.parts, it.num_dropped) for it in self._threads.values()]

    def release(self) -> None:
        """Deletes all files. Whoever keeps records can go on reading them."""
        for thread in self._threads.values():
            for part in thread.parts:
                part.chunk.leave_files()
        for spool in (self._spool, self._full_spool):
            if spool is not None:
                spool.delete()


def _warn_once(spool: Spool, error: OSError) -> None:
    folder = str(spool.path.parent)
    if folder not in _warned:
        _warned.add(folder)
        _log.warning(
            "Cannot put filled chunks aside in %s: %s. They stay as they are until they are saved; once they take "
            "live_bytes_max, what is recorded is dropped, and counted in the trace.",
            folder,
            error.strerror or error,
        )
