"""Integration with Transformers: ``Trainer(..., callbacks=[KinetoscopeCallback("runs/mine")])``."""

import math
import os
from collections.abc import Sized
from typing import Any, Unpack
from weakref import WeakSet

from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.integrations.arguments import ProfileArguments, ProfileOptions
from kinetoscope.integrations.trainer_run import TrainerRun


class KinetoscopeCallback:
    """Profiles each training run of a Transformers Trainer.

        trainer = Trainer(model, arguments, train_dataset=dataset, callbacks=[KinetoscopeCallback("runs/mine")])
        trainer.train()

    The arguments are the same as for `kinetoscope.profile`; a second training is in the folder ``2`` of ``out``, and so
    on. A step is one of the optimizer's. Evaluations are separated, also those on the training data.

    The Trainer does not report an exception or Ctrl-C. The data is then saved when the process ends, when the next
    training starts, or in a notebook at the end of the cell.

    Raises TypeError for an argument that `kinetoscope.profile` does not have. When training starts, raises the errors
    of `kinetoscope.profile` and of the start of a Profiler.
    """

    def __init__(self, out: str | os.PathLike[str] = "runs/{time}", **options: Unpack[ProfileOptions]) -> None:
        self.run: TrainerRun = TrainerRun(ProfileArguments(out, **options), self._find_evaluation)
        self._control: Any = None
        self._is_in_epoch = self._is_in_step = False

    _iterators: WeakSet[Any]
    """Iterators of the training's own loaders."""

    _fetched: WeakSet[Any]
    """Iterators that were fetched from since the last step of the training."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # events without a method
            return _do_nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    # -- events of the Trainer --

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        """Start the run."""
        self._control, self._is_in_epoch, self._is_in_step = control, False, False
        self._length = _find_num_steps(train_dataloader, args)
        self._iterators, self._fetched = WeakSet(), WeakSet()
        batch = state.global_step
        epoch, in_epoch = divmod(batch, self._length) if self._length else (0, 0)
        in_epoch = 0 if args.ignore_data_skip else in_epoch
        self.run.start(Timestamp(batch=batch, epoch=epoch, batch_in_epoch=in_epoch), self._length)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the start of an epoch."""
        self._control, self._is_in_epoch = control, True
        self._fetched.clear()
        self.run.on_epoch(True, self._length)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the end of an evaluation, since a step starts."""
        self._control, self._is_in_step = control, True
        if self._fetched:
            self._iterators |= self._fetched  # these fetches were for the training
            self._fetched.clear()
        self.run.on_evaluation(False)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the end of a step."""
        self._control, self._is_in_step = control, False
        self.run.on_step()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the start of an evaluation."""
        self.run.on_evaluation(True)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the end of an evaluation."""
        self._control = control
        self._fetched.clear()
        self.run.on_evaluation(False)

    on_predict = on_evaluate

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the end of an epoch."""
        self._control, self._is_in_epoch = control, False
        self._iterators.clear()
        self.run.on_epoch(False)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the run."""
        self.run.end(clean=True)

    # -- evaluations, which it does not report --

    def _find_evaluation(self, iterator: object) -> None:
        """Report the start of an evaluation. The Trainer reports only the end.

        Between two steps, it is what the Trainer is due to do next, or a fetch from an iterator that is new.
        """
        if self._is_in_step or self.run.is_evaluating:
            return
        is_due = self._control.should_evaluate or not self._is_in_epoch
        if is_due or (self._iterators and iterator not in self._iterators):
            self.run.on_evaluation(True)
        if not is_due:
            self._fetched.add(iterator)


def _find_num_steps(loader: Any, args: Any) -> int | None:
    """Return the number of steps of an epoch over a loader; None if unknown."""
    try:
        num_batches = len(loader) if isinstance(loader, Sized) else 0
    except TypeError:  # an IterableDataset without a length
        num_batches = 0
    return math.ceil(num_batches / args.gradient_accumulation_steps) or None


def _do_nothing(*arguments: object, **options: object) -> None:
    del arguments, options
