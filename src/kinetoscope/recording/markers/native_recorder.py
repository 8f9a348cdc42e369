"""Recorder of this process and its spans: Python subclasses of the classes in C (`src/native/recorder`)."""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinetoscope.core.background.fork_resets import reset_after_fork
from kinetoscope.core.clock.clock import Clock, SystemClock
from kinetoscope.core.text.wording import format_count
from kinetoscope.native import native, why_not_recorded
from kinetoscope.recording.markers.process import this_process
from kinetoscope.recording.markers.recorder_types import NameTable, WindowRecords
from kinetoscope.spool.chunk import NamesFile
from kinetoscope.spool.contents import collect_child_records, delete_child_records
from kinetoscope.spool.record import ThreadRecords
from kinetoscope.spool.spooled_window import SpooledWindow


class NativeRecorder(native.Recorder):
    """Record spans, instants and counters of all threads of this process while a window is open.

    Records are in memory-mapped chunk files, or in memory. The run sets ``action`` (a bit of `ACTION_BITS`, or 0 to
    record nothing) and ``batch`` once per batch; spans read them. ``listener`` is None if no handler has per-event
    methods. ``loss`` is the last loss of a counter, recorded or not; NaN before the first.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        now = (clock or SystemClock()).monotonic_ns
        # C reads the system's clock itself, and calls any other clock.
        super().__init__(None if now is time.monotonic_ns else now)
        self.names: NameTable = NameTable()
        self.run_file: str | None = None
        self._folder: str | None = None
        self._spooled: dict[int, SpooledWindow] = {}
        self._unreleased: set[int] = set()
        self._limit_bytes = _MEMORY_LIMIT_BYTES
        self._files: NamesFile | None = None
        self.followed_run_file: str | None = None
        """In a child process, the file of the parent's run, which exists until that run ends."""
        self.window_opened_ns: int = 0
        """The monotonic time at which the last window opened, in nanoseconds."""
        reset_after_fork(self.reset_in_child)

    def open_window(self) -> None:
        """Start to keep records."""
        self.window_opened_ns = time.monotonic_ns()
        super().open_window()

    def close_window(self, *, continues: bool = False) -> WindowRecords:
        """Close the window and truncate the spans that are open at this nanosecond. This is cheap.

        With ``continues``, the next window opens at the same nanosecond, so that no thread and no child process finds
        recording off in between.
        """
        window, opened_ns = self.window, self.window_opened_ns
        closed_tracks, closed_ns = self.take_at_close(continues), self.closed_ns
        if continues:
            self.window_opened_ns = closed_ns + 1
        folder = Path(self._folder) if self._folder is not None else None
        self._unreleased.add(window)
        spooled = self._get_spooled_window(window)
        in_files = (chunk for *_, chunks in closed_tracks for chunk in chunks if chunk.has_file)
        num_written = spooled.num_written + sum(map(len, in_files))

        def threads() -> list[ThreadRecords]:
            spooled.add(closed_tracks)
            self.remove_ended()
            closed_tracks.clear()  # if this fails later, it is called again, and must not add them twice
            children = (
                collect_child_records(folder, self.names.intern, opened_ns, closed_ns) if folder is not None else []
            )
            return _report_dropped(spooled.threads() + children)

        def release() -> None:
            closed_tracks.clear()
            self._spooled.pop(window, None)
            spooled.release()
            self._unreleased.discard(window)
            # A child process's file may hold records of several windows: it stays while an earlier one is needed.
            # `min` reads the set in one piece: the training thread may add a window meanwhile.
            if folder is not None and min(self._unreleased, default=window) >= window:
                delete_child_records(folder, closed_ns)

        def flush_to_disk() -> int:
            if self._files is not None:
                self._files.flush()
            return spooled.flush_to_disk()

        return WindowRecords(
            threads, release, window, closed_ns, spooled.free_memory, folder is not None, num_written, flush_to_disk
        )

    def prepare(self) -> None:
        """Allocate space to record into, and spool filled chunks. Called on the writer thread."""
        for _ in range(_MAX_ROUNDS):
            self.ready_spares()
            window, filled = self.take_filled()
            if window == 0 or not self._get_spooled_window(window).spool_filled(filled):
                break

    def _get_spooled_window(self, window: int) -> SpooledWindow:
        return self._spooled.setdefault(window, SpooledWindow(window, self._folder, _warn_about_full_spool))

    def open_folder(self, folder: str, rank: int, limit_bytes: int) -> None:
        """Keep the records from now on in chunk files in ``folder``, at most ``limit_bytes`` at a time.

        Raises:
            OSError: if that fails. Then all records stay in memory.
        """
        names = NamesFile(folder, os.getpid(), self.names.names)
        self.set_folder(folder, rank, limit_bytes)
        if self.spool_errno:
            error = OSError(self.spool_errno, os.strerror(self.spool_errno), folder)
            self.set_folder(None, rank, limit_bytes)
            names.delete()
            raise error
        self.names.subscribe(names.write_new_names)
        self._files = names
        self._folder, self._limit_bytes = folder, limit_bytes
        self.run_file = str(next(Path(folder).glob(f"{os.getpid()}-*.run")))

    def is_low_on_space(self) -> bool:
        """Return whether less than a quarter of the limit is left."""
        return self.used_bytes > self._limit_bytes - self._limit_bytes // 4

    def close_folder(self, *, leave_files: bool = False) -> None:
        """Free the space to record into, in files or in memory. Chunks of closed windows are freed by their owner.

        With ``leave_files`` the files stay for `recover`; then only windows that are released delete theirs.
        """
        files, self._files = self._files, None
        self.run_file = self._folder = None
        self._limit_bytes = _MEMORY_LIMIT_BYTES
        self.names.on_new = None
        if leave_files:
            self.leave_files()
        self.set_folder(None, 0, _MEMORY_LIMIT_BYTES)
        if files is not None and leave_files:
            files.close()
        elif files is not None:
            files.delete()

    def reset_in_child(self) -> None:
        """Start empty in a forked child: leave records and files to the parent, and record into the same run."""
        self.forget()
        self._files = self._folder = self.followed_run_file = None
        self._spooled, self._unreleased = {}, set()
        self.names.reset_in_child()
        run_file, self.run_file = self.run_file, None
        if run_file is not None:
            self.follow(run_file)

    def follow(self, run_file: str) -> None:
        """Record, in a child process, while the parent does according to its ``run_file``.

        The child creates its own files when it first records. The parent reads and deletes them.
        """
        folder = os.path.dirname(run_file)
        with contextlib.suppress(OSError):  # the run is over
            self.follow_parent(folder, run_file, _CHILD_LIMIT_BYTES)
            self.followed_run_file = run_file

    def describe_thread(self) -> tuple[int, str, bool]:
        """Return the system's id of the calling thread, the name of its track, and whether it is the main thread.

        C calls this when a thread first records.
        """
        thread = threading.current_thread()
        is_main, name = thread is threading.main_thread(), thread.name
        if self.followed_run_file is not None:
            if self._files is None:
                self._open_names_file(os.path.dirname(self.followed_run_file))
            name = _find_process_name() if is_main else f"{_find_process_name()}: {name}"
        return threading.get_native_id(), name.encode(errors="backslashreplace").decode(), is_main

    def _open_names_file(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            self._files = NamesFile(folder, os.getpid(), self.names.names)
            self.names.subscribe(self._files.write_new_names)

    def intern_series(self, name: str) -> int:
        """Return the id of the name of a counter's value."""
        return self.names.intern(name)


class NativeSpan(native.Span):
    """Reusable span: one object per name, entered any number of times, on any thread, also nested.

    ``begin`` returns the token with which any thread can ``end`` the span, or None if it is not recorded. ``begin_at``
    and ``end_at`` do so for a span that has ended, in the order of the ends; ``abandon`` discards one. A subclass that
    starts with `NO_NAME` defines ``intern``, which returns the id of its name when it is first recorded.
    """

    __slots__ = ()

    def plain_values(self, values: Any) -> dict[str, int | float]:
        """Return the values that `counter` records for anything but a dict of strings and numbers."""
        if not isinstance(values, Mapping):
            values = {self._recorder.names.names[self.name_id].name: values}
        return dict(values)


def _warn_about_full_spool(folder: str, error: OSError) -> None:
    this_process.once.warn(
        "Filled chunks cannot be packed into a file in %s: %s. They stay unpacked until they are saved. Once they take "
        "live_bytes_max, new records are dropped, and the trace has their number.",
        folder,
        error.strerror or error,
        about=("chunks", folder),
    )


def _report_dropped(threads: list[ThreadRecords]) -> list[ThreadRecords]:
    num_dropped = sum(thread.num_dropped for thread in threads)
    if num_dropped:
        _log.warning(
            "%s found no space and will be missing in the trace that is saved now, because unsaved records took all of "
            "live_bytes_max. Save more often, record less, or raise live_bytes_max.",
            format_count(num_dropped, "record"),
        )
    return threads


_log = logging.getLogger("kinetoscope")
_MAX_ROUNDS = 64  # then other jobs of the writer thread run
_MEMORY_LIMIT_BYTES = 256 << 20
_CHILD_LIMIT_BYTES = 64 << 20  # in one window


def _find_process_name() -> str:
    """Return the name of a child process in the trace: a DataLoader worker's number, or multiprocessing's name."""
    worker = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", lambda: None)()
    if worker is not None:
        return f"DataLoader worker {worker.id}"
    process = sys.modules.get("multiprocessing.process")
    return process.current_process().name if process else f"process {os.getpid()}"


if os.environ.get("KINETOSCOPE_CLOCK") == "tsc" and not why_not_recorded():
    try:  # the time stamp counter of the CPU is faster to read
        native.use_tsc()
    except OSError as error:
        _log.warning("%s CLOCK_MONOTONIC is used.", error)
