"""Reports on a run, or on one compared with another, that a background process writes."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic

from kinetoscope.core.text.wording import describe_failure
from kinetoscope.server.job_queue import Job, JobQueue
from kinetoscope.server.run_search import FoundRun

_MAX_KEPT = 8


@dataclass(slots=True)
class BuiltReport:
    """A report page that is being written, is in the file ``path``, or failed because of a ``problem``."""

    path: Path
    since: float
    is_ready: bool = False
    problem: str = ""

    @property
    def seconds(self) -> int:
        """Seconds since the first request."""
        return int(monotonic() - self.since)


class ReportBuilder:
    """Builder that runs ``command`` with a file in ``folder`` and the names of one or two runs, which writes a page.

    One page is written at a time. It is written again when its runs have changed, and when it is requested after its
    problem was returned; only the last ones are kept.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder = folder
        self._pages: dict[tuple[tuple[str, str], ...], BuiltReport] = {}
        self._waiting: deque[tuple[BuiltReport, list[str]]] = deque()
        self._lock = Lock()
        self._queue = JobQueue(command, self._take_job)
        self._number = 0

    def get(self, runs: Sequence[FoundRun]) -> BuiltReport:
        """Return the page on the last of these runs, compared with the one before it, if there are two.

        It may not be ready; it is returned as it was when it was requested.
        """
        key = tuple((run.name, run.content_hash) for run in runs)
        with self._lock:
            if (page := self._pages.pop(key, None)) is None:
                self._number += 1
                page = BuiltReport(self._folder / f"{self._number}.html", monotonic())
                self._waiting.append((page, [name for name, _ in key]))
                self._queue.wake()
            now = replace(page)  # a later problem is returned by the next request
            if not now.problem:
                self._pages[key] = page  # moved to the end: the order is that of last requests
            self._delete_old()
            return now

    def close(self) -> None:
        """End the process, if one runs."""
        self._queue.close()

    def _delete_old(self) -> None:
        """Delete the finished pages that were requested least recently.

        A page in progress is kept: a browser that waits for it would start it again.
        """
        finished = [key for key, page in self._pages.items() if page.is_ready or page.problem]
        for key in finished[:-_MAX_KEPT]:
            self._pages.pop(key).path.unlink(missing_ok=True)

    def _take_job(self) -> Job | None:
        with self._lock:
            if not self._waiting:
                return None
            page, names = self._waiting.popleft()
            return Job([str(page.path), *names], partial(self._handle_end, page))

    def _handle_end(self, page: BuiltReport, status: int | None, errors: str) -> None:
        """Record the result of a job."""
        if status is None:
            page.problem = "No process could be started, or it was ended."
        elif page.path.exists():
            page.is_ready = True
        else:
            page.problem = describe_failure(status, errors)
