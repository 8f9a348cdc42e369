"""Missing rows of runs, computed by a process of low priority, so that the server does not load the analysis."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from threading import Lock

from kinetoscope.formats.run_row import read_row
from kinetoscope.server.job_queue import Job, JobQueue
from kinetoscope.server.run_search import FoundRun

_MAX_BATCH_SIZE = 20
_TIMEOUT_S = 600.0


class RowFiller:
    """Queue of runs without a row; it runs ``command`` with batches of names of runs in ``folder``, as JSON.

    The command writes a row of each run into the user's cache, in their order. It runs once for each state of a run,
    and once more with that run alone, if the process may have ended before that run.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder = folder
        self._requested: dict[str, str] = {}
        self._attempted: set[tuple[str, str]] = set()
        self._to_run_alone: set[tuple[str, str]] = set()
        self._running: frozenset[str] = frozenset()
        self._lock = Lock()
        self._queue = JobQueue(command, self._take_job, timeout_s=_TIMEOUT_S)

    def request_rows(self, runs: Iterable[FoundRun]) -> None:
        """Set the runs without known numbers, the most wanted first."""
        with self._lock:
            states = ((run.name, run.content_hash) for run in runs)
            self._requested = dict(state for state in states if state not in self._attempted)
            if self._requested:
                self._queue.wake()

    def is_pending(self, name: str) -> bool:
        """Return whether the row of a run is queued or in progress."""
        return name in self._requested or name in self._running

    def close(self) -> None:
        """End the process, if one runs."""
        self._queue.close()

    def _take_job(self) -> Job | None:
        with self._lock:
            batch = self._choose_batch()
            self._running = frozenset(batch)
            self._requested = {name: state for name, state in self._requested.items() if name not in batch}
            self._attempted |= set(batch.items())
            return Job(list(batch), partial(self._handle_end, batch)) if batch else None

    def _choose_batch(self) -> dict[str, str]:
        """Return runs for the next job, or a single one that must run alone."""
        states = list(self._requested.items())
        together = takewhile(lambda state: state not in self._to_run_alone, states)
        return dict(islice(together, _MAX_BATCH_SIZE)) or dict(states[:1])

    def _handle_end(self, batch: dict[str, str], status: int | None, errors: str) -> None:
        """Queue unfinished runs again, each alone, if the process died of a run.

        Without a writable cache all seem unfinished; running each alone prevents endless repetition.
        """
        del errors
        if status == 0:
            return
        left = [state for state in batch.items() if read_row(self._folder / state[0], state[1]) is None]
        with self._lock:
            self._attempted -= set(left[1:])
            self._to_run_alone |= set(left[1:])
