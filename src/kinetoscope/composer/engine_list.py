"""composer: our callbacks in the list that Composer's engine goes through. During a batch the Profiler speaks for them.

At each of a batch's dozen events the engine makes a debug line and asks for a marker for each callback in its list,
whether that wants the event or not. So the others step out of the list while a batch runs, and the Profiler, which
stays, passes on to them what they want to know. Between batches, where checkpoints are saved, all of them are there.
"""

from typing import Any

from kinetoscope.composer.callback import GuardedCallback

_BATCH_BEGINS = "before_dataloader"
_BATCH_IS_OVER = frozenset({"batch_end", "epoch_end", "fit_end"})
_WITHIN_A_BATCH = frozenset(
    {
        *("after_dataloader", "batch_start", "before_train_batch", "after_train_batch"),
        *("before_forward", "after_forward", "before_loss", "after_loss", "before_backward", "after_backward"),
    }
)


class EngineList:
    """A Trainer's ``callbacks``: ``others``, which come behind their speaker in it, step out and back in.

    The engine goes through a copy of the list at each event, so that it may change meanwhile. ``unwanted`` names the
    events of which nobody needs to be told now; the speaker wants none that comes within a batch.
    """

    def __init__(self, callbacks: list[Any], others: list[GuardedCallback]) -> None:
        self._callbacks, self._others = callbacks, others
        self._out: list[tuple[GuardedCallback, Any]] = []  # each with what it came behind
        self.unwanted: frozenset[str] = frozenset()

    def pass_on(self, event: Any, state: Any, logger: Any) -> None:
        """Once the speaker has had an event: tells those that are out of the list, and moves them in or out."""
        for callback, _ in self._out:
            callback.run_event(event, state, logger)
        if event.value in _BATCH_IS_OVER:
            self.step_in()
        elif event.value == _BATCH_BEGINS and not self._out:
            self._step_out()

    def step_in(self) -> None:
        """Puts those that are out back to where they were."""
        for callback, former in self._out:
            place = _place_of(former, self._callbacks)
            if place is not None:
                self._callbacks.insert(place + 1, callback)
        self._out, self.unwanted = [], frozenset()

    def _step_out(self) -> None:
        pairs = zip(self._callbacks[1:], self._callbacks, strict=False)
        self._out = [(it, former) for it, former in pairs if _place_of(it, self._others) is not None]
        out = [it for it, _ in self._out]
        self._callbacks[:] = [it for it in self._callbacks if _place_of(it, out) is None]
        self.unwanted = _WITHIN_A_BATCH.difference(*(it.handled_events() for it in out))


def _place_of(callback: Any, callbacks: list[Any]) -> int | None:
    return next((place for place, it in enumerate(callbacks) if it is callback), None)
