"""Writer thread, which runs jobs in order, so that the training thread never waits for them."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from kinetoscope.core.background.background_thread import BackgroundThread

_log = logging.getLogger("kinetoscope")
_thread_state = threading.local()
# Python handles a signal that comes just before a wait only when the wait ends.
_MAX_WAIT_S = 0.25

Job = Callable[[], object]


def is_in_background() -> bool:
    """Return whether the caller is a job of a `WriterThread` that no thread waits for."""
    writer: WriterThread | None = getattr(_thread_state, "writer", None)
    return writer is not None and not writer.is_awaited


class WriterThread:
    """Runs jobs one after the other on its own thread, which starts with the first job.

    If a job raises, even SystemExit, ``on_error(name, error)`` is called and the next job runs. The thread is a daemon,
    so a job that hangs cannot keep the process alive; `close` waits for it, but not for ever. In a forked child there
    is no thread and no job: the parent runs what was queued.
    """

    def __init__(
        self, name: str = "kinetoscope-writer", on_error: Callable[[str, BaseException], None] | None = None
    ) -> None:
        self._name = name
        self._on_error = on_error or _log_error
        # Reentrant, because a signal handler may submit while the thread it interrupted was submitting.
        self._changed = threading.Condition(threading.RLock())
        self._jobs: deque[tuple[str, Job]] = deque()
        self._running = False
        self._closing = False
        self._num_awaiting = 0
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def submit(self, name: str, job: Job) -> None:
        """Put ``job`` at the end of the queue and returns at once. After `close`, the job runs in this call."""
        if self._pid != os.getpid():
            return
        with self._changed:
            if not self._closing:
                self._jobs.append((name, job))
                self._start()
                self._changed.notify_all()
                return
        self._run(name, job)

    def drain(self, timeout_s: float) -> bool:
        """Wait until every job submitted so far has run; False if ``timeout_s`` was too short."""
        if self._thread is threading.current_thread() or self._pid != os.getpid():
            return True
        with self._changed:
            self._num_awaiting += 1
            try:
                self._wait(monotonic() + timeout_s)
            finally:
                self._num_awaiting -= 1
        return self._run_leftover_jobs()

    def close(self, timeout_s: float) -> bool:
        """Drain, then ends and joins the thread; False if jobs are left after ``timeout_s``."""
        if self._pid != os.getpid():
            return True  # without the lock, which the parent's thread may have held at the fork
        try:
            done = self.drain(timeout_s)
        finally:  # drain may be interrupted
            with self._changed:
                self._closing = True
                self._changed.notify_all()
        if done and (thread := self._thread) is not None:
            thread.join(timeout_s)
        return done

    @property
    def is_awaited(self) -> bool:
        """True if a caller waits for the jobs."""
        return self._num_awaiting > 0

    @property
    def num_waiting(self) -> int:
        """The number of jobs that have not started yet."""
        return len(self._jobs)

    def _wait(self, deadline: float) -> None:
        while self._jobs or self._running:
            left = deadline - monotonic()
            if left <= 0 or self._thread is None or not self._thread.is_alive():
                break
            self._changed.wait(min(left, _MAX_WAIT_S))

    def _start(self) -> None:
        if self._thread is None:
            self._thread = BackgroundThread(
                self._loop, self._name
            )  # before Ctrl-C can come in the start: there is one only
            try:
                self._thread.start()
            except RuntimeError as error:
                self._thread = None
                # The interpreter is shutting down and starts no more threads: drain() runs the jobs itself.
                _log.debug("No writer thread at interpreter shutdown: %s", error)

    def _run_leftover_jobs(self) -> bool:
        if self._thread is None or not self._thread.is_alive():
            while self._jobs:
                self._run(*self._jobs.popleft())
        return not self._jobs and not self._running

    def _loop(self) -> None:
        _thread_state.writer = self
        try:
            while (item := self._next()) is not None:
                self._run(*item)
                del item  # a finished job's cycle must not stay alive until the next one comes
                self._end_job()
        except BaseException:  # from `on_error`: `drain` runs the rest, or the next job starts another thread
            self._thread = None
            if os.getpid() == self._pid:  # else a job has forked, maybe while a thread of the parent's had the lock
                self._end_job()
            raise

    def _end_job(self) -> None:
        with self._changed:
            self._running = False
            self._changed.notify_all()

    def _next(self) -> tuple[str, Job] | None:
        with self._changed:
            while not self._jobs and not self._closing:
                self._changed.wait()
            if not self._jobs:
                return None
            self._running = True
            return self._jobs.popleft()

    def _run(self, name: str, job: Job) -> None:
        try:
            job()
        except BaseException as error:
            is_own_thread = threading.current_thread() is self._thread and os.getpid() == self._pid
            if not isinstance(error, Exception) and not is_own_thread:
                raise  # Ctrl-C, on another thread; or sys.exit() in a child that a job has forked
            self._on_error(name, error)


def _log_error(name: str, error: BaseException) -> None:
    _log.error("%s failed: %s", name, error, exc_info=error)
