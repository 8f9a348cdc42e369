"""The events of a run, and the Callback, which has one method for each."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, TypeVar, cast

from kinetoscope.core.job.state import RunState

F = TypeVar("F", bound=Callable[..., Any])


class Event(StrEnum):
    """A moment of a training run, in the order in which a run passes them. The value names the callback's method."""

    INIT = "init"
    BEFORE_LOAD = "before_load"
    AFTER_LOAD = "after_load"
    FIT_START = "fit_start"
    ITERATION_START = "iteration_start"
    EPOCH_START = "epoch_start"
    BEFORE_DATALOADER = "before_dataloader"
    AFTER_DATALOADER = "after_dataloader"
    BATCH_START = "batch_start"
    BEFORE_TRAIN_BATCH = "before_train_batch"
    BEFORE_FORWARD = "before_forward"
    AFTER_FORWARD = "after_forward"
    BEFORE_LOSS = "before_loss"
    AFTER_LOSS = "after_loss"
    BEFORE_BACKWARD = "before_backward"
    AFTER_BACKWARD = "after_backward"
    AFTER_TRAIN_BATCH = "after_train_batch"
    BATCH_END = "batch_end"
    BATCH_CHECKPOINT = "batch_checkpoint"
    EPOCH_END = "epoch_end"
    EPOCH_CHECKPOINT = "epoch_checkpoint"
    ITERATION_END = "iteration_end"
    ITERATION_CHECKPOINT = "iteration_checkpoint"
    FIT_END = "fit_end"

    EVAL_BEFORE_ALL = "eval_before_all"
    EVAL_START = "eval_start"
    EVAL_BATCH_START = "eval_batch_start"
    EVAL_BEFORE_FORWARD = "eval_before_forward"
    EVAL_AFTER_FORWARD = "eval_after_forward"
    EVAL_BATCH_END = "eval_batch_end"
    EVAL_END = "eval_end"
    EVAL_AFTER_ALL = "eval_after_all"

    PREDICT_START = "predict_start"
    PREDICT_BATCH_START = "predict_batch_start"
    PREDICT_BEFORE_FORWARD = "predict_before_forward"
    PREDICT_AFTER_FORWARD = "predict_after_forward"
    PREDICT_BATCH_END = "predict_batch_end"
    PREDICT_END = "predict_end"

    @property
    def is_before_event(self) -> bool:
        """True if an ``after`` or ``end`` event closes what this moment opens."""
        return self.value.endswith("_start") or "before_" in self.value

    @property
    def is_after_event(self) -> bool:
        """True if this moment closes what another event opened."""
        return self.value.endswith("_end") or "after_" in self.value


class Callback:
    """Base of all observers of a run: override the methods of events; the others do nothing.

    ``state`` is the run's `State`, or a trainer's (see `RunState`); ``logger`` is the trainer's logger, or None in a
    plain loop.
    """

    def run_event(self, event: Event, state: RunState, logger: Any = None) -> None:
        """Call the method of ``event``."""
        getattr(self, event.value)(state, logger)

    def window_opened(self, state: RunState) -> None:
        """Called when recording starts: a window has opened."""

    def window_closing(self, state: RunState) -> None:
        """Called when recording ends, before the window closes, also at the end of the run.

        At the end of the run it may be called on a background thread.
        """

    def close(self, state: RunState, logger: Any) -> None:
        """Called when the run ends, in any way; again if another close of the Profiler saves what was left."""

    def post_close(self) -> None:
        """Called after all callbacks were closed: release what other closes may use."""


def _event_method(event: Event) -> Any:
    def method(self: Callback, state: RunState, logger: Any) -> None:
        del self, state, logger

    method.__name__ = event.value
    method.__qualname__ = f"Callback.{event.value}"
    method.__doc__ = f"Called at `Event.{event.name}`."
    return method


for _event in Event:
    setattr(Callback, _event.value, _event_method(_event))


def skippable(method: F) -> F:
    """Mark a method of a `Callback` as not needed in batches that the run certainly skips.

    Such batches then cost less, if no method of any callback is called.
    """
    cast("Any", method).is_skippable = True
    return method


def collect_event_methods(callbacks: Iterable[object]) -> dict[Event, list[tuple[Any, Callable[..., Any]]]]:
    """Return for each event the callbacks that handle it, each with its method."""
    callbacks = list(callbacks)
    wanted: dict[Event, list[tuple[Any, Callable[..., Any]]]] = {}
    for event in Event:
        name = event.value
        wanted[event] = [(callback, getattr(callback, name)) for callback in callbacks if overrides(callback, name)]
    return wanted


def overrides(callback: object, method: str, kind: type = Callback) -> bool:
    """Return whether ``callback`` has a ``method`` that is not the default one of class ``kind``."""
    own_method = getattr(type(callback), method, None) or getattr(callback, method, None)
    return callable(own_method) and own_method is not getattr(kind, method)
