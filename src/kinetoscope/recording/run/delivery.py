"""Hands cycles and contributed files to the trace handlers, on the writer thread, in order.

If a handler cannot save a cycle, because the disk is full for instance, the cycle is kept, within bounds. The handler
gets it again with the next cycle and at the end of the run, so perhaps after later cycles.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from kinetoscope.core.background.writer_thread import WriterThread
from kinetoscope.core.job.event import overrides
from kinetoscope.core.text.once_log import OnceLog
from kinetoscope.core.text.wording import format_count
from kinetoscope.formats.redactor import Redactor
from kinetoscope.recording.markers.marker import Marker
from kinetoscope.recording.window.callbacks import Callbacks
from kinetoscope.recording.window.cycle import Contributions, Cycle
from kinetoscope.recording.window.guard import Guard, name_of
from kinetoscope.recording.window.run_redaction import redact_cycle
from kinetoscope.recording.window.trace_handler import TraceHandler, recipe_of
from kinetoscope.spool.record import RECORD_BYTES

_log = logging.getLogger("kinetoscope")


class Result(Enum):
    """Result of one delivery to one handler."""

    TAKEN = 1
    FAILED = 2
    """It may succeed next time."""
    REFUSED = 3
    """The handler is switched off."""


@dataclass(slots=True, eq=False)
class Save:
    """A cycle, the handlers that have not taken it yet, and those that never will, because they were switched off."""

    cycle: Cycle
    waiting: list[Any]
    missed: list[Any] = field(default_factory=list)
    num_took: int = 0
    num_records: int = 0
    num_in_memory: int = 0
    """The number of its records that were in memory only at the last look."""
    is_redacted: bool = False

    @property
    def is_to_try(self) -> bool:
        """True if trying (again) may help."""
        contributions = self.cycle.contributions
        return bool(self.waiting or contributions.to_retry or contributions.not_taken)

    @property
    def is_for_recover(self) -> bool:
        """True if the live folder should keep the cycle for `recover`: a handler missed it whose traces `recover` can
        make, or no handler has taken it."""
        is_missing = bool(self.missed) and (self.num_took == 0 or any(map(recipe_of, self.missed)))
        return is_missing and self.cycle.recorded.in_files

    def settle(self, handler: Any, result: Result) -> None:
        """Take the result of a delivery to a waiting handler into account."""
        if result is not Result.FAILED:
            self.waiting.remove(handler)
        if result is Result.TAKEN:
            self.num_took += 1
        elif result is Result.REFUSED:
            self.missed.append(handler)


class UnsavedCycles:
    """The cycles that are not saved, with at most ``limit_bytes`` of records; beyond that, the oldest is discarded."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._saves: list[Save] = []
        self.num_lost: int = 0
        self.num_lost_records: int = 0
        """The number of cycles that were discarded, and of their records."""

    def __len__(self) -> int:
        return len(self._saves)

    @property
    def num_records(self) -> int:
        """The number of their records, as far as it is known. Any thread may read it."""
        return sum(save.num_records for save in list(self._saves))

    @property
    def num_records_on_disk(self) -> int:
        """The number of their records in files of the live folder."""
        return sum(max(0, save.num_records - save.num_in_memory) for save in self._saves)

    @property
    def num_records_in_memory(self) -> int:
        """The number of their records in memory only."""
        return sum(save.num_in_memory for save in self._saves)

    def keep_on_disk(self) -> None:
        """Writes to the live folder what is in memory only, as far as there is space."""
        for save in self._saves:
            save.num_in_memory = save.cycle.recorded.keep_on_disk()

    def to_try(self) -> list[Save]:
        """The cycles that may still be saved; the one whose last try is longest ago comes first."""
        return [save for save in self._saves if save.is_to_try]

    def keep(self, save: Save) -> None:
        """Keeps a cycle; it is the last to be tried again."""
        self.drop(save)
        self._saves.append(save)

    def drop(self, save: Save) -> None:
        """Keeps a cycle no longer, because it is saved or discarded."""
        if save in self._saves:
            self._saves.remove(save)

    def give_up_oldest(self, is_short: Callable[[], bool]) -> Save | None:
        """Discards and returns the oldest cycle if they take too much space or space ``is_short``; else None."""
        num_bytes = RECORD_BYTES * sum(save.num_records for save in self._saves)
        if not self._saves or not (num_bytes > self._limit_bytes or is_short()):
            return None
        oldest = min(self._saves, key=lambda save: save.cycle.number)
        self.drop(oldest)
        self.num_lost += 1
        self.num_lost_records += oldest.num_records
        _log.error(
            "Cycle %d with its %s is lost: it could not be saved, and there is no more space for it within "
            "live_bytes_max. Lost so far: %s with %s.",
            oldest.cycle.number,
            format_count(oldest.num_records, "record"),
            format_count(self.num_lost, "cycle"),
            format_count(self.num_lost_records, "record"),
        )
        return oldest


_PASSING = (OSError, MemoryError)
"""Errors after which a second try may succeed. Any other error is a fault of the handler, which is switched off."""
_MAX_HELD = 2  # results of sources; each may take much of the memory
Make = Callable[[Contributions], object]


class Delivery:
    """Hands what was recorded to the handlers of ``callbacks``, through one `WriterThread`.

    Each save is a span of the marker ``cost``, in the trace of the next window if that is open by then. ``unsaved`` has
    the cycles that could not be saved, at most ``limit_bytes`` of them. If there is a ``redactor``, handlers get only
    what it says instead of names and texts.
    """

    def __init__(
        self,
        guard: Guard,
        callbacks: Callbacks,
        cost: Marker,
        limit_bytes: int,
        redactor: Redactor | None = None,
    ) -> None:
        self._guard = guard
        self._callbacks = callbacks
        self._cost = cost
        self._redactor = redactor
        self._held: list[tuple[Make, Contributions]] = []
        self._said: set[object] = set()
        self._once = OnceLog()
        self.unsaved: UnsavedCycles = UnsavedCycles(limit_bytes)
        self.num_saved: int = 0
        """The number of cycles that every handler took."""
        self.num_recorded: int = 0
        """The number of these that were not empty."""
        self.num_missed: int = 0
        """The number of lost cycles: every handler failed to take them, and no file keeps them."""
        self.num_files_taken: int = 0
        """The number of files that handlers have got, each counted once for each handler."""
        self.num_events_taken: int = 0
        """The number of single events that handlers have got."""
        self.writer: WriterThread = WriterThread(on_error=guard.report)

    def cycle(self, cycle: Cycle) -> None:
        """Delivers a finished cycle, after all contributions to it."""
        self.writer.submit(f"Saving cycle {cycle.number}", lambda: self._save(cycle))

    def slow_step(self, cycle: Cycle) -> None:
        """Delivers the window of a slow step."""
        self.writer.submit("Saving a slow step", lambda: self._save_slow_step(cycle))

    def contribution(self, make: Make, to: Contributions) -> None:
        """Calls ``make`` on the writer thread, where a source adds trace files to a cycle."""
        self.writer.submit("Taking over a trace file", lambda: self._contribute(make, to))

    def count_event(self) -> None:
        """Count a single event that a handler got while it was recorded."""
        self.num_events_taken += 1

    def try_again(self) -> None:
        """At the end of the run: tries for the last time to save what could not be saved."""
        if self.unsaved:
            self.writer.submit("Saving what could not be saved before", self._try_all)

    def keep_on_disk(self) -> None:
        """Once the writer thread has nothing to do: writes to the live folder what is in memory only of unsaved cycles,
        as far as the disk has space."""
        self.unsaved.keep_on_disk()

    def make_room(self, is_short: Callable[[], bool] = lambda: False) -> None:
        """On the writer thread: discards the oldest unsaved cycles, as long as they take too much space or space
        ``is_short`` for what is being recorded."""
        while (save := self.unsaved.give_up_oldest(is_short)) is not None:
            self._release(save.cycle)

    # -- one handler ------------------------------------------------------------------------------------------

    def _deliver(
        self, handler: TraceHandler, method: Callable[[Any], object], argument: object, *, is_optional: bool = False
    ) -> Result:
        """Call a method of a handler, unless it is switched off, and return the result.

        An error of a delivery that ``is_optional`` switches no handler off: cycles matter more.
        """
        if self._guard.is_off(handler):
            return Result.REFUSED
        try:
            method(argument)
        except BaseException as error:
            is_interrupt = not isinstance(error, Exception)
            if is_interrupt and (is_optional or threading.current_thread() is threading.main_thread()):
                raise  # Ctrl-C
            return self._handle_failure(handler, argument, error, is_optional)
        return Result.TAKEN

    def _handle_failure(
        self, handler: TraceHandler, argument: object, error: BaseException, is_optional: bool
    ) -> Result:
        if is_optional:
            self._guard.keep(error)
            self._once.warn(
                "%s could not save a slow step: %s: %s. Slow steps that cannot be saved are left out.",
                name_of(handler),
                type(error).__name__,
                str(error).rstrip("."),
                about=id(handler),
            )
            return Result.FAILED
        if isinstance(error, _PASSING):
            job = f"save cycle {argument.number}" if isinstance(argument, Cycle) else f"take over {argument}"
            self._log_once(f"{name_of(handler)} could not {job}", error, id(handler))
            return Result.FAILED
        self._guard.switch_off(handler, error)
        self._guard.keep(error)
        return Result.REFUSED

    def _handlers_with(self, method: str) -> list[Any]:
        """Return the handlers that override a method."""
        return [handler for handler in self._callbacks.handlers if overrides(handler, method, TraceHandler)]

    def _log_once(self, failure: str, error: BaseException, key: object = None) -> None:
        """Log a failure to save, once for each ``key`` until everything is saved again."""
        self._guard.keep(error)
        if (key or failure) not in self._said:
            self._said.add(key or failure)
            _log.error(
                "%s: %s: %s. The data is kept, within live_bytes_max, and saving is tried again with the next window "
                "and at the end of the run.",
                failure,
                type(error).__name__,
                str(error).rstrip("."),
            )

    # -- cycles -----------------------------------------------------------------------------------------------

    def _save(self, cycle: Cycle) -> None:
        """Save a cycle, after those that could not be saved before."""
        save, earlier = Save(cycle, self._handlers_with("process_cycle")), self.unsaved.to_try()
        self.unsaved.keep(save)  # until it is saved
        for other in earlier:
            if not self._try(other):
                break
        self._try(save)
        if self._redactor is not None:
            self._redactor.forget()

    def _try_all(self) -> None:
        for save in self.unsaved.to_try():
            self._try(save, is_last=True)

    def _try(self, save: Save, *, is_last: bool = False) -> bool:
        """Deliver a cycle to the handlers that have not taken it yet; return whether all have taken it now."""
        cycle = save.cycle
        cycle.num_lost_cycles, cycle.num_lost_records = self.unsaved.num_lost, self.unsaved.num_lost_records
        self.unsaved.keep(save)
        try:
            if self._complete(save, is_last):
                with self._cost:
                    for handler in list(save.waiting):
                        save.settle(handler, self._deliver(handler, handler.process_cycle, cycle))
        except Exception as error:  # the records cannot be read
            self._log_once(f"Cycle {cycle.number} could not be read", error, "reading")
        if save.is_to_try or save.is_for_recover:
            cycle.recorded.set_aside()
            save.num_in_memory = cycle.recorded.keep_on_disk()
            self.make_room()
            return False
        self.unsaved.drop(save)
        self.num_saved += 1
        self.num_recorded += bool(save.num_took)
        self.num_missed += bool(save.missed) and not save.num_took
        self._release(cycle)
        if not self.unsaved and self._said:
            self._said.clear()
            _log.info("Data that could not be saved earlier is saved now.")
        return True

    def _complete(self, save: Save, is_last: bool) -> bool:
        """Complete a cycle with files that sources failed to write; return whether it can be delivered now."""
        contributions = save.cycle.contributions
        self._contribute_again(contributions)
        if contributions.to_retry and not is_last:
            return False
        self._forget(contributions)
        if self._redactor is not None and not save.is_redacted:
            redact_cycle(save.cycle, self._redactor)
            save.is_redacted = True
        save.num_records = sum(thread.num_records for thread in save.cycle.threads)
        if save.cycle.is_empty:
            save.waiting.clear()
        return bool(save.waiting)

    def _release(self, cycle: Cycle) -> None:
        self._forget(cycle.contributions)
        try:
            cycle.release()
        except OSError as error:
            self._guard.report(f"Deleting what kept cycle {cycle.number} safe", error)

    def _save_slow_step(self, cycle: Cycle) -> None:
        if self._redactor is not None:
            redact_cycle(cycle, self._redactor)
            self._redactor.forget()
        for handler in self._handlers_with("process_slow_step"):
            self._deliver(handler, handler.process_slow_step, cycle, is_optional=True)

    # -- contributed files ------------------------------------------------------------------------------------

    def _contribute(self, make: Make, to: Contributions) -> None:
        num_before = len(to.files)
        try:
            with self._cost:
                make(to)
        except _PASSING as error:
            self._hold(make, to, error)
        except Exception as error:
            self._guard.report("Taking over a trace file", error)
        for file in to.files[num_before:]:
            for handler in self._handlers_with("process_chrome_json_trace_file"):
                self._deliver_file(handler, file, to)

    def _deliver_file(self, handler: TraceHandler, file: Path, to: Contributions) -> None:
        result = self._deliver(handler, handler.process_chrome_json_trace_file, file)
        self.num_files_taken += result is Result.TAKEN
        if result is Result.FAILED:
            to.not_taken.append((handler, file))

    def _contribute_again(self, to: Contributions) -> None:
        makes, not_taken = list(to.to_retry), list(to.not_taken)
        to.to_retry.clear()
        to.not_taken.clear()
        for handler, file in not_taken:
            self._deliver_file(handler, file, to)
        for make in makes:
            self._held.remove((make, to))
            self._contribute(make, to)

    def _hold(self, make: Make, to: Contributions, error: BaseException) -> None:
        """Keep what a source could not write, to try again; only the last few, because they are in memory."""
        self._log_once("A source could not write its trace", error)
        to.to_retry.append(make)
        self._held.append((make, to))
        if len(self._held) > _MAX_HELD:
            lost, contributions = self._held.pop(0)
            contributions.to_retry.remove(lost)
            _log.error(
                "A trace of a source is lost: it could not be written, and only the last %d such traces are kept.",
                _MAX_HELD,
            )

    def _forget(self, contributions: Contributions) -> None:
        contributions.to_retry.clear()
        self._held = [(make, to) for make, to in self._held if to is not contributions]
