"""Integration with Lightning, as `lightning` and as `pytorch_lightning`.

``Trainer(profiler=KinetoscopeProfiler("runs/mine"))``, or ``Trainer(callbacks=[KinetoscopeCallback("runs/mine")])``.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any, Unpack

import kinetoscope
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.integrations.arguments import ProfileArguments, ProfileOptions
from kinetoscope.integrations.trainer_run import TrainerRun
from kinetoscope.recording.markers.marker import Marker

_CATEGORY = "lightning"
_FETCH_ACTION = "train_dataloader_next"
"""End of the action that is recorded as the loop's own wait for data."""


class KinetoscopeProfiler:
    """Profiles each ``Trainer.fit`` of Lightning.

        trainer = Trainer(profiler=KinetoscopeProfiler("runs/mine"))
        trainer.fit(model, loader)

    The arguments are the same as for `kinetoscope.profile`; a second fit is in the folder ``2`` of ``out``, and so on.
    A step is one of the optimizer's. Lightning's actions are recorded as spans, under its own names.

    Raises TypeError for an argument that `kinetoscope.profile` does not have. When training starts, raises the errors
    of `kinetoscope.profile` and of the start of a Profiler.
    """

    def __init__(self, out: str | os.PathLike[str] = "runs/{time}", **options: Unpack[ProfileOptions]) -> None:
        self._callback = KinetoscopeCallback(out, **options)
        self._actions = _Actions(self._callback.run)
        self._lightning_module: Any = None  # the Trainer sets it before `setup`
        self.dirpath = self.filename = None

    def setup(self, stage: str, local_rank: int | None = None, log_dir: Any = None) -> None:
        """Add the callback that gets the Trainer's events. Called by the Trainer."""
        del local_rank, log_dir
        trainer = self._lightning_module.trainer
        if stage == "fit" and self._callback not in trainer.callbacks:
            trainer.callbacks = [self._callback, *trainer.callbacks]

    def start(self, action_name: str) -> None:
        """Record the start of an action."""
        self._actions.start(action_name)

    def stop(self, action_name: str) -> None:
        """Record the end of an action."""
        self._actions.stop(action_name)

    def profile(self, action_name: str) -> contextlib.AbstractContextManager[str]:
        """Return a context for an action."""
        return self._actions.profile(action_name)

    def summary(self) -> str:
        """Return the summary of `kinetoscope.analyze` for the last fit that has ended; "" if there is none.

        If the traces cannot be analyzed, return the error.
        """
        run = self._callback.run
        if run.folder is None or run.is_running:
            return ""
        try:
            return repr(kinetoscope.analyze(run.folder))
        except Exception as error:  # nothing was recorded, or polars is missing: this is called when training ends
            return f"{type(error).__name__}: {error}"

    def describe(self) -> None:
        """Do nothing: the end of a run and `summary` report the results."""

    def teardown(self, stage: str | None) -> None:
        """Do nothing. Called by the Trainer, but not after an exception."""


class KinetoscopeCallback:
    """Profiles each ``Trainer.fit`` of Lightning, as a callback, also together with another profiler of the Trainer.

        trainer = Trainer(callbacks=[KinetoscopeCallback("runs/mine")])

    It records the same as `KinetoscopeProfiler`. Lightning's actions are recorded if the Trainer has no other profiler.
    """

    state_key = "KinetoscopeCallback"

    def __init__(self, out: str | os.PathLike[str] = "runs/{time}", **options: Unpack[ProfileOptions]) -> None:
        self.run: TrainerRun = TrainerRun(ProfileArguments(out, **options), self._find_validation)
        self._trainer: Any = None
        self._replaced: Any = None
        """The Trainer's profiler without effect, which ours replaces during training."""
        self._num_optimizer_steps = 0
        """Number of optimizer steps when the last step ended."""

    def __getattr__(self, name: str) -> None:
        if not name.startswith("on_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        # An event without a method: Lightning calls only callables.

    # -- events of the Trainer --

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Start the run."""
        self._trainer, self._num_optimizer_steps = trainer, trainer.global_step
        loop, length = trainer.fit_loop, _find_num_steps(trainer)
        in_epoch = loop.epoch_loop.batch_progress.current.ready // trainer.accumulate_grad_batches
        at = Timestamp(batch=trainer.global_step, epoch=trainer.current_epoch, batch_in_epoch=in_epoch)
        self.run.start(at, length)
        if type(trainer.profiler).__name__ == "PassThroughProfiler":
            self._replaced, trainer.profiler = trainer.profiler, _Actions(self.run, trainer.profiler)

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Report the start of an epoch."""
        self.run.on_epoch(True, _find_num_steps(trainer))

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the end of a step, if the optimizer has stepped."""
        if trainer.global_step != self._num_optimizer_steps:
            self._num_optimizer_steps = trainer.global_step
            self.run.on_step()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Report the end of an epoch."""
        self.run.on_epoch(False)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Report the start of an evaluation."""
        self.run.on_evaluation(True)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Report the end of an evaluation."""
        self.run.on_evaluation(False)

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        """End the run."""
        self._end(clean=True)

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """End the run after an error."""
        self._end(clean=False)

    def _end(self, *, clean: bool) -> None:
        """End the run, and restore the Trainer's profiler."""
        trainer, self._trainer = self._trainer, None
        if trainer is None:
            return
        replaced, self._replaced = self._replaced, None
        if replaced is not None and isinstance(trainer.profiler, _Actions):
            trainer.profiler = replaced
        self.run.end(clean=clean)

    def _find_validation(self, iterator: object) -> None:
        """Report a validation that fetches before its start is reported."""
        del iterator
        if self._trainer is not None and self._trainer.validating:
            self.run.on_evaluation(True)

    # -- methods that each callback must have --

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """Do nothing: the run starts with the training."""

    def teardown(self, trainer: Any, module: Any, stage: str) -> None:
        """Do nothing: the run ends with the training."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: checkpoints do not change."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing: `state_dict` saves nothing."""

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Do nothing."""

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Do nothing."""

    @property
    def _legacy_state_key(self) -> type:
        return type(self)


class _Actions:
    """Recorder of Lightning's actions as spans. It replaces ``wrapped``, a profiler of Lightning's without effect."""

    def __init__(self, run: TrainerRun, wrapped: Any = None) -> None:
        self._run, self._wrapped = run, wrapped
        self._profiler: Any = None
        self._markers: dict[str, Marker | None] = {}
        self._open: list[tuple[str, Marker, Any]] = []

    def __getattr__(self, name: str) -> Any:
        if name == "_wrapped":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def start(self, action_name: str) -> None:
        if not self._run.is_running:
            return
        if self._profiler is not self._run.profiler:
            self._profiler = self._run.profiler
            self._markers.clear()
            self._open.clear()
        try:
            marker = self._markers[action_name]
        except KeyError:
            marker = self._markers[action_name] = self._find_marker(action_name)
        if marker is not None:
            self._open.append((action_name, marker, marker.begin()))

    def stop(self, action_name: str) -> None:
        """End the action that began last under this name. Later ones inside it were left by an exception."""
        for index in range(len(self._open) - 1, -1, -1):
            name, marker, token = self._open[index]
            if name == action_name:
                del self._open[index]
                marker.end(token)
                return

    @contextlib.contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        self.start(action_name)
        try:
            yield action_name
        finally:
            self.stop(action_name)

    def _find_marker(self, action_name: str) -> Marker | None:
        """Return the marker of an action; None for actions of our own and for fetches."""
        if action_name.endswith(_FETCH_ACTION) or action_name.startswith(f"[Callback]{KinetoscopeCallback.state_key}."):
            return None
        return self._profiler.marker(action_name, categories=(_CATEGORY,))


def _find_num_steps(trainer: Any) -> int | None:
    """Return the number of steps of an epoch; None if unknown."""
    num_batches = trainer.num_training_batches
    return math.ceil(num_batches / trainer.accumulate_grad_batches) if math.isfinite(num_batches) else None
