"""Has a process of low priority work out what is not known of runs, so that the server needs no analysis."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from kinetoscope.formats.run_row import read_row
from kinetoscope.serving.runs import FoundRun
from kinetoscope.writing.side_process import SideProcess

_AT_ONCE = 20
_POLL_S = 0.1
_LONGEST_S = 600.0


class RowFiller:
    """Runs ``command`` with the names of runs in ``folder``, some at a time, as JSON, until all wanted ones were tried.

    The command keeps a row of each of them in the user's cache, in their order. It is tried once for each state of a
    run, and once more, alone, where the process may have ended before it came to that run. It runs in one process at a
    time, which ends when this one does, however that ends.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder, self._command = folder, command
        self._wanted: dict[str, str] = {}
        self._tried: set[tuple[str, str]] = set()
        self._alone: set[tuple[str, str]] = set()
        self._at_work: frozenset[str] = frozenset()
        self._lock, self._closed = Lock(), Event()
        self._thread: Thread | None = None

    def want(self, runs: Iterable[FoundRun]) -> None:
        """Says of which runs nothing is known, those first that are wanted first."""
        with self._lock:
            states = ((run.name, run.made_from) for run in runs)
            self._wanted = dict(state for state in states if state not in self._tried)
            if self._wanted and self._thread is None and not self._closed.is_set():
                self._thread = Thread(target=self._work, name="kinetoscope view: rows", daemon=True)
                self._thread.start()

    def is_waiting_for(self, name: str) -> bool:
        """Whether the row of a run will be tried, or just is."""
        return name in self._wanted or name in self._at_work

    def close(self) -> None:
        """Ends the process, if one runs."""
        self._closed.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            if not self._fill(list(batch)):
                self._give_back_untried(batch)

    def _next_batch(self) -> dict[str, str]:
        with self._lock:
            batch = {} if self._closed.is_set() else self._first_wanted()
            self._at_work = frozenset(batch)
            self._wanted = {name: state for name, state in self._wanted.items() if name not in batch}
            self._tried |= set(batch.items())
            if not batch:
                self._thread = None
            return batch

    def _first_wanted(self) -> dict[str, str]:
        """Some runs to try at once, or one that is tried alone."""
        states = list(self._wanted.items())
        together = takewhile(lambda state: state not in self._alone, states)
        return dict(islice(together, _AT_ONCE)) or dict(states[:1])

    def _fill(self, names: list[str]) -> bool:
        """Whether a process has tried all of the runs, and was not ended before."""
        statuses: list[int] = []
        process = SideProcess(lambda status, errors: statuses.append(status))
        until = monotonic() + _LONGEST_S
        with suppress(OSError):  # no process can be started: then nothing more is known
            process.start([*self._command, json.dumps(names)])
            while not process.wait(monotonic() + _POLL_S) and not self._closed.is_set() and monotonic() < until:
                pass
        process.end()
        return statuses == [0]

    def _give_back_untried(self, batch: dict[str, str]) -> None:
        """If the process died of a run, those after it were not tried. Where no row can be kept, nobody knows which
        those are. So each is tried alone: then none is tried again and again."""
        left = [state for state in batch.items() if read_row(self._folder / state[0], state[1]) is None]
        with self._lock:
            self._tried -= set(left[1:])
            self._alone |= set(left[1:])
