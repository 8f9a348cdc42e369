"""Training loop that is driven by the events of a Trainer's engine, as `recording.run.loop` is by a plain loop."""

import logging

from kinetoscope.composer.engine_markers import EngineMarkers
from kinetoscope.core.job.state import RunState
from kinetoscope.pulse.layout import Phase
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.run.lifecycle import RunLifecycle

_log = logging.getLogger("kinetoscope")


class TrainerLoop:
    """`TrainingLoop` of ``run`` in a Trainer. It gets each event before the run's sources and handlers.

    At a batch's end the sources must act first, so the window is closed or continued at the event after it.
    """

    def __init__(self, run: RunLifecycle, engine_markers: EngineMarkers) -> None:
        self._run = run
        run.loop = self
        self._engine_markers = engine_markers
        self._saves_at_next_event = self._acts_at_next_event = False
        self._has_started = False

    def run_event(self, name: str) -> None:
        """Handle the event with the value ``name``, any but INIT."""
        if self._acts_at_next_event:
            self._run.context.call(self._run.profiler, self._apply_end)
        if (phase := _PHASES.get(name)) is not None:
            self._run.services.pulse.enter(phase)
        if name in _HANDLED:
            self._run.context.call(self._run.profiler, getattr(self, name))

    # -- events -----------------------------------------------------------------------------------------------

    def after_load(self) -> None:
        """Set the batch at which the run was resumed, if it was: a schedule's skip counts from there, in this epoch."""
        self._run.windows.resume_at(self._run.state.timestamp.batch_in_epoch)

    def fit_start(self) -> None:
        """Start recording at the first fit, when handlers and sources are set up. A window never outlasts its fit."""
        if self._has_started:  # the fit before may have been interrupted in the middle of a window
            self._finish_sources()
            self._run.windows.save()
            self._engine_markers.finish_open()
        else:
            self._has_started = True
            self._run.start()
        self._run.windows.advance_action()
        self._run.windows.apply_action()
        self._run.services.pulse.begin_step()

    def epoch_start(self) -> None:
        """Apply the schedule to the first batch of the epoch."""
        self._run.windows.advance_action()
        self._run.windows.apply_action()

    def batch_end(self) -> None:
        """Choose the next action. The timestamp counts the batch already.

        The sources act next, so the window is closed at the next event.
        """
        self._run.windows.end_step_of_pulse()
        before = self._run.windows.advance_action()
        self._saves_at_next_event = before is ProfilerAction.ACTIVE_AND_SAVE
        self._acts_at_next_event = True

    def epoch_end(self) -> None:
        """Save a recording that the epoch's end cuts off. The timestamp is already in the next epoch."""
        before = self._run.windows.advance_action()
        self._saves_at_next_event = self._acts_at_next_event = self._run.windows.is_cut_short(before)

    def fit_end(self) -> None:
        """Save what was recorded before `Trainer.fit` returns, also in the middle of a window."""
        self._finish_sources()
        self._run.windows.save()
        timeout_s = self._run.settings.close_timeout_s
        if not self._run.drain(timeout_s):
            _log.error("Saving takes longer than %g seconds. It continues in the background.", timeout_s)

    # -- the run's end ----------------------------------------------------------------------------------------

    def end(self, clean: bool) -> None:
        """Let the sources deliver their data while the run closes. The Trainer notifies the handlers itself."""
        self._finish_sources()

    def close_handlers(self) -> None:
        """Wait, while the run closes, until everything is on disk. The Trainer closes handlers and sources next."""
        self._run.drain_or_give_up()

    def close_abandoned(self) -> None:
        """Close the profiler, its sources and its handlers, because the Trainer was never closed."""
        self._run.close(clean=True)
        callbacks = [*self._run.context.sources, *self._run.context.handlers]
        for callback in callbacks:
            self._run.context.call(callback, callback.close, self._run.state, None)
        for callback in callbacks:
            self._run.context.call(callback, callback.post_close)
        self._run.finish_uploads()

    @property
    def close_timeout_s(self) -> float:
        """The seconds that saving may take when a fit or the run ends."""
        return self._run.settings.close_timeout_s

    def close_if_removed(self) -> None:
        """Close the run if it is still open: the user has removed the Profiler from the Trainer's callbacks.

        Called by handlers, which are closed after the profiler.
        """
        if self._run.is_running:
            _log.warning(
                "The Profiler was removed from the Trainer's callbacks during the run, so it saves its recording now. "
                "Leave it in the list until the Trainer is closed."
            )
            self._run.close(clean=True)

    def _apply_end(self) -> None:
        """Apply the end of a batch or an epoch, after the sources got their event."""
        saves, self._saves_at_next_event, self._acts_at_next_event = self._saves_at_next_event, False, False
        if saves:
            self._run.windows.save(continues=True)
        self._run.windows.apply_action()
        if saves:  # the time in which a window ends belongs to no step
            self._run.services.pulse.begin_step()

    def _finish_sources(self) -> None:
        """Apply a pending end of a batch, and let the sources finish their window."""
        if self._acts_at_next_event:
            self._apply_end()
        for source in self._run.context.sources:
            self._run.context.call(source, source.fit_end, self._run.state, None)


_PHASES = {
    "before_dataloader": int(Phase.DATA_WAIT),
    "before_forward": int(Phase.FORWARD),
    "before_backward": int(Phase.BACKWARD),
    "eval_start": int(Phase.EVALUATION),
} | dict.fromkeys(("after_dataloader", "after_loss", "after_backward", "eval_end"), int(Phase.OTHER))
"""Phases that start at an event. The loss is a part of the forward phase."""

_HANDLED = frozenset({"after_load", "fit_start", "epoch_start", "batch_end", "epoch_end", "fit_end"})


def find_trainer_loop(state: RunState) -> TrainerLoop | None:
    """Return the loop of the run of a Trainer's ``state``; None if the Trainer has no Profiler of ours."""
    loop = getattr(getattr(state.profiler, "lifecycle", None), "loop", None)
    return loop if isinstance(loop, TrainerLoop) else None
