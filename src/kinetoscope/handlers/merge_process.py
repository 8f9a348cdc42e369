"""handlers: the merging process. It writes the node's merged trace beside training, not inside it."""

import logging
import subprocess
import sys
from pathlib import Path
from time import monotonic

_log = logging.getLogger("kinetoscope")
_LEAST_SECONDS_BETWEEN = 60.0
_WAIT_FOR_RANKS_S = 10.0


class MergeProcess:
    """Runs ``python -m kinetoscope merge --from-manifest`` for one folder, one at a time, at low priority."""

    def __init__(self, folder: Path, output: Path, node_rank: int, attempt: str) -> None:
        self._folder = folder
        self._output = output
        self._node_rank = node_rank
        self._attempt = attempt
        self._process: subprocess.Popen[bytes] | None = None
        self._last_start = monotonic()

    def start_if_due(self) -> None:
        """Merges what is there, unless that was done within the last minute or is being done now."""
        if monotonic() - self._last_start >= _LEAST_SECONDS_BETWEEN and not self._is_running():
            self._start(wait_s=0.0)

    def finish(self, timeout_s: float) -> None:
        """Merges for the last time. The process waits for the node's other ranks; this call waits for the process, at
        most ``timeout_s`` seconds, and leaves it to finish by itself after that."""
        until = monotonic() + timeout_s
        if self._wait(until):
            self._start(_WAIT_FOR_RANKS_S)
        if not self._wait(until):
            _log.warning("Merging into %s goes on in process %d.", self._output, self._pid())

    def _start(self, wait_s: float) -> None:
        self._last_start = monotonic()
        command = [sys.executable, "-m", "kinetoscope", "merge", "--from-manifest", str(self._folder)]
        command += [str(self._output), "--node-rank", str(self._node_rank), "--wait", str(wait_s)]
        command += ["--attempt", self._attempt]
        # A session of its own: a signal to the training's process group must not end the merge that saves its traces.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )

    def _wait(self, until: float) -> bool:
        """Whether no process runs any more at ``until``."""
        if self._process is None:
            return True
        try:
            _, errors = self._process.communicate(timeout=max(0.0, until - monotonic()))
        except subprocess.TimeoutExpired:
            return False
        self._report(self._process.returncode, errors.decode(errors="replace").strip())
        self._process = None
        return True

    def _is_running(self) -> bool:
        return not self._wait(monotonic())

    def _report(self, status: int, errors: str) -> None:
        if status:
            _log.error("Merging into %s failed: %s", self._output, errors or f"exit status {status}")

    def _pid(self) -> int:
        return self._process.pid if self._process else 0
