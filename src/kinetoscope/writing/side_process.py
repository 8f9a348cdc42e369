"""writing: a process beside training. Commands flow in, one at a time; how each ended flows out."""

import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from time import monotonic

_NICENESS = 10


class SideProcess:
    """Runs one command at a time, and tells ``on_end(status, errors)`` of each: its exit status, and what it wrote to
    stderr.

    The command gets a session of its own: a signal to the training's process group must not end what saves its traces.
    Its stdin is a pipe that nothing is written to: once that is closed, nobody waits for it any more (`is_left`).
    """

    def __init__(self, on_end: Callable[[int, str], None]) -> None:
        self._on_end = on_end
        self._process: subprocess.Popen[bytes] | None = None
        self._waits_fd: int | None = None

    def start(self, command: Sequence[str]) -> None:
        """Starts ``command`` and returns. Raises OSError if it cannot be started."""
        stdin, self._waits_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError:
            self.leave()
            raise
        finally:
            os.close(stdin)

    def wait(self, until: float) -> bool:
        """Whether no process runs any more at the monotonic second ``until``."""
        if self._process is None:
            return True
        try:
            _, errors = self._process.communicate(timeout=max(0.0, until - monotonic()))
        except subprocess.TimeoutExpired:
            return False
        status, self._process = self._process.returncode, None
        self.leave()
        self._on_end(status, errors.decode(errors="replace").strip())
        return True

    def leave(self) -> None:
        """Tells the process, if one runs, that nobody waits for it any more."""
        if self._waits_fd is not None:
            os.close(self._waits_fd)
            self._waits_fd = None

    @property
    def is_running(self) -> bool:
        return not self.wait(monotonic())

    @property
    def pid(self) -> int:
        """The number of the process that runs; 0 if none does."""
        return self._process.pid if self._process else 0


def give_way() -> None:
    """Leaves the processor to others, such as training, from now on; where a process can do that itself."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)


def is_left() -> bool:
    """Whether this is a side process for which nobody waits any more, or whose starter is dead."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # a pipe's other end going is told unasked
    return any(event & select.POLLHUP for _, event in poll.poll(0))
