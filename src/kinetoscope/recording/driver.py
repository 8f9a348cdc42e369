"""Driver API: a trainer reports its progress, and a run is recorded from that."""

import contextlib
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.errors import SettingsError
from kinetoscope.hooks.training_safe import log_failure, training_safe
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.pulse_recorder import TrainingFacts
from kinetoscope.recording.messages.end_report import is_ended_by_exception
from kinetoscope.recording.run.lifecycle import RunLifecycle
from kinetoscope.recording.run.loop import Loop
from kinetoscope.recording.window.trace_handler import run_folder_of

P = ParamSpec("P")
T = TypeVar("T")
Batches = TypeVar("Batches")

PhaseName = Literal["forward", "backward", "optimizer", "checkpoint", "other"]
"""A phase that a trainer reports. `Driver.on_fetch` and `Driver.on_evaluation` report the others."""

_PHASES: dict[str, int] = {name: int(Phase[name.upper()]) for name in PhaseName.__args__}


def _while_running(method: Callable[Concatenate["Driver", P], None]) -> Callable[Concatenate["Driver", P], None]:
    """Return the method without effect unless the run is recorded, and without errors unless it is strict."""

    @wraps(method)
    def call(self: "Driver", *args: P.args, **kwargs: P.kwargs) -> None:
        if self.is_running:
            method(self, *args, **kwargs)

    return training_safe(call, lambda self, *_, **__: self._handle_failure())


class _UncleanEndError(Exception):
    """Error that ends an evaluation or an epoch which is open when a run ends by an error."""


class Driver:
    """Records a training run from the reports of a trainer; `Profiler.driver` returns it.

        driver = kinetoscope.profile("runs/mine").driver
        driver.start()
        for batch in loader:
            train(batch)
            driver.on_step(samples=len(batch))
        driver.end()

    The trainer calls a method when something happens, on the thread that trains. Only `start`, `on_step` and `end` are
    required. Waits for torch's DataLoaders, backward passes, steps of torch's optimizers and checkpoints are detected
    without a report.

    Between `start` and `end` no error of the profiler is raised: the first one is logged, and training continues. With
    ``strict=True`` errors are raised. Before `start` and after `end`, reports have no effect.
    """

    # Attributes, since `kinetoscope run` reads them at each fetch.
    is_evaluating: bool
    """True in an evaluation that was reported."""
    num_backward_passes: Callable[[], int]
    """Returns the number of backward passes that have started on the training thread."""

    def __init__(self, run: RunLifecycle, loop: Loop) -> None:
        self._run, self._loop, self._counted = run, loop, loop.counted
        self._epoch: contextlib.AbstractContextManager[None] | None = None
        self._evaluation: contextlib.AbstractContextManager[None] | None = None
        self._has_failed = False
        self.is_evaluating, self.num_backward_passes = False, int

    # -- the run ----------------------------------------------------------------------------------------------

    def start(
        self,
        at: Timestamp | None = None,
        *,
        fetch_listener: Callable[[Any], object] | None = None,
        past_step_ends_ns: Sequence[int] = (),
        facts: TrainingFacts | None = None,
    ) -> None:
        """Start the run on the calling thread, which trains.

        Args:
            at: the position of a resumed training run: its epoch, batch, and batch in that epoch.
            fetch_listener: called before each fetch with the iterator of the DataLoader; may report a step.
            past_step_ends_ns: when earlier steps ended, in monotonic nanoseconds. They are counted, but not recorded.
            facts: the facts that distinguish this run from others of the process.

        Raises:
            ProfilerStateError: if the run was started before, or if another run is active and ``strict=True``.
            Exception: an error of a source or handler that is set up.
        """
        run = self._run
        if at is not None:
            run.state.timestamp = at  # pyright: ignore[reportAttributeAccessIssue] - a driven run has a `State`
            run.windows.resume_at(at.batch_in_epoch)
        run.set_facts(facts)
        self._loop.start()
        if not run.is_running:
            return
        self.num_backward_passes = run.services.pulse.num_backward
        if fetch_listener is not None:
            self._loop.fetches.listener = training_safe(fetch_listener, lambda *_: self._handle_failure())
        if past_step_ends_ns:
            run.add_past_steps(past_step_ends_ns)

    def end(self, *, clean: bool = True, search: bool = True, at_exit: bool = False) -> None:
        """End the run: save what was recorded, wait until it is written, and remove all threads and hooks.

        Args:
            clean: whether training has ended without an error.
            search: whether to print the top finding, which takes up to some seconds.
            at_exit: whether the program is exiting; if an exception has ended it, the run has failed.

        Raises:
            Exception: with ``strict=True`` and ``clean``, the first error of a source or handler.
        """
        if self._run.is_new:
            return
        self._end_open(clean)
        if not search:
            self._run.set_search(None)
        self._run.close(clean=clean, has_failed=at_exit and is_ended_by_exception())

    @property
    def is_running(self) -> bool:
        """True from `start` to `end`, unless the run cannot be recorded."""
        return self._run.is_running

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None if no handler writes files."""
        return run_folder_of(self._run.context.handlers)

    # -- reports ----------------------------------------------------------------------------------------------

    def on_fetch(self, fetch: Callable[[Batches], T], iterator: Batches) -> T:
        """Return ``fetch(iterator)``, recorded as the wait for the next batch: ``batch = driver.on_fetch(next, it)``.

        Fetches of torch's DataLoaders are recorded without this. Raises what ``fetch`` raises.
        """
        return self._loop.fetches.fetch(fetch, iterator)

    def on_step(self, *, samples: int = 0, tokens: int = 0, end_ns: int | None = None) -> None:
        """Report the end of a step, and of an evaluation before it.

        Args:
            samples: the samples of the step.
            tokens: the tokens of the step.
            end_ns: the time at which it ended, in monotonic nanoseconds, if that was earlier.
        """
        try:
            if end_ns is None and not self.is_evaluating and self._counted.end_step(samples, tokens):
                return
            if self.is_running:
                self._end_evaluation()
                self._loop.step(samples, tokens, end_ns)
        except Exception:
            self._handle_failure()

    @_while_running
    def on_phase(self, phase: PhaseName) -> None:
        """Report that a phase of the step starts; ``"other"`` if none does.

        Backward passes, steps of torch's optimizers and ``torch.save`` are recorded without this.
        """
        if phase not in _PHASES:
            raise SettingsError(f"phase is one of {', '.join(_PHASES)}; not {phase!r}.")
        self._run.services.pulse.enter(_PHASES[phase])

    @_while_running
    def on_evaluation(self, is_running: bool) -> None:
        """Report that an evaluation starts, or has ended. Repeated reports of the same have no effect."""
        if not is_running:
            self._end_evaluation()
        elif not self.is_evaluating:
            evaluation = self._loop.evaluation()
            evaluation.__enter__()
            self._evaluation, self.is_evaluating = evaluation, True

    @_while_running
    def on_epoch(self, is_running: bool, length: int | None = None) -> None:
        """Report that an epoch of ``length`` steps starts, or has ended, and with it an evaluation.

        Repeated reports of the same have no effect. Without reports the run has one epoch.
        """
        if is_running == (self._epoch is not None):
            return
        self._end_evaluation()
        if is_running:
            epoch = self._loop.epoch(length)
            epoch.__enter__()
            self._epoch = epoch
        else:
            self._end_epoch()

    @_while_running
    def on_loop_end(self) -> None:
        """Report that the loop over the batches has ended. The next fetch, step or epoch starts another one."""
        self._run.services.pulse.is_between_loops = True

    @_while_running
    def follow_thread(self) -> None:
        """Report that the calling thread trains from now on."""
        self._loop.follow_thread()

    # -- results of reports ------------------------------------------------------------------------------------

    @property
    def first_step(self) -> int:
        """The number of the first step of this process."""
        return self._run.windows.first_batch

    def step_times_ns(self, first: int, end: int) -> list[int]:
        """Return the duration of the steps from number ``first`` to before ``end``, of those that are still kept."""
        return [duration_ns for duration_ns, _ in self._run.context.step_times(first, end)]

    # -- inside -----------------------------------------------------------------------------------------------

    def _end_open(self, clean: bool) -> None:
        error = None if clean else _UncleanEndError()
        try:
            with contextlib.suppress(_UncleanEndError):
                self._end_evaluation(error)
            with contextlib.suppress(_UncleanEndError):
                self._end_epoch(error)
        except Exception:
            self._handle_failure()

    def _end_evaluation(self, error: Exception | None = None) -> None:
        evaluation, self._evaluation, self.is_evaluating = self._evaluation, None, False
        if evaluation is not None:
            evaluation.__exit__(error and type(error), error, None)

    def _end_epoch(self, error: Exception | None = None) -> None:
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.__exit__(error and type(error), error, None)

    def _handle_failure(self) -> None:
        """Raise the error that is being handled if the run is strict; else log the first one of the run."""
        if self._run.settings.strict:
            raise
        if not self._has_failed:
            self._has_failed = True
            log_failure()
