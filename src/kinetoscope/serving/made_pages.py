"""Has the report on a run, or on one compared with another, made by a process beside the server."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from kinetoscope.serving.runs import FoundRun
from kinetoscope.texts.wording import reason_of_error
from kinetoscope.writing.side_process import SideProcess

_MOST_KEPT = 8
_POLL_S = 0.1


@dataclass(slots=True)
class MadePage:
    """A page that is being made, or is in the file ``path``, or cannot be made because of a ``problem``."""

    path: Path
    since: float
    is_ready: bool = False
    problem: str = ""

    @property
    def seconds(self) -> int:
        """How long it has been waited for."""
        return int(monotonic() - self.since)


class MadePages:
    """Runs ``command`` with a file in ``folder`` and the names of one or two runs, which writes a page there.

    One page is made at a time. A page is made again when its runs have changed, and when it is asked for after its
    problem was told; few of those that are made are kept.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder, self._command = folder, command
        self._pages: dict[tuple[tuple[str, str], ...], MadePage] = {}
        self._lock, self._one_at_a_time, self._closed = Lock(), Lock(), Event()
        self._threads: list[Thread] = []
        self._number = 0

    def get(self, runs: Sequence[FoundRun]) -> MadePage:
        """The page on the last of these runs, compared with the one before it, if there are two; ready or not. It is
        as it was when it was asked for."""
        key = tuple((run.name, run.made_from) for run in runs)
        with self._lock:
            if (page := self._pages.pop(key, None)) is None:
                self._number += 1
                page = MadePage(self._folder / f"{self._number}.html", monotonic())
                thread = Thread(target=self._make, args=(page, [name for name, _ in key]), daemon=True)
                self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
                thread.start()
            now = replace(page)  # a problem that comes after this line is told the next time
            if not now.problem:
                self._pages[key] = page  # the one that was asked for last is the last
            self._forget_old()
            return now

    def close(self) -> None:
        """Ends the process, if one runs."""
        self._closed.set()
        for thread in self._threads:
            thread.join()

    def _forget_old(self) -> None:
        """Of the pages that are made, deletes those that were not asked for longest. One that is being made stays:
        whoever waits for it would start it again."""
        made = [key for key, page in self._pages.items() if page.is_ready or page.problem]
        for key in made[:-_MOST_KEPT]:
            self._pages.pop(key).path.unlink(missing_ok=True)

    def _make(self, page: MadePage, names: list[str]) -> None:
        with self._one_at_a_time:
            process = SideProcess(lambda status, errors: self._end(page, errors))
            with suppress(OSError):
                if not self._closed.is_set():
                    process.start([*self._command, json.dumps([str(page.path), *names])])
                while not process.wait(monotonic() + _POLL_S) and not self._closed.is_set():
                    pass
            process.end()
        if not page.is_ready and not page.problem:
            page.problem = "No process could be started, or it was ended."

    def _end(self, page: MadePage, errors: str) -> None:
        if page.path.exists():
            page.is_ready = True
        else:
            page.problem = reason_of_error(errors)
