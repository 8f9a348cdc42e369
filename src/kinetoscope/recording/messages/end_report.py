"""The last lines of a run: the saved files, the top finding and the next command, or the reason why there is none."""

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
from kinetoscope.formats.trace_redaction import Ask
from kinetoscope.recording.markers.schedule import CyclicSchedule, PulseOnly
from kinetoscope.recording.messages.console import MessageSink, find_message_sink
from kinetoscope.recording.window.trace_handler import run_folder_of

REPORT = "report.html"
"""The report of a run, in its folder."""

_log = logging.getLogger("kinetoscope")


class FindsFirst(Protocol):
    """Finds the top finding on a run that was saved, for the report at its end."""

    @property
    def writes_report(self) -> bool:
        """True if `find` also writes a report, which is wanted even if nothing is shown."""
        ...

    def find(self, folder: Path, timeout_s: float, *, is_watching: bool = False) -> str:
        """Return the top finding on the traces in ``folder``, as a sentence; "" if there is none, or none in time. It
        may take longer if someone ``is_watching`` the terminal.
        """
        ...

    def give_up(self) -> None:
        """End `find` at once, also in a signal handler; later calls find nothing."""
        ...


class Find(Protocol):
    """Looks for the first finding, and returns it as a sentence; "" if there is none, or none in time. It may take
    longer if somebody ``is_watching``."""

    def __call__(self, *, is_watching: bool) -> str: ...


@dataclass(slots=True)
class RunCounts:
    """How far a run got. The handlers have taken ``num_saved`` windows, not ``num_unsaved`` others, and never will
    ``num_missed``; and they got ``num_given`` single events and files. ``num_past`` of the batches were over when the
    run began."""

    num_batches: int = 0
    num_past: int = 0
    longest_epoch: int = 0
    num_windows: int = 0
    num_saved: int = 0
    num_unsaved: int = 0
    num_missed: int = 0
    num_given: int = 0

    @property
    def is_nothing(self) -> bool:
        """Whether no handler got anything, or a window that it should have was not saved."""
        return not self.num_saved and (bool(self.num_unsaved) or not self.num_given)


class EndReport:
    """The result of a run, shown once unless ``is_quiet``: first what was saved, and later what was found in it.

    If nothing was saved, it always logs why, with the names that ``ask``, if given, replaces.
    """

    def __init__(
        self,
        counts: RunCounts,
        schedule: object,
        handlers: Iterable[object],
        ask: Ask | None = None,
        *,
        is_quiet: bool,
    ) -> None:
        self._counts, self._schedule, self._handlers = counts, schedule, list(handlers)
        self._ask: Ask = ask or str
        self._place: MessageSink | None = None if is_quiet or counts.is_nothing else find_message_sink(self._linked())

    def tell(self) -> None:
        """Says what there is, or why there is nothing."""
        if self._counts.is_nothing:
            why = why_nothing(self._schedule, self._counts, self._ask(uncaught_error()))
            if not isinstance(self._schedule, PulseOnly):
                _log.warning(why)
            self._note_nothing(why)
        elif self._place is not None:
            for path in lost_traces(self._handlers):
                _log.warning("The traces in %s were deleted or moved during the run.", short_path(path))
            self._place.tell(what_there_is(self._counts, self._handlers))

    def tell_found(self, find: Find, *, always: bool = False) -> None:
        """Show the top finding, and the next command. Call ``find`` only if something is shown, or ``always`` if
        something was recorded."""
        place, found = self._place, ""
        if place is not None or (always and not self._counts.is_nothing):
            found = find(is_watching=place is not None and place.is_watched)
        if place is None:
            return
        if self._counts.num_unsaved:
            found = " ".join(
                filter(None, [found, f"{format_count(self._counts.num_unsaved, 'window')} could not be saved."])
            )
        command = self._next_command(place)
        if found or command:
            place.tell(found, command)

    def _note_nothing(self, why: str) -> None:
        """Keeps the reason in the folders of traces, where commands and the list of runs find it."""
        for handler in self._handlers:
            if (note := getattr(handler, "note_nothing", None)) is not None:
                with suppress(OSError):  # a full disk: it was logged
                    note(why)

    def _next_command(self, place: MessageSink) -> str:
        run_folder = run_folder_of(self._handlers)
        if self._counts.num_unsaved and run_folder is not None:
            return f"kinetoscope recover {quote(short_path(run_folder))}"
        paths = self._paths()
        return next_command(run_folder or paths[0], in_notebook=place.is_notebook) if paths else ""

    def _paths(self) -> list[Path]:
        return _saved_to(self._handlers)

    def _linked(self) -> list[Path]:
        """The files that may be named."""
        run_folder = run_folder_of(self._handlers)
        return self._paths() + ([] if run_folder is None else [run_folder / REPORT])


def what_there_is(counts: RunCounts, handlers: Iterable[object]) -> str:
    """Return the number of recorded windows, and the files in which they are (the handlers' ``saved_to``)."""
    places = _saved_to(handlers)
    where = f", saved to {' and '.join(map(short_path, places))}" if places else ""
    what = format_count(counts.num_saved, "window") if counts.num_saved else format_count(counts.num_given, "event")
    return f"{what} recorded in {format_count(counts.num_batches, 'batch')}{where}"


def next_command(folder: Path, *, in_notebook: bool) -> str:
    """Return the command that shows the findings on a run: for a shell, or for the next cell of a notebook."""
    path = short_path(folder)
    return f"kinetoscope.view({path!r})" if in_notebook else f"kinetoscope summary {quote(path)}"


def _saved_to(handlers: Iterable[object]) -> list[Path]:
    """Return where handlers have saved traces, which are there still."""
    handlers = list(handlers)
    lost = lost_traces(handlers)
    places = [place for handler in handlers if isinstance(place := getattr(handler, "saved_to", None), Path)]
    return [place for place in places if place not in lost]


def lost_traces(handlers: Iterable[object]) -> list[Path]:
    """Return the folders of handlers of which all traces were deleted or moved during the run."""
    lost = (handler for handler in handlers if getattr(handler, "has_lost_traces", False))
    return [place for handler in lost if isinstance(place := getattr(handler, "saved_to", None), Path)]


def uncaught_error() -> str:
    """Return the name of the exception that has ended this program; "" if none has, or it is still running."""
    error = getattr(sys, "last_value", None)
    return "" if error is None else type(error).__name__


def why_nothing(schedule: object, counts: RunCounts, error: str = "") -> str:
    """Return why a run recorded nothing, and what to change. An ``error`` that ended it needs no other advice."""
    if counts.num_unsaved or counts.num_missed:
        return "Nothing was saved of what was recorded. The errors above say why."
    return f"Nothing was recorded: {_reason(schedule, counts, error)}"


def _reason(schedule: object, counts: RunCounts, error: str) -> str:
    if counts.num_windows:
        return "no marker, source or loop had anything to record while recording was on."
    if counts.num_batches == 0:
        return (
            "no step() was called, and no loop over batches() ended a batch. Write `for batch in "
            "profiler.batches(loader):`, or call profiler.step() at the end of each batch."
        )
    if isinstance(schedule, PulseOnly):
        return f"{schedule.why}."
    if not isinstance(schedule, CyclicSchedule):
        return f"the schedule answered skip for {_all(counts.num_batches)}."
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


def _all(num_batches: int) -> str:
    return "the only batch" if num_batches == 1 else f"each of the {num_batches:,} batches"
