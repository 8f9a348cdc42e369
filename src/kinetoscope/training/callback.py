"""training: the Callback, an object with one method per event of a run."""

from collections.abc import Callable, Iterable
from typing import Any

from kinetoscope.training.event import Event
from kinetoscope.training.state import RunState


class Callback:
    """Base of everything that follows a run. Override the methods of the events you want; the others do nothing.

    ``state`` is the run's `State`, or a trainer's (see `RunState`); ``logger`` is the trainer's logger, or None in a
    plain loop.
    """

    def run_event(self, event: Event, state: RunState, logger: Any = None) -> None:
        """Calls the method of ``event``."""
        getattr(self, event.value)(state, logger)

    def close(self, state: RunState, logger: Any) -> None:
        """Called when the run ends, however it ends; again if another close of the Profiler saves what was left."""

    def post_close(self) -> None:
        """Called after every callback was closed: the place to let go of resources that other closes may use."""


def _event_method(event: Event) -> Any:
    def method(self: Callback, state: RunState, logger: Any) -> None:
        del self, state, logger

    method.__name__ = event.value
    method.__qualname__ = f"Callback.{event.value}"
    method.__doc__ = f"Called at `Event.{event.name}`."
    return method


for _event in Event:
    setattr(Callback, _event.value, _event_method(_event))


def wanted_events(callbacks: Iterable[object]) -> dict[Event, list[tuple[Any, Callable[..., Any]]]]:
    """For each event, the callbacks that want it, each with its method."""
    callbacks = list(callbacks)
    wanted: dict[Event, list[tuple[Any, Callable[..., Any]]]] = {}
    for event in Event:
        name = event.value
        wanted[event] = [(callback, getattr(callback, name)) for callback in callbacks if overrides(callback, name)]
    return wanted


def overrides(callback: object, method: str, kind: type = Callback) -> bool:
    """Whether ``callback`` is to be told by ``method``: it overrides that of ``kind``, or has it and is none."""
    own = getattr(type(callback), method, None) or getattr(callback, method, None)
    return callable(own) and own is not getattr(kind, method)
