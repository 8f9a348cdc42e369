"""Base of callbacks that Composer's engine calls. Errors in our code do not reach the Trainer."""

from typing import TYPE_CHECKING

from kinetoscope.composer.trainer_loop import TrainerLoop, find_trainer_loop
from kinetoscope.core.job.event import Callback, Event
from kinetoscope.core.job.state import RunState
from kinetoscope.errors import ProfilerStateError
from kinetoscope.recording.run.plugin_api import RunContext

if TYPE_CHECKING:
    TrainerCallback = Callback
else:
    try:
        from composer.core import Callback as TrainerCallback
    except ImportError:
        # Without Composer, any engine that calls the same methods can be used.
        TrainerCallback = Callback

__all__ = ["GuardedCallback", "TrainerCallback", "require_profiler"]

_EVENTS = tuple(event.value for event in Event)


class GuardedCallback:
    """First base of a callback: the Profiler's guard calls the method for each event that the class handles.

    INIT is setup, so its errors are raised. At any other event an error is logged, the callback is switched off, and
    training continues. Events that the class does not handle cost one lookup.
    """

    _handled: frozenset[str] | None = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._handled = None

    def run_event(self, event: Event, state: RunState, logger: object = None) -> None:
        """Handle an event. Called by the engine."""
        handled, name = self._handled, event.value
        if handled is None:
            handled = type(self)._handled = _find_handled(type(self))
        if name not in handled:
            return
        method = getattr(self, name)
        run = getattr(state.profiler, "run", None)
        if name == "init" or not isinstance(run, RunContext):
            method(state, logger)
        else:
            run.call(self, method, state, logger)


def _find_handled(callback_type: type) -> frozenset[str]:
    """Return the events that ``callback_type`` handles by a method other than an empty one of a Callback."""
    names = {name for name in dir(callback_type) if name in _EVENTS or name.startswith("eval_standalone")}
    bases = (Callback, TrainerCallback)
    return frozenset(
        name for name in names if all(getattr(callback_type, name) is not getattr(base, name, None) for base in bases)
    )


def require_profiler(callback: object, state: RunState) -> TrainerLoop:
    """Return the loop of the Trainer's run.

    Raises:
        ProfilerStateError: if the Trainer has no Profiler of ours.
    """
    loop = find_trainer_loop(state)
    if loop is None:
        raise ProfilerStateError(
            f"{type(callback).__name__} works only with a kinetoscope.composer.Profiler. Pass one to the Trainer."
        )
    return loop
