"""writing: a process beside training. Commands flow in, one at a time; how each ended flows out."""

import subprocess
from collections.abc import Callable, Sequence
from time import monotonic


class SideProcess:
    """Runs one command at a time, and tells ``on_end(status, errors)`` of each: its exit status, and what it wrote to
    stderr.

    The command gets a session of its own: a signal to the training's process group must not end what saves its traces.
    """

    def __init__(self, on_end: Callable[[int, str], None]) -> None:
        self._on_end = on_end
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> None:
        """Starts ``command`` and returns. Raises OSError if it cannot be started."""
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )

    def wait(self, until: float) -> bool:
        """Whether no process runs any more at the monotonic second ``until``."""
        if self._process is None:
            return True
        try:
            _, errors = self._process.communicate(timeout=max(0.0, until - monotonic()))
        except subprocess.TimeoutExpired:
            return False
        status, self._process = self._process.returncode, None
        self._on_end(status, errors.decode(errors="replace").strip())
        return True

    @property
    def is_running(self) -> bool:
        return not self.wait(monotonic())

    @property
    def pid(self) -> int:
        """The number of the process that runs; 0 if none does."""
        return self._process.pid if self._process else 0
