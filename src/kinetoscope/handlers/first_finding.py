"""Looks for the first finding on a run that was just saved, in a process beside training."""

import importlib.util
import json
import sys
from pathlib import Path
from time import monotonic

from kinetoscope.training.wording import printable
from kinetoscope.writing.side_process import SideProcess

MOST_SECONDS = 10.0
"""How long the process may take."""


class FirstFinding:
    """Runs ``python -m kinetoscope summary --first`` on the traces, once, at low priority.

    The process is ended when the time is up, at Ctrl-C, and by `give_up`. It ends by itself if this process is killed.
    """

    def __init__(self) -> None:
        self._process = SideProcess(self._take, keeps_output=True)
        self._has_given_up = False
        self._found = ""

    def find(self, folder: Path, timeout_s: float) -> str:
        """The first finding on the traces in ``folder``, as a sentence; "" if there is none, or none in time."""
        # In a frozen application, sys.executable is the user's program.
        is_possible = importlib.util.find_spec("polars") is not None and not getattr(sys, "frozen", False)
        if is_possible and timeout_s > 0 and not self._has_given_up:
            self._run(folder, monotonic() + min(timeout_s, MOST_SECONDS))
        return self._found

    def _run(self, folder: Path, until: float) -> None:
        try:
            self._process.start([sys.executable, "-m", "kinetoscope", "summary", "--first", "--no-cache", str(folder)])
            self._process.wait(until)
        except OSError:  # no process can be started: a run that was saved is no place for an error about that
            pass
        finally:
            self._process.end()

    def give_up(self) -> None:
        """Ends the process, and lets none be started. A signal handler may call this during `find`."""
        self._has_given_up = True
        self._process.kill()

    def _take(self, status: int, errors: str) -> None:
        del errors
        if status == 0 and (finding := json.loads(self._process.output)):
            self._found = _sentence(finding["title"], finding["saving_ns_per_step"])


def _sentence(title: str, saving_ns: int | None) -> str:
    saving_ms = (saving_ns or 0) / 1e6
    saving = f"{saving_ms:,.1f}" if saving_ms >= 1 else f"{saving_ms:.2g}"
    return f"{printable(title)}." + (f" Mending it would save {saving} ms a step." if saving_ns else "")
