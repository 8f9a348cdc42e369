"""Shutdown of a run, step by step.

Every step runs, even if another one raises. Every wait is bounded, and Ctrl-C ends it.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from types import FrameType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from kinetoscope.core.text.wording import format_count
from kinetoscope.recording.hangs.hang_watchdog import HangWatchdog
from kinetoscope.recording.markers.process import (
    hold_signals,
    install_signal_handler,
    is_on_main_thread,
    is_termination_handler,
    restore_signal,
)
from kinetoscope.recording.run.services import RunServices

_log = logging.getLogger("kinetoscope")
_LAST_WAIT_S = 1.0
_MAX_TIMEOUT_S = 7 * 86_400.0  # above some weeks, and for infinity, the system's waits raise OverflowError
_UNLOCKED = ("release unlocked lock", "cannot release un-acquired lock")
"""Errors of a ``with`` block whose lock Ctrl-C interrupted as a wait acquired it again: of a Lock, of an RLock."""

P = ParamSpec("P")
T = TypeVar("T")


class ShutdownSteps:
    """One close of a profiler, in at most ``timeout_s`` seconds: the steps within ``with ShutdownSteps(...) as steps``.

    Before `mark_saved` the limit is ``save_timeout_s``, if that is longer: records in memory only would be lost.

    Ctrl-C ends the current wait or call of the user's code, and there are no more waits after it. It never interrupts a
    step of ours: between waits it is deferred. This needs the main thread and Python's own handler of SIGINT; elsewhere
    a KeyboardInterrupt ends the step that it interrupts. At the end of the block the KeyboardInterrupt is raised again,
    and so is any other exception that is no Exception.

    Handlers of other signals run at once, and their exceptions are raised at the end of the block: torch's handler of
    SIGCHLD raises if a DataLoader worker was killed. Only an exception that is no Exception ends a wait.
    """

    def __init__(
        self, timeout_s: float, on_error: Callable[[str, Exception], None], save_timeout_s: float = 0.0
    ) -> None:
        self._timeout_s, self._is_normal = min(timeout_s, _MAX_TIMEOUT_S), save_timeout_s > 0
        self._until = time.monotonic() + max(self._timeout_s, save_timeout_s)
        self._on_error = on_error
        self._thread = threading.get_ident()
        self._raised: BaseException | None = None
        self._defers_interrupt = self._may_raise = False
        self._deferred: dict[int, tuple[Callable[..., Any], Callable[..., None]]] = {}
        self.is_interrupted: bool = False
        """True if Ctrl-C was pressed since this began."""

    def __enter__(self) -> Self:
        try:
            if is_on_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._defers_interrupt = True  # before: another handler may raise as soon as ours is installed
                self._defers_interrupt = install_signal_handler(signal.SIGINT, self._handle_interrupt)
            for number in signal.valid_signals() if is_on_main_thread() else ():
                self._defer(number)
        except BaseException:  # of a handler that is not deferred yet
            try:
                self._restore_handlers()
            finally:  # a handler that has been restored may raise above
                self._restore_handlers()
            raise
        return self

    def _defer(self, number: int) -> None:
        """Replace the handler of a signal by one that keeps what it raises until the end of the block."""
        handler, pid = signal.getsignal(number), os.getpid()
        if not callable(handler) or handler == self._handle_interrupt or is_termination_handler(handler):
            return

        def defer(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                if os.getpid() != pid or (self._may_raise and not isinstance(error, Exception)):
                    raise
                self._keep(error)

        self._deferred[number] = handler, defer
        install_signal_handler(number, defer)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._restore_handlers()
        finally:  # a handler that has been restored may raise above
            self._restore_handlers()
        raised, self._raised = self._raised, None
        if raised is None and self._defers_interrupt and self.is_interrupted:
            raised = KeyboardInterrupt()
        if raised is not None:
            raise raised

    def _restore_handlers(self) -> None:
        for number, (handler, defer) in self._deferred.items():
            restore_signal(number, defer, handler)
        if self._defers_interrupt:
            restore_signal(signal.SIGINT, self._handle_interrupt, signal.default_int_handler)

    @property
    def seconds_left(self) -> float:
        """The time left, in seconds."""
        return 0.0 if self.is_interrupted else max(0.0, self._until - time.monotonic())

    @property
    def seconds_to_search(self) -> float:
        """The time left for the search for findings, in seconds: at a normal close it has a limit of its own."""
        return _MAX_TIMEOUT_S if self._is_normal and not self.is_interrupted else self.seconds_left

    def mark_saved(self) -> None:
        """Apply the shorter limit from now on.

        All data is on disk, and the remaining waits are for processes that also finish by themselves.
        """
        self._until = min(self._until, time.monotonic() + self._timeout_s)

    def run_step(self, step: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Run a step. Raise nothing: an Exception is reported, and anything else is raised at the end."""
        try:
            step(*arguments, **options)
        except Exception as error:
            self._on_error("A step of the run's end", error)
        except BaseException as error:
            self._keep(error)

    def wait_for(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
        """Return the result of ``call``, which may wait or run the user's code; None if Ctrl-C ended it.

        Raises Exceptions only. A wait must read `seconds_left` within ``call``, where Ctrl-C can end it.
        """
        if threading.get_ident() != self._thread:
            return call(*arguments, **options)
        try:
            self._may_raise = True
            return call(*arguments, **options)
        except Exception as error:
            if not isinstance(error.__context__, KeyboardInterrupt) or str(error) not in _UNLOCKED:
                raise
            self._keep(error.__context__)
            return None
        except BaseException as error:
            self._keep(error)
            return None
        finally:
            self._may_raise = False

    def _keep(self, error: BaseException) -> None:
        """Keep an exception for the end of the block."""
        self.is_interrupted |= isinstance(error, KeyboardInterrupt) and not self._defers_interrupt
        if self._raised is None:
            self._raised = error

    def _handle_interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.is_interrupted = True
        if self._may_raise:
            self._may_raise = False  # only once: the handling of the first must not be interrupted
            raise KeyboardInterrupt


class RunShutdown:
    """Shutdown of the parts of a run. A second close finishes the rest of the first one."""

    def __init__(self, services: RunServices) -> None:
        self._services = services
        self._guard, self._clocks, self._delivery = services.guard, services.clocks, services.delivery
        self._live, self._progress = services.live, services.saving_progress
        self._steps: ShutdownSteps | None = None
        self._handlers_closed_at = -1
        self._is_drained = False
        self.is_unfinished: bool = False
        """True if another close could save more."""

    @contextmanager
    def begin(self, timeout_s: float, save_timeout_s: float) -> Iterator[ShutdownSteps]:
        """Return a context in which the steps of a close run."""
        with ShutdownSteps(timeout_s, self._guard.report, save_timeout_s) as steps:
            self._steps, self._guard.wait_for = steps, steps.wait_for
            self._guard.closing = self.is_unfinished = True
            try:
                yield steps
            finally:
                self._guard.wait_for = None

    @property
    def seconds_left(self) -> float:
        """The time left for closing, in seconds."""
        return self._steps.seconds_left if self._steps is not None else 0.0

    @property
    def seconds_to_search(self) -> float:
        """The time left for the search for findings, in seconds."""
        return self._steps.seconds_to_search if self._steps is not None else 0.0

    def start_saving(self, watchdog: HangWatchdog | None) -> None:
        """Report in the pulse that the run is being saved, and let the watchdog print a line if that takes long."""
        self._progress.start()
        self._services.pulse.record_saving()
        if watchdog is not None:
            watchdog.watch_saving(self._progress.report)

    def close_sources(self) -> None:
        """Close the sources: Kineto's stop alone may take half of the close."""
        self._progress.time_source_stop(self._services.callbacks.close_sources)
        self._progress.mark_sources_closed()

    def stop_writer(self) -> None:
        """Let the writer thread finish its jobs. Later jobs run on the calling thread.

        Called at the exit of the interpreter, where no thread can be started.
        """
        self._wait_for(lambda: self._delivery.writer.close(self.seconds_left))

    def finish_windows(self) -> None:
        """Deliver every closed window."""
        self._wait_for(lambda: self._clocks.finish_windows(self.seconds_left))

    def drain_or_give_up(self) -> bool:
        """Wait until everything is written, and retry failed saves.

        Return False and log it if the time is up before.
        """
        writer = self._delivery.writer
        done = self._wait_for(lambda: writer.drain(self.seconds_left))
        if done and self._delivery.unsaved:
            self._delivery.retry_unsaved()
            done = self._wait_for(lambda: writer.drain(self.seconds_left))
        num_left = len(self._delivery.unsaved) if done else writer.num_waiting + 1
        if num_left and done:
            self._wait_for(self._delivery.flush_to_disk)
        if num_left:
            self._log_unsaved("The run is over" if done else "Time to close is up", num_left, is_known=bool(done))
        self._is_drained = bool(done)
        if done and self._steps is not None:
            self._steps.mark_saved()
            self._progress.end()
        return self._is_drained

    def has_new_saves(self) -> bool:
        """Return whether handlers have saved something since the last call; then they must be closed (again)."""
        before, self._handlers_closed_at = self._handlers_closed_at, self._delivery.num_saved
        return before != self._handlers_closed_at

    def finish_clocks(self) -> None:
        """End the comparison of clocks."""
        self._wait_for(lambda: self._clocks.finish(self.seconds_left))

    def finish_files(self) -> None:
        """End the writer thread, and delete the spool folder if everything in it was saved."""
        self._live.stop_preparing()
        is_written = self._wait_for(lambda: self._delivery.writer.close(min(_LAST_WAIT_S, self.seconds_left)))
        is_saved = bool(is_written) and not self._delivery.unsaved and not self._services.window.is_open
        with hold_signals():  # an incomplete spool folder would seem to need `recover`
            self._live.close(is_saved=is_saved)
            if is_saved:
                self._services.temporary.close()
            self.is_unfinished = not (is_saved and self._is_drained)

    def _wait_for(self, call: Callable[[], T]) -> T | None:
        """Return the result of ``call``, which waits; None if Ctrl-C ended it."""
        return self._steps.wait_for(call) if self._steps is not None else call()

    def _log_unsaved(self, reason: str, num_left: int, *, is_known: bool) -> None:
        """Log the number of saves that are not done, and the state of their records."""
        saves = f"{_count_verb(num_left, 'save')} not done."
        _log.error("%s, and %s", reason, " ".join([saves, *self._describe_unsaved(is_known)]))

    def _describe_unsaved(self, is_known: bool) -> Iterator[str]:
        """Yield sentences on the records of unsaved windows: on disk, in memory only, or lost. A command comes last."""
        unsaved, folder = self._delivery.unsaved, self._live.path
        on_disk, in_memory = unsaved.num_records_on_disk, unsaved.num_records_in_memory
        if folder is None:
            yield "There is no spool folder, so they are lost when this process ends. Call close() once more before."
        elif not is_known:
            yield f"Their records on disk remain in {folder}."
        elif on_disk:
            yield f"{_count_verb(on_disk, 'record')} on disk, in {folder}."
        if folder is not None and is_known and in_memory:
            yield (
                f"{_count_verb(in_memory, 'record')} in memory only, because the disk is full, and lost when this "
                "process ends. Make space, and call close() once more before."
            )
        if unsaved.num_lost_records:
            yield f"{_count_verb(unsaved.num_lost_records, 'record')} lost: there was no space to keep them in."
        if folder is not None and (on_disk or not is_known):
            run = quote(str(self._live.run_folder))
            when = "When" if is_known and in_memory else "Call close() once more, or when"
            yield f"{when} this process has ended: kinetoscope recover {run}"


def _count_verb(number: int, thing: str) -> str:
    """Return a count with its verb, such as "3 records are"."""
    return f"{format_count(number, thing)} {'is' if number == 1 else 'are'}"
