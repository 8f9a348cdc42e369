"""Runs that start and end with the training of a trainer, which its callbacks drive."""

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.integrations.arguments import ProfileArguments

if TYPE_CHECKING:
    from kinetoscope.recording.driver import Driver
    from kinetoscope.recording.profiler import Profiler


class TrainerRun:
    """Runs of one callback, one per training, with a `Driver` each. Reports without a run have no effect.

    `start` raises the errors of `kinetoscope.profile` and of the start of a `Driver`; other methods raise nothing,
    unless with ``strict=True``. A step is one of the optimizer's, whatever number of batches it takes.
    ``fetch_listener`` is passed to `Driver.start`.
    """

    def __init__(self, arguments: ProfileArguments, fetch_listener: Callable[[Any], object] | None = None) -> None:
        arguments.reject("first_step", "the trainer sets the first step")
        self._arguments, self._fetch_listener = arguments, fetch_listener
        self.profiler: Profiler | None = None
        """The profiler of the current training, or of the last one."""
        self._driver: Driver | None = None
        self._cell_end: Callable[..., None] | None = None

    @property
    def is_running(self) -> bool:
        """True while a training run is recorded."""
        return self._driver is not None and self._driver.is_running

    @property
    def is_evaluating(self) -> bool:
        """True in an evaluation that was reported."""
        return self._driver is not None and self._driver.is_evaluating

    @property
    def folder(self) -> Path | None:
        """The folder of the training's run; None if there is none."""
        return None if self._driver is None else self._driver.folder

    def start(self, at: Timestamp, length: int | None = None) -> None:
        """Start recording a training run. An earlier run that was not ended is ended before.

        Args:
            at: the position at which training is resumed.
            length: the steps of an epoch, if known.
        """
        if self.is_running:
            self.end(clean=False)
        self.profiler = self._arguments.make_profiler()
        driver = self._driver = self.profiler.driver
        driver.start(at, fetch_listener=self._fetch_listener)
        self._end_with_cell()
        if at.batch_in_epoch:
            driver.on_epoch(True, length)

    def end(self, *, clean: bool) -> None:
        """End the run, and save it. ``clean``: the training was not ended by an error."""
        self._unregister_cell_end()
        if self._driver is not None:
            self._driver.end(clean=clean)

    def on_epoch(self, is_running: bool, length: int | None = None) -> None:
        """Report that an epoch of ``length`` steps starts, or has ended."""
        if self._driver is not None:
            self._driver.on_epoch(is_running, length)

    def on_step(self) -> None:
        """Report the end of a step."""
        if self._driver is not None:
            self._driver.on_step()

    def on_evaluation(self, is_running: bool) -> None:
        """Report that an evaluation starts, or has ended."""
        if self._driver is not None:
            self._driver.on_evaluation(is_running)

    # -- in a notebook --

    def _end_with_cell(self) -> None:
        """End the run with its cell in a notebook, also after Ctrl-C or an error, which some trainers do not report.

        A training run on another thread continues after the cell.
        """
        events = getattr(_find_ipython(), "events", None)
        if events is None or threading.current_thread() is not threading.main_thread():
            return

        def end_with_cell(*_: object) -> None:
            if self.is_running:
                self.end(clean=False)
            self._unregister_cell_end()

        events.register("post_run_cell", end_with_cell)
        self._cell_end = end_with_cell

    def _unregister_cell_end(self) -> None:
        cell_end, self._cell_end = self._cell_end, None
        if cell_end is not None:
            with contextlib.suppress(ValueError):  # other code has removed it
                _find_ipython().events.unregister("post_run_cell", cell_end)


def _find_ipython() -> Any:
    """Return IPython's shell, if this is one of its processes; else None."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None
