"""recording: the face of the recorder in C (`src/native`). Same interface and same records as `pure_recorder`."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kinetoscope import _native
from kinetoscope.clock.clock import Clock, SystemClock
from kinetoscope.formats.chunk import NamesFile
from kinetoscope.recording.recorder import NameTable, ThreadRecords


class NativeRecorder(_native.Recorder):
    """Records into mapped chunk files, or into memory; see `kinetoscope.recording.recorder.Recorder`."""

    keeps_files = True

    def __init__(self, clock: Clock | None = None) -> None:
        now = (clock or SystemClock()).monotonic_ns
        # The C code reads the machine's clock by itself, and asks any other one.
        super().__init__(None if now is time.monotonic_ns else now, _describe_thread, self._intern_series)
        self.names = NameTable()
        self._files: NamesFile | None = None
        _living.add(self)

    def close_window(self) -> Callable[[], list[ThreadRecords]]:
        taken = self.take_at_close()
        return lambda: _thread_records(taken)

    def drain(self) -> list[ThreadRecords]:
        """What filled whole chunks so far, while the window stays open; their space is given back."""
        return _thread_records(self.take_filled())

    def open_folder(self, folder: str, rank: int, limit_bytes: int) -> None:
        """Keeps what is recorded from now on in chunk files in ``folder``, at most so many bytes at a time.

        Raises OSError if that cannot be done; then everything stays in memory.
        """
        names = NamesFile(folder, os.getpid(), self.names.names)
        self.set_folder(folder, rank, limit_bytes)
        if self.trouble:
            error = OSError(self.trouble, os.strerror(self.trouble), folder)
            self.set_folder(None, rank, limit_bytes)
            names.delete()
            raise error
        self.names.on_new = names.append
        self._files = names

    def close_folder(self) -> None:
        """Goes back to memory and deletes this recorder's files; chunks already taken go with their owner."""
        files, self._files = self._files, None
        self.names.on_new = None
        if files is not None:
            self.set_folder(None, 0, _MEMORY_LIMIT_BYTES)
            files.delete()

    def forget_parent(self) -> None:
        """Starts anew in a forked child, whose parent keeps its events and files."""
        self.forget()
        self._files = None
        self.names.forget_parent()

    def _intern_series(self, name: str) -> int:
        return self.names.intern(name)


class NativeSpan(_native.Span):
    """A reusable span of a `NativeRecorder`; see `kinetoscope.recording.recorder.Span`."""

    __slots__ = ()

    def plain_values(self, values: Any) -> dict[str, int | float]:
        """What `counter` records for values that are not simply a dict of strings and numbers."""
        if not isinstance(values, Mapping):
            values = {self._recorder.names.names[self.name_id].name: values}
        return dict(values)


_MEMORY_LIMIT_BYTES = 256 << 20


def _thread_records(taken: list[tuple[Any, ...]]) -> list[ThreadRecords]:
    """Copies chunks into bytes, and keeps the chunks too: their files are there until the cycle has been saved."""
    return [
        ThreadRecords(tid, name, is_main, b"".join(chunks), num_dropped, tuple(chunks))
        for tid, name, is_main, num_dropped, chunks in taken
    ]


def _describe_thread() -> tuple[int, str, bool]:
    thread = threading.current_thread()
    return threading.get_native_id(), thread.name, thread is threading.main_thread()


_living: "weakref.WeakSet[NativeRecorder]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for recorder in list(_living):
        recorder.forget_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
