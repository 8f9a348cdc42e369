"""Processes that a command has started, found by their session or environment."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

TERM_TIMEOUT_S = 5.0
"""Time between SIGTERM and SIGKILL."""

KILL_TIMEOUT_S = 10.0
"""Time that SIGKILL may take."""

_LAUNCHER_TIMEOUT_S = 0.5
"""The same for what is no Python and has started the process that is spared: GNU make ends only after that."""

_POLL_S = 0.05


@dataclass
class ProcessGroup:
    """The processes below ``leader``, the first process of a session.

    Launchers such as torchrun give ranks sessions of their own. So a process also belongs to the group if ``marker`` is
    in the value of the environment variable ``variable``, which it inherits.
    """

    variable: str
    marker: str
    leader: int | None = None
    _signaled: set[tuple[int, float]] = field(default_factory=set)

    def find(self) -> list[psutil.Process]:
        """Return those that are alive, the oldest first."""
        found = [process for process in psutil.process_iter() if self._has(process)]
        return sorted(found, key=_start_of)

    def _has(self, process: psutil.Process) -> bool:
        if process.pid == os.getpid():
            return False
        with suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            if os.getsid(process.pid) == self.leader:
                return True
            return self.marker in process.environ().get(self.variable, "")
        return False

    def end(self, spare: int | None = None, release: Callable[[], object] | None = None) -> None:
        """End all processes: SIGTERM, and SIGKILL after 5 s.

        The process ``spare`` gets no SIGTERM. ``release`` lets it end by itself; it is called when only Python is left
        besides it, which may wait for it, as torchrun does. A shell would go on with its next line, so it must be gone
        first. All are suspended while they get SIGTERM: none can react to the end of another one.
        """
        started = time.monotonic()
        deadline = started + TERM_TIMEOUT_S
        last = deadline + KILL_TIMEOUT_S
        while (alive := self.find()) and time.monotonic() < last:
            others = [process for process in alive if process.pid != spare]
            is_over = time.monotonic() >= deadline
            self._terminate(others, signal.SIGKILL if is_over else signal.SIGTERM)
            if time.monotonic() >= started + _LAUNCHER_TIMEOUT_S:
                self._terminate(_find_launchers(spare, others), signal.SIGKILL)
            if release is not None and (is_over or all(map(_is_python, others))):
                release()
                release = None
                deadline = max(deadline, time.monotonic() + 1) if is_over else deadline
            elif is_over and release is None:
                self._terminate(alive, signal.SIGKILL)
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """End all processes at once. One that the kernel cannot end, as in a stalled mount, is left after 10 s."""
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while (alive := self.find()) and time.monotonic() < deadline:
            for process in alive:
                _send(process, signal.SIGKILL)
            time.sleep(_POLL_S)

    def _terminate(self, processes: list[psutil.Process], number: signal.Signals) -> None:
        """Send a signal to those that did not get it yet."""
        if number == signal.SIGKILL:
            for process in processes:
                _send(process, number)
            return
        new = [process for process in processes if (process.pid, _start_of(process)) not in self._signaled]
        for one in (signal.SIGSTOP, number, signal.SIGCONT):
            for process in new:
                _send(process, one)
        self._signaled.update((process.pid, _start_of(process)) for process in new)


def _start_of(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return process.create_time()
    return 0.0


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error, OSError):
        process.send_signal(number)  # psutil checks that the pid is the same process


def _is_python(process: psutil.Process) -> bool:
    """Return whether a process runs Python, whatever its script or title is called."""
    with suppress(psutil.Error):
        return os.path.basename(process.exe()).startswith(("python", "pypy"))
    return True


def _find_launchers(spare: int | None, others: list[psutil.Process]) -> list[psutil.Process]:
    """Return those that have started the process ``spare``, directly or not, but for Python."""
    parents: list[psutil.Process] = []
    with suppress(psutil.Error):
        parents = psutil.Process(spare).parents() if spare is not None else []
    return [process for process in others if process in parents and not _is_python(process)]
