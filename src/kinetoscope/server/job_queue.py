"""Jobs of the server in processes of low priority, so that the server does not load the analysis."""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from time import monotonic

from kinetoscope.core.background.background_process import BackgroundProcess

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Job:
    """Arguments of a command, as JSON, and a callback for its exit status and stderr.

    The status is None if no process could be started, or if the queue ended it.
    """

    names: list[str]
    on_end: Callable[[int | None, str], object]


class JobQueue:
    """Queue that runs ``command`` for the jobs of ``next_job``, one at a time, until it returns None.

    The process of a job is killed after ``timeout_s`` seconds, and ends with this process in any case.
    """

    def __init__(
        self, command: Sequence[str], next_job: Callable[[], Job | None], *, timeout_s: float = math.inf
    ) -> None:
        self._command, self._take_job, self._timeout_s = command, next_job, timeout_s
        self._lock, self._due, self._closed = Lock(), Event(), Event()
        self._thread: Thread | None = None

    def wake(self) -> None:
        """Run the jobs that there are by now."""
        self._due.set()
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = Thread(target=self._work, name="jobs of kinetoscope view", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Kill the process of the running job, if there is one, and start no more."""
        with self._lock:
            self._closed.set()
            self._due.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        """Run jobs until the queue is closed."""
        while not self._closed.is_set():
            if (job := self._take_job()) is not None:
                self._run(job)
            else:
                self._due.wait()
                self._due.clear()

    def _run(self, job: Job) -> None:
        """Run one job, and call its callback."""
        ends: list[tuple[int | None, str]] = [(None, "")]
        process = BackgroundProcess(lambda status, errors: ends.append((status, errors)))
        until = monotonic() + self._timeout_s
        with suppress(OSError):
            process.start([*self._command, json.dumps(job.names)])
            while not process.wait(monotonic() + _POLL_S) and not self._closed.is_set() and monotonic() < until:
                pass
        process.kill_and_wait()
        job.on_end(*ends[-1])
