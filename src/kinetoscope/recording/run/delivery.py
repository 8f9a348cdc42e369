"""Delivery of cycles and contributed files to the trace handlers, on the writer thread, in order.

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
from kinetoscope.recording.window.guard import Guard, owner_name
from kinetoscope.recording.window.run_redaction import redact_cycle
from kinetoscope.recording.window.trace_handler import TraceHandler, recipe_of
from kinetoscope.spool.record import RECORD_BYTES

_log = logging.getLogger("kinetoscope")


class DeliveryResult(Enum):
    """Result of one delivery to one handler."""

    ACCEPTED = 1
    FAILED = 2
    """A later delivery may succeed."""
    REFUSED = 3
    """The handler is switched off."""


@dataclass(slots=True, eq=False)
class Save:
    """A cycle that is being saved.

    Attributes:
        cycle: the cycle.
        waiting: the handlers that have not accepted it yet.
        missed: the handlers that never will, because they were switched off.
        num_accepted: the number of handlers that have accepted it.
        num_records: the number of its records, as far as it is known.
        num_in_memory: the number of its records that were in memory only when last checked.
        is_redacted: whether its strings are redacted.
    """

    cycle: Cycle
    waiting: list[Any]
    missed: list[Any] = field(default_factory=list)
    num_accepted: int = 0
    num_records: int = 0
    num_in_memory: int = 0
    """Number of its records that were in memory only when last checked."""
    is_redacted: bool = False

    @property
    def is_retryable(self) -> bool:
        """True if another delivery may help."""
        contributions = self.cycle.contributions
        return bool(self.waiting or contributions.to_retry or contributions.undelivered)

    @property
    def is_for_recover(self) -> bool:
        """True if the spool folder should keep the cycle for `recover`.

        That is so if no handler has accepted it, or one missed it whose traces `recover` can write.
        """
        is_missing = bool(self.missed) and (self.num_accepted == 0 or any(map(recipe_of, self.missed)))
        return is_missing and self.cycle.recorded.in_files

    def apply_result(self, handler: Any, result: DeliveryResult) -> None:
        """Update the lists of handlers with the result of a delivery to a waiting handler."""
        if result is not DeliveryResult.FAILED:
            self.waiting.remove(handler)
        if result is DeliveryResult.ACCEPTED:
            self.num_accepted += 1
        elif result is DeliveryResult.REFUSED:
            self.missed.append(handler)


class UnsavedCycles:
    """Cycles that are not saved, with at most ``limit_bytes`` of records; beyond that, the oldest is discarded."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._saves: list[Save] = []
        self.num_lost: int = 0
        """Number of cycles that were discarded."""
        self.num_lost_records: int = 0
        """Number of records of these cycles."""

    def __len__(self) -> int:
        return len(self._saves)

    @property
    def num_records(self) -> int:
        """The number of their records, as far as it is known. Any thread may read it."""
        return sum(save.num_records for save in list(self._saves))

    @property
    def num_records_on_disk(self) -> int:
        """The number of their records in files of the spool folder."""
        return sum(max(0, save.num_records - save.num_in_memory) for save in self._saves)

    @property
    def num_records_in_memory(self) -> int:
        """The number of their records in memory only."""
        return sum(save.num_in_memory for save in self._saves)

    def flush_to_disk(self) -> None:
        """Write records that are in memory only to the spool folder, as far as there is space."""
        for save in self._saves:
            save.num_in_memory = save.cycle.recorded.flush_to_disk()

    def list_retryable(self) -> list[Save]:
        """Return the cycles that may still be saved, the one whose last try was longest ago first."""
        return [save for save in self._saves if save.is_retryable]

    def keep(self, save: Save) -> None:
        """Keep a cycle; it is the last to be retried."""
        self.drop(save)
        self._saves.append(save)

    def drop(self, save: Save) -> None:
        """Remove a cycle, because it is saved or discarded."""
        if save in self._saves:
            self._saves.remove(save)

    def discard_oldest(self, is_low_on_space: Callable[[], bool]) -> Save | None:
        """Discard the oldest cycle if they take too much space or space is short; return it, or None."""
        num_bytes = RECORD_BYTES * sum(save.num_records for save in self._saves)
        if not self._saves or not (num_bytes > self._limit_bytes or is_low_on_space()):
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


_TRANSIENT_ERRORS = (OSError, MemoryError)
"""Errors after which a second try may succeed. Any other error is a fault of the handler, which is switched off."""
_MAX_RETAINED = 2  # results of sources; each may take much of the memory
AddFiles = Callable[[Contributions], object]


class Delivery:
    """Deliver cycles and files to the handlers of ``callbacks``, through one `WriterThread`.

    Args:
        guard: calls handlers, so that their errors do not reach training.
        callbacks: the sources and handlers of the run.
        cost: the marker of the spans of saves. A span is in the trace of the next window if that is open by then.
        limit_bytes: the maximum size of the records of unsaved cycles.
        redactor: replaces names and strings in what handlers get; None to leave them unchanged.
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
        self._retained: list[tuple[AddFiles, Contributions]] = []
        self._logged: set[object] = set()
        self._once = OnceLog()
        self.unsaved: UnsavedCycles = UnsavedCycles(limit_bytes)
        """Cycles that could not be saved."""
        self.num_saved: int = 0
        """Number of cycles that every handler accepted."""
        self.num_recorded: int = 0
        """Number of these that were not empty."""
        self.num_missed: int = 0
        """Number of lost cycles: no handler accepted them, and no file keeps them."""
        self.num_files_delivered: int = 0
        """Number of files that handlers have received, each counted once for each handler."""
        self.num_events_delivered: int = 0
        """Number of single events that handlers have received."""
        self.writer: WriterThread = WriterThread(on_error=guard.report)

    def submit_cycle(self, cycle: Cycle) -> None:
        """Deliver a finished cycle, after all contributions to it."""
        self.writer.submit(f"Saving cycle {cycle.number}", lambda: self._save(cycle))

    def submit_slow_step(self, cycle: Cycle) -> None:
        """Deliver the window of an outlier step."""
        self.writer.submit("Saving a slow step", lambda: self._save_slow_step(cycle))

    def submit_contribution(self, add_files: AddFiles, target: Contributions) -> None:
        """Call ``add_files`` on the writer thread, where a source adds trace files to a cycle."""
        self.writer.submit("Adding a trace file", lambda: self._run_contribution(add_files, target))

    def count_event(self) -> None:
        """Count a single event that a handler received while it was recorded."""
        self.num_events_delivered += 1

    def retry_unsaved(self) -> None:
        """Try to save unsaved cycles for the last time, at the end of the run."""
        if self.unsaved:
            self.writer.submit("Saving unsaved cycles", self._retry_all)

    def flush_to_disk(self) -> None:
        """Write records of unsaved cycles that are in memory only to the spool folder, as far as the disk has space.

        The writer thread must be idle.
        """
        self.unsaved.flush_to_disk()

    def free_space(self, is_low_on_space: Callable[[], bool] = lambda: False) -> None:
        """Discard the oldest unsaved cycles while they take too much space, or space for new records is short.

        Called on the writer thread.
        """
        while (save := self.unsaved.discard_oldest(is_low_on_space)) is not None:
            self._release(save.cycle)

    # -- one handler ------------------------------------------------------------------------------------------

    def _deliver(
        self, handler: TraceHandler, method: Callable[[Any], object], argument: object, *, is_optional: bool = False
    ) -> DeliveryResult:
        """Call a method of a handler, unless it is switched off, and return the result.

        An error of a delivery that ``is_optional`` switches no handler off: cycles matter more.
        """
        if self._guard.is_off(handler):
            return DeliveryResult.REFUSED
        try:
            method(argument)
        except BaseException as error:
            is_interrupt = not isinstance(error, Exception)
            if is_interrupt and (is_optional or threading.current_thread() is threading.main_thread()):
                raise  # Ctrl-C
            return self._handle_failure(handler, argument, error, is_optional)
        return DeliveryResult.ACCEPTED

    def _handle_failure(
        self, handler: TraceHandler, argument: object, error: BaseException, is_optional: bool
    ) -> DeliveryResult:
        """Log an error of a delivery, switch the handler off if it is at fault, and return the result."""
        if is_optional:
            self._guard.keep(error)
            self._once.warn(
                "%s could not save a slow step: %s: %s. Slow steps that cannot be saved are left out.",
                owner_name(handler),
                type(error).__name__,
                str(error).rstrip("."),
                about=id(handler),
            )
            return DeliveryResult.FAILED
        if isinstance(error, _TRANSIENT_ERRORS):
            job = f"save cycle {argument.number}" if isinstance(argument, Cycle) else f"save {argument}"
            self._log_once(f"{owner_name(handler)} could not {job}", error, id(handler))
            return DeliveryResult.FAILED
        self._guard.switch_off(handler, error)
        self._guard.keep(error)
        return DeliveryResult.REFUSED

    def _handlers_with(self, method: str) -> list[Any]:
        """Return the handlers that override a method."""
        return [handler for handler in self._callbacks.handlers if overrides(handler, method, TraceHandler)]

    def _log_once(self, failure: str, error: BaseException, key: object = None) -> None:
        """Log a failure to save, once for each ``key`` until everything is saved again."""
        self._guard.keep(error)
        if (key or failure) not in self._logged:
            self._logged.add(key or failure)
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
        save, earlier = Save(cycle, self._handlers_with("process_cycle")), self.unsaved.list_retryable()
        self.unsaved.keep(save)  # until it is saved
        for other in earlier:
            if not self._save_now(other):
                break
        self._save_now(save)
        if self._redactor is not None:
            self._redactor.clear()

    def _retry_all(self) -> None:
        for save in self.unsaved.list_retryable():
            self._save_now(save, is_last=True)

    def _save_now(self, save: Save, *, is_last: bool = False) -> bool:
        """Deliver a cycle to the handlers that have not accepted it yet; return whether all have now."""
        cycle = save.cycle
        cycle.num_lost_cycles, cycle.num_lost_records = self.unsaved.num_lost, self.unsaved.num_lost_records
        self.unsaved.keep(save)
        try:
            if self._prepare(save, is_last):
                with self._cost:
                    for handler in list(save.waiting):
                        save.apply_result(handler, self._deliver(handler, handler.process_cycle, cycle))
        except Exception as error:  # the records are unreadable
            self._log_once(f"Cycle {cycle.number} could not be read", error, "reading")
        if save.is_retryable or save.is_for_recover:
            cycle.recorded.free_memory()
            save.num_in_memory = cycle.recorded.flush_to_disk()
            self.free_space()
            return False
        self.unsaved.drop(save)
        self.num_saved += 1
        self.num_recorded += bool(save.num_accepted)
        self.num_missed += bool(save.missed) and not save.num_accepted
        self._release(cycle)
        if not self.unsaved and self._logged:
            self._logged.clear()
            _log.info("Data that could not be saved earlier is saved now.")
        return True

    def _prepare(self, save: Save, is_last: bool) -> bool:
        """Complete a cycle with files that sources failed to write; return whether it can be delivered now."""
        contributions = save.cycle.contributions
        self._retry_contributions(contributions)
        if contributions.to_retry and not is_last:
            return False
        self._drop_retained(contributions)
        if self._redactor is not None and not save.is_redacted:
            redact_cycle(save.cycle, self._redactor)
            save.is_redacted = True
        save.num_records = sum(thread.num_records for thread in save.cycle.threads)
        if save.cycle.is_empty:
            save.waiting.clear()
        return bool(save.waiting)

    def _release(self, cycle: Cycle) -> None:
        self._drop_retained(cycle.contributions)
        try:
            cycle.release()
        except OSError as error:
            self._guard.report(f"Deleting the files of cycle {cycle.number}", error)

    def _save_slow_step(self, cycle: Cycle) -> None:
        if self._redactor is not None:
            redact_cycle(cycle, self._redactor)
            self._redactor.clear()
        for handler in self._handlers_with("process_slow_step"):
            self._deliver(handler, handler.process_slow_step, cycle, is_optional=True)

    # -- contributed files ------------------------------------------------------------------------------------

    def _run_contribution(self, add_files: AddFiles, target: Contributions) -> None:
        """Let a source add files to a cycle, and deliver these files."""
        num_before = len(target.files)
        try:
            with self._cost:
                add_files(target)
        except _TRANSIENT_ERRORS as error:
            self._retain(add_files, target, error)
        except Exception as error:
            self._guard.report("Adding a trace file", error)
        for file in target.files[num_before:]:
            for handler in self._handlers_with("process_chrome_json_trace_file"):
                self._deliver_file(handler, file, target)

    def _deliver_file(self, handler: TraceHandler, file: Path, target: Contributions) -> None:
        result = self._deliver(handler, handler.process_chrome_json_trace_file, file)
        self.num_files_delivered += result is DeliveryResult.ACCEPTED
        if result is DeliveryResult.FAILED:
            target.undelivered.append((handler, file))

    def _retry_contributions(self, target: Contributions) -> None:
        """Repeat failed deliveries of files, and contributions that failed."""
        functions, undelivered = list(target.to_retry), list(target.undelivered)
        target.to_retry.clear()
        target.undelivered.clear()
        for handler, file in undelivered:
            self._deliver_file(handler, file, target)
        for add_files in functions:
            self._retained.remove((add_files, target))
            self._run_contribution(add_files, target)

    def _retain(self, add_files: AddFiles, target: Contributions, error: BaseException) -> None:
        """Keep the result of a source for another try; only the last few, because they are in memory."""
        self._log_once("A source could not write its trace", error)
        target.to_retry.append(add_files)
        self._retained.append((add_files, target))
        if len(self._retained) > _MAX_RETAINED:
            lost, contributions = self._retained.pop(0)
            contributions.to_retry.remove(lost)
            _log.error(
                "A trace of a source is lost: it could not be written, and only the last %d such traces are kept.",
                _MAX_RETAINED,
            )

    def _drop_retained(self, contributions: Contributions) -> None:
        contributions.to_retry.clear()
        self._retained = [(add_files, target) for add_files, target in self._retained if target is not contributions]
