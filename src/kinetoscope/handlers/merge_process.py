"""Runs the merge of the node's traces in a process beside training."""

import logging
import sys
from pathlib import Path
from time import monotonic

from kinetoscope.training.once_log import OnceLog
from kinetoscope.writing.side_process import SideProcess

_log = logging.getLogger("kinetoscope")
_LEAST_SECONDS_BETWEEN = 60.0
_WAIT_FOR_RANKS_S = 10.0
_WAIT_FOR_CYCLES_S = 5.0
# A process that ends just as the time is up may not have noticed that nobody waits for it.
_LAST_LOOK_S = 0.25


class MergeProcess:
    """Runs ``python -m kinetoscope merge --from-manifest``, one at a time, at low priority.

    A process that still runs when nobody waits for it any more finishes by itself. If it was started beside training,
    it then merges once more, with what was saved since, and uploads the merged file: ``upload`` is the rank whose queue
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
        self._command = [sys.executable, "-m", "kinetoscope", "merge", "--from-manifest", str(folder), str(output)]
        self._command += ["--node-rank", str(node_rank), "--attempt-of", start, "--run-folder", str(run_folder)]
        self._command += ["--as-list"] * as_list
        self._command += [] if upload is None else ["--upload-if-left", str(upload[0]), upload[1]]
        self._process = SideProcess(self._report)
        self._last_start = monotonic()
        self._failed = False
        self._once = OnceLog()

    def start_if_due(self) -> None:
        """Merges the saved traces, unless a merge started within the last minute or is running."""
        if monotonic() - self._last_start >= _LEAST_SECONDS_BETWEEN and not self._process.is_running:
            self._start("--again-if-left", str(_WAIT_FOR_RANKS_S))

    def finish(self, timeout_s: float, num_cycles: int | None = None) -> bool:
        """Merges at the end of the run. Returns whether the merged file is there.

        The process waits for the node's other ranks, except for those that have saved ``num_cycles``. This call waits
        for the process at most ``timeout_s`` seconds; after that the process finishes by itself.
        """
        until = monotonic() + timeout_s
        if self._process.wait(until):
            if num_cycles is None:
                self._start("--wait", str(_WAIT_FOR_RANKS_S))
            else:
                self._start("--wait", str(_WAIT_FOR_CYCLES_S), "--cycles", str(num_cycles))
        if not self._process.wait(until):
            self._process.leave()
        if not self._process.wait(until + _LAST_LOOK_S):
            _log.warning("Merging into %s goes on in process %d.", self._output, self._process.pid)
            return False
        return not self._failed and self._output.exists()

    def _start(self, *options: str) -> None:
        self._last_start = monotonic()
        try:
            self._process.start([*self._command, *options])
        except OSError as error:
            self._failed = True
            _log.error("Merging into %s cannot be started: %s.", self._output, error)

    def _report(self, status: int, errors: str) -> None:
        self._failed = status != 0
        if status:
            _log.error("Merging into %s failed: %s", self._output, errors or f"exit status {status}")
        elif errors:
            self._once.warn("%s", errors, about=errors)
