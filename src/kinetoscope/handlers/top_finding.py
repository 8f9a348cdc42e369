"""Search for the top finding of a run that was just saved, in a background process, which may write a report."""

import json
import sys
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any

from kinetoscope.core.background.background_process import BackgroundProcess
from kinetoscope.core.background.jobs import job_command
from kinetoscope.core.paths.atomic_file import remove_partials
from kinetoscope.core.paths.short_paths import short_path
from kinetoscope.core.text.wording import describe_failure, sanitize_sentence
from kinetoscope.recording.messages.end_report import REPORT

MAX_SECONDS = 2.0
"""The time limit of the process: devices are idle meanwhile."""

MAX_SECONDS_WATCHED = 10.0
"""The limit where a user is watching the terminal."""

MAX_SECONDS_WITH_REPORT = 30.0
"""The time limit where it writes a report, too."""


class TopFindingSearch:
    """A search in a process of low priority that runs ``kinetoscope.cli.top_finding_job``, once.

    The process is ended when the time is up, at Ctrl-C, and by `give_up`. It ends by itself if this process is killed.
    With ``writes_report``, it writes ``report.html`` into the folder of the run. Its results are kept in the user's
    cache; if it is ended before, the next command on the run continues the search.
    """

    def __init__(self, *, writes_report: bool = False) -> None:
        self.writes_report = writes_report
        self._process = BackgroundProcess(self._on_end, keeps_output=True)
        self._has_given_up = False
        self._reason = ""
        self.report: Path | None = None
        """The report that was written."""
        self.findings: list[str] = []
        """All findings as sentences, if a report was written."""

    def find(self, folder: Path, timeout_s: float, *, is_watching: bool = False) -> str:
        """Return the top finding on the traces in ``folder`` as a sentence, and the path of a report.

        It is "" if there is none, or none in time.
        """
        # In a frozen application, sys.executable is the user's program.
        is_possible = not getattr(sys, "frozen", False)
        max_s = MAX_SECONDS_WATCHED if is_watching else MAX_SECONDS
        if self.writes_report:
            max_s = MAX_SECONDS_WITH_REPORT
        if is_possible and timeout_s > 0 and not self._has_given_up:
            self._reason = "it was not ready in time"
            self._run(folder, monotonic() + min(timeout_s, max_s))
        finding, report = [*map(json.loads, self._process.output.splitlines()[:2]), None, None][:2]
        sentences = [_sentence(**finding)] if finding else []
        if self.writes_report and not self._has_given_up:
            sentences.append(self._describe_report(folder, report))
        return " ".join(sentences)

    def _run(self, folder: Path, until: float) -> None:
        report = str(_report_of(folder)) if self.writes_report else None
        try:
            self._process.start(job_command("kinetoscope.cli.top_finding_job", str(folder), report))
            if self._has_given_up:  # while it was being started
                self._process.kill()
            self._process.wait(until)
        except OSError:  # no process can be started: the run is saved all the same, so this is not reported
            pass
        finally:
            self._process.kill_and_wait()
            if self.writes_report:
                remove_partials(_report_of(folder).parent)

    def give_up(self) -> None:
        """End the process, and prevent new ones; a signal handler may call this during `find`."""
        self._has_given_up = True
        self._process.kill()

    def _on_end(self, status: int, errors: str) -> None:
        if status:
            self._reason = describe_failure(status, errors)

    def _describe_report(self, folder: Path, report: dict[str, Any] | None) -> str:
        path = _report_of(folder)
        if report is None:
            reason = f": {sanitize_sentence(self._reason).rstrip('.')}" if self._reason else ""
            return f"No report{reason}; to write it, run kinetoscope report {quote(short_path(path.parent))}."
        self.report, self.findings = path, report["findings"]
        num_ranks, world_size = report["num_ranks"], report["world_size"] or 0
        ranks = f" on {num_ranks:,} of {world_size:,} ranks" if num_ranks < world_size else ""
        return f"Report{ranks}: {short_path(path)}."


def _report_of(folder: Path) -> Path:
    """Return the path of the report of a run whose traces are in ``folder``."""
    return (folder.parent if folder.name == "traces" else folder) / REPORT


def _sentence(title: str, saving: str) -> str:
    return f"Top finding: {sanitize_sentence('; '.join(filter(None, [title, saving])))}."
