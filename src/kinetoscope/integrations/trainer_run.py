"""What all trainers share: a run that begins when training does, and that the trainer's events drive."""

import contextlib
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from kinetoscope.integrations.arguments import ProfileArguments
from kinetoscope.recording.contract import run_folder_of
from kinetoscope.recording.profiler import Profiler
from kinetoscope.recording.training_safe import log_failure, training_safe
from kinetoscope.training.timestamp import Timestamp

P = ParamSpec("P")
_Method = Callable[Concatenate["TrainerRun", P], None]


def _while_running(method: _Method[P]) -> _Method[P]:
    """Return the method without effect unless the run is recording, and without errors unless it is strict."""

    @wraps(method)
    def call(self: "TrainerRun", *args: P.args, **kwargs: P.kwargs) -> None:
        if self.is_running:
            method(self, *args, **kwargs)

    return training_safe(call, lambda self, *_, **__: self.handle_failure())


def _do_nothing(_: object) -> None:
    pass


class _LeftOpenError(Exception):
    """What is still open when a run ends ends as by an exception."""


class TrainerRun:
    """The runs of one callback: one for each training. `begin` raises what `kinetoscope.profile` and the setup of a
    run do; nothing else raises, unless with ``strict=True``.

    A step is one of the optimizer's, whatever number of batches it takes. Waits for data, forward and backward passes,
    optimizers and checkpoints are found by the loop itself.
    """

    def __init__(self, arguments: ProfileArguments) -> None:
        arguments.refuse("first_step", "the trainer says at which step it begins")
        self._arguments = arguments
        self.is_strict: bool = arguments.is_strict
        self.profiler: Profiler | None = None
        """That of the training that goes on, or of the last one."""
        self.before_fetch: Callable[[object], object] = _do_nothing
        """Called with the iterator of a torch DataLoader that is about to be asked for a batch."""
        self._epoch: contextlib.AbstractContextManager[None] | None = None
        self._evaluation: contextlib.AbstractContextManager[None] | None = None
        self._cell_end: Callable[..., None] | None = None
        self._has_failed = False

    @property
    def is_running(self) -> bool:
        """Whether a training goes on."""
        return self.profiler is not None and self.profiler.run.is_running

    @property
    def folder(self) -> Path | None:
        """The folder of the training's run; None if there is none."""
        if self.profiler is None or self.profiler.run.is_new:
            return None
        return run_folder_of(self.profiler.trace_handlers)

    # -- the training --

    def begin(self, *, batch: int = 0, epoch: int = 0, batch_in_epoch: int = 0, length: int | None = None) -> None:
        """Begins the run of a training, which was resumed after so many batches if there are any. An earlier one that
        was not closed is closed before. ``length`` is how many batches an epoch has, if that is known."""
        if self.is_running:
            self.close(clean=False)
        self._epoch = self._evaluation = None
        self._has_failed = False
        self.profiler = profiler = self._arguments.make()
        profiler.run.state.timestamp = Timestamp(epoch=epoch, batch=batch, batch_in_epoch=batch_in_epoch)  # pyright: ignore[reportAttributeAccessIssue]
        profiler.resumption_batch_idx = batch_in_epoch
        profiler.start()
        loop: Any = profiler.run.driver
        loop.before_fetch = self._before_fetch
        self._end_with_cell()
        if batch_in_epoch:
            self.begin_epoch(length)

    def close(self, *, clean: bool) -> None:
        """Ends the run, and saves it. ``clean``: the training has come to its end."""
        if self.profiler is None:
            return
        self._forget_cell()
        self._close_open(clean=clean)
        self.profiler.run.close(clean=clean)

    def _close_open(self, *, clean: bool) -> None:
        error = None if clean else _LeftOpenError()
        for opened in (self._evaluation, self._epoch):
            if opened is not None:
                with contextlib.suppress(_LeftOpenError):
                    opened.__exit__(type(error) if error else None, error, None)
        self._epoch = self._evaluation = None

    # -- its epochs, steps and evaluations --

    @_while_running
    def begin_epoch(self, length: int | None = None) -> None:
        """Begins an epoch of ``length`` steps, unless one has begun."""
        if self._epoch is None:
            self.end_evaluation()
            epoch = self._profiler().epoch(length)
            epoch.__enter__()
            self._epoch = epoch

    @_while_running
    def end_epoch(self) -> None:
        """Ends the epoch."""
        self.end_evaluation()
        if self._epoch is not None:
            epoch, self._epoch = self._epoch, None
            epoch.__exit__(None, None, None)

    @_while_running
    def end_step(self, samples: int = 0) -> None:
        """Ends a step of ``samples`` samples, 0 if that is not known."""
        self.end_evaluation()
        self._profiler().step(samples=samples)

    @_while_running
    def begin_evaluation(self) -> None:
        """Begins an evaluation, unless one has begun."""
        if self._evaluation is None:
            evaluation = self._profiler().eval()
            evaluation.__enter__()
            self._evaluation = evaluation

    @_while_running
    def end_evaluation(self) -> None:
        """Ends the evaluation, if there is one."""
        if self._evaluation is not None:
            evaluation, self._evaluation = self._evaluation, None
            evaluation.__exit__(None, None, None)

    @property
    def is_evaluating(self) -> bool:
        """Whether an evaluation has begun and not ended."""
        return self._evaluation is not None

    @_while_running
    def _before_fetch(self, iterator: object) -> None:
        self.before_fetch(iterator)

    def _profiler(self) -> Profiler:
        assert self.profiler is not None  # while it runs
        return self.profiler

    def handle_failure(self) -> None:
        """Raise the error that is being handled if the run is strict. Else log the first of a training run."""
        if self.is_strict:
            raise
        if not self._has_failed:
            self._has_failed = True
            log_failure()

    # -- in a notebook --

    def _end_with_cell(self) -> None:
        """In a notebook a training ends with its cell, also by Ctrl-C or an error, of which some trainers do not tell.
        One on another thread goes on beside the cells."""
        events = getattr(_ipython(), "events", None)
        if events is None or threading.current_thread() is not threading.main_thread():
            return

        def end_with_cell(*_: object) -> None:
            if self.is_running:
                self.close(clean=False)
            self._forget_cell()

        events.register("post_run_cell", end_with_cell)
        self._cell_end = end_with_cell

    def _forget_cell(self) -> None:
        cell_end, self._cell_end = self._cell_end, None
        if cell_end is not None:
            with contextlib.suppress(ValueError):  # it was removed by others
                _ipython().events.unregister("post_run_cell", cell_end)


def _ipython() -> Any:
    """IPython's shell, if this is one of its processes."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None
