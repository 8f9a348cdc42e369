"""Background process that merges the traces of a node."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from kinetoscope.core.background.background_process import BackgroundProcess
from kinetoscope.core.background.jobs import job_command
from kinetoscope.core.text.once_log import OnceLog
from kinetoscope.core.text.wording import describe_failure

_log = logging.getLogger("kinetoscope")
_MIN_SECONDS_BETWEEN = 60.0
_WAIT_FOR_RANKS_S = 10.0
_SHARE_FOR_RANKS = 0.7  # of the time that a close waits; the rest is for the merge
_WAIT_FOR_CYCLES_S = 5.0
# A process that ends just as the time is up may not have noticed that it is detached.
_LAST_CHECK_S = 0.25


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Arguments of `merge_or_link`, and what to do after it if the run has not waited for it."""

    folder: str
    output: str
    run_folder: str
    node_rank: int
    start: str
    as_list: bool
    upload: tuple[int, str] | None
    """The rank whose queue the merged file goes into, and its URL."""
    wait_s: float = 0.0
    num_cycles: int | None = None
    again_s: float | None = None
    """The limit of waiting for other ranks when traces saved meanwhile are merged, too; None: they are not."""


class MergeProcess:
    """A process that runs ``kinetoscope.handlers.merge_job``, one at a time, at low priority.

    A process that still runs when the run ends finishes by itself. If it was started during training, it then merges
    once more, with the traces that were saved since, and uploads the merged file: ``upload`` is the rank whose queue
    the file goes into, and the URL.
    """

    def __init__(
        self,
        folder: Path,
        output: Path,
        *,
        node_rank: int,
        start: str,
        run_folder: Path,
        as_list: bool = False,
        upload: tuple[int, str] | None = None,
    ) -> None:
        self._output = output
        self._task = MergeTask(str(folder), str(output), str(run_folder), node_rank, start, as_list, upload)
        self._process = BackgroundProcess(self._report)
        self._last_start = monotonic()
        self._failed = False
        self._once = OnceLog()

    def start_if_due(self) -> None:
        """Merge the saved traces, unless a merge started within the last minute or is running."""
        if monotonic() - self._last_start >= _MIN_SECONDS_BETWEEN and not self._process.is_running:
            self._start(again_s=_WAIT_FOR_RANKS_S)

    def finish(self, timeout_s: float, num_cycles: int | None = None) -> bool:
        """Merge at the end of the run; return whether the merged file exists.

        The process waits for the node's other ranks, except for those that have saved ``num_cycles``. This call waits
        for the process at most ``timeout_s`` seconds; after that the process finishes by itself.
        """
        until = monotonic() + timeout_s
        if self._process.wait(until):
            if num_cycles is None:
                self._start(wait_s=min(_WAIT_FOR_RANKS_S, _SHARE_FOR_RANKS * timeout_s))
            else:
                self._start(wait_s=_WAIT_FOR_CYCLES_S, num_cycles=num_cycles)
        if not self._process.wait(until):
            self._process.detach()
        if not self._process.wait(until + _LAST_CHECK_S):
            _log.warning("Merging into %s continues in process %d.", self._output, self._process.pid)
            return False
        return not self._failed and self._output.exists()

    def _start(self, *, wait_s: float = 0.0, num_cycles: int | None = None, again_s: float | None = None) -> None:
        self._last_start = monotonic()
        task = dataclasses.replace(self._task, wait_s=wait_s, num_cycles=num_cycles, again_s=again_s)
        try:
            self._process.start(job_command("kinetoscope.handlers.merge_job", dataclasses.asdict(task)))
        except OSError as error:
            self._failed = True
            _log.error("Merging into %s cannot be started: %s.", self._output, error)

    def _report(self, status: int, errors: str) -> None:
        self._failed = status != 0
        if status:
            _log.error("Merging into %s failed: %s", self._output, describe_failure(status, errors))
        elif errors:
            self._once.warn("%s", errors, about=errors)
