"""Last lines of a run: the saved files, the top finding and the next command, or the reason why there are none."""

import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Protocol

from kinetoscope.core.paths.short_paths import short_path
from kinetoscope.core.text.wording import format_count
from kinetoscope.formats.trace_redaction import Replace
from kinetoscope.recording.markers.schedule import CyclicSchedule, PulseOnly
from kinetoscope.recording.messages.console import MessageSink, find_message_sink
from kinetoscope.recording.window.trace_handler import run_folder_of

REPORT = "report.html"
"""Name of the report in the folder of a run."""

_log = logging.getLogger("kinetoscope")


class FindingSearch(Protocol):
    """Search for the top finding on a run that was saved, for the report at its end."""

    @property
    def writes_report(self) -> bool:
        """True if `find` also writes a report, which is wanted even if nothing is shown."""
        ...

    def find(self, folder: Path, timeout_s: float, *, is_watching: bool = False) -> str:
        """Return the top finding on the traces in ``folder`` as a sentence; "" if there is none, or none in time.

        The search may take longer if someone ``is_watching`` the terminal.
        """
        ...

    def give_up(self) -> None:
        """End `find` at once, also in a signal handler; later calls find nothing."""
        ...


class FindTopFinding(Protocol):
    """A search for the top finding, as a function."""

    def __call__(self, *, is_watching: bool) -> str:
        """Return the finding as a sentence; "" if there is none, or none in time.

        The search may take longer if someone ``is_watching``.
        """
        ...


@dataclass(slots=True)
class RunCounts:
    """Counts of a run at its end.

    Attributes:
        num_batches: the batches that have ended.
        num_past: those of them that had ended before the run started.
        longest_epoch: the batches of the longest epoch.
        num_windows: the windows that have closed.
        num_saved: the windows that handlers have saved.
        num_unsaved: the windows that can still be saved.
        num_missed: the windows that will never be saved.
        num_delivered: the single events and files that handlers have received.
    """

    num_batches: int = 0
    num_past: int = 0
    longest_epoch: int = 0
    num_windows: int = 0
    num_saved: int = 0
    num_unsaved: int = 0
    num_missed: int = 0
    num_delivered: int = 0

    @property
    def is_empty_run(self) -> bool:
        """True if handlers received nothing, or a window was not saved."""
        return not self.num_saved and (bool(self.num_unsaved) or not self.num_delivered)


class EndReport:
    """Report on a run, shown once unless ``is_quiet``: first what was saved, and later the top finding.

    If nothing was saved, the reason is always logged. ``redact``, if given, replaces names in it.
    """

    def __init__(
        self,
        counts: RunCounts,
        schedule: object,
        handlers: Iterable[object],
        redact: Replace | None = None,
        *,
        is_quiet: bool,
    ) -> None:
        self._counts, self._schedule, self._handlers = counts, schedule, list(handlers)
        self._redact: Replace = redact or str
        self._sink: MessageSink | None = (
            None if is_quiet or counts.is_empty_run else find_message_sink(self._list_linkable())
        )

    def show(self) -> None:
        """Show what was saved, or the reason why nothing was."""
        if self._counts.is_empty_run:
            reason = explain_empty_run(self._schedule, self._counts, self._redact(uncaught_error_name()))
            if not isinstance(self._schedule, PulseOnly):
                _log.warning(reason)
            self._write_reason(reason)
        elif self._sink is not None:
            for path in find_lost_folders(self._handlers):
                _log.warning("The traces in %s were deleted or moved during the run.", short_path(path))
            self._sink.show(describe_saved(self._counts, self._handlers))

    def show_finding(self, find: FindTopFinding, *, always: bool = False) -> None:
        """Show the top finding, and the next command.

        ``find`` is called only if the report is shown, or with ``always`` if anything was recorded.
        """
        sink, finding = self._sink, ""
        if sink is not None or (always and not self._counts.is_empty_run):
            finding = find(is_watching=sink is not None and sink.is_watched)
        if sink is None:
            return
        if self._counts.num_unsaved:
            finding = " ".join(
                filter(None, [finding, f"{format_count(self._counts.num_unsaved, 'window')} could not be saved."])
            )
        command = self._choose_command(sink)
        if finding or command:
            sink.show(finding, command)

    def _write_reason(self, reason: str) -> None:
        """Write the reason to the folders of traces, where commands and the list of runs read it."""
        for handler in self._handlers:
            if (record := getattr(handler, "record_empty_run", None)) is not None:
                with suppress(OSError):  # a full disk: it was logged
                    record(reason)

    def _choose_command(self, sink: MessageSink) -> str:
        run_folder = run_folder_of(self._handlers)
        if self._counts.num_unsaved and run_folder is not None:
            return f"kinetoscope recover {quote(short_path(run_folder))}"
        paths = self._list_trace_folders()
        return next_command(run_folder or paths[0], in_notebook=sink.is_notebook) if paths else ""

    def _list_trace_folders(self) -> list[Path]:
        return _list_saved(self._handlers)

    def _list_linkable(self) -> list[Path]:
        """Return the files to which messages may link."""
        run_folder = run_folder_of(self._handlers)
        return self._list_trace_folders() + ([] if run_folder is None else [run_folder / REPORT])


def describe_saved(counts: RunCounts, handlers: Iterable[object]) -> str:
    """Return the number of recorded windows, and the files that contain them (the handlers' ``saved_to``)."""
    paths = _list_saved(handlers)
    location = f", saved to {' and '.join(map(short_path, paths))}" if paths else ""
    amount = (
        format_count(counts.num_saved, "window") if counts.num_saved else format_count(counts.num_delivered, "event")
    )
    return f"{amount} recorded in {format_count(counts.num_batches, 'batch')}{location}"


def next_command(folder: Path, *, in_notebook: bool) -> str:
    """Return the command that shows the findings on a run: for a shell, or for the next cell of a notebook."""
    path = short_path(folder)
    return f"kinetoscope.view({path!r})" if in_notebook else f"kinetoscope summary {quote(path)}"


def _list_saved(handlers: Iterable[object]) -> list[Path]:
    """Return the paths where handlers have saved traces that still exist."""
    handlers = list(handlers)
    lost = find_lost_folders(handlers)
    paths = [path for handler in handlers if isinstance(path := getattr(handler, "saved_to", None), Path)]
    return [path for path in paths if path not in lost]


def find_lost_folders(handlers: Iterable[object]) -> list[Path]:
    """Return the folders of handlers whose traces were all deleted or moved during the run."""
    lost = (handler for handler in handlers if getattr(handler, "has_lost_traces", False))
    return [path for handler in lost if isinstance(path := getattr(handler, "saved_to", None), Path)]


def uncaught_error_name() -> str:
    """Return the name of the exception that has ended this program; "" if none has, or it is still running."""
    error = getattr(sys, "last_value", None)
    return "" if error is None else type(error).__name__


def is_ended_by_exception() -> bool:
    """Return whether an exception has ended this program; Ctrl-C and a call of ``sys.exit`` are none."""
    return isinstance(getattr(sys, "last_value", None), Exception)


def explain_empty_run(schedule: object, counts: RunCounts, error: str = "") -> str:
    """Return the reason why a run recorded nothing, and the remedy.

    An ``error``, the name of an exception that ended the run, needs no other advice.
    """
    if counts.num_unsaved or counts.num_missed:
        return "No recorded window was saved. The errors above give the reason."
    return f"Nothing was recorded: {_explain_schedule(schedule, counts, error)}"


def _explain_schedule(schedule: object, counts: RunCounts, error: str) -> str:
    """Return the reason why no window was recorded, as the end of a sentence."""
    if counts.num_windows:
        return "no marker, source or loop had anything to record while recording was on."
    if counts.num_batches == 0:
        return (
            "no step() was called, and no loop over batches() ended a batch. Write `for batch in "
            "profiler.batches(loader):`, or call profiler.step() at the end of each batch."
        )
    if isinstance(schedule, PulseOnly):
        return f"{schedule.reason}."
    if not isinstance(schedule, CyclicSchedule):
        return f"the schedule returned skip for {_name_batches(counts.num_batches)}."
    first = schedule.plan.first_recorded + 1 + counts.num_past
    if error:
        num_batches = format_count(counts.num_batches, "batch")
        return f"the program ended with {error} after {num_batches}; the first to record is {first:,}."
    if schedule.per == "run":
        had = f"the first batch to record is {first:,}; the run had {counts.num_batches:,}."
        return f"{had} {schedule.advice}"
    return (
        f"the first batch to record is {first:,}; the longest epoch had {counts.longest_epoch:,}. {schedule.advice} To "
        'count batches across epochs pass per="run" to cyclic_schedule.'
    )


def _name_batches(num_batches: int) -> str:
    return "the only batch" if num_batches == 1 else f"each of the {num_batches:,} batches"
