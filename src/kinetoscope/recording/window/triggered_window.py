"""Triggered windows: recordings of some steps that a schedule does not plan."""

from collections.abc import Callable
from enum import Enum

from kinetoscope.recording.markers.schedule import ProfilerAction

_ACTIVE, _SAVE, _SKIP = ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE, ProfilerAction.SKIP
_MAX_POSTPONED_STEPS = 1000


class Progress(Enum):
    """Progress of a triggered window."""

    WAITING = 1
    WARM = 2
    RECORDING = 3
    LATE = 4
    """Given up, since the first step was over before the window could start."""
    BLOCKED = 5
    """Given up, since windows of the schedule left no gap for too many steps."""


class TriggeredWindow:
    """Window of some steps: the step before them warms up, and the last one saves.

    Args:
        first_step: the number of the first recorded step.
        choose_num_steps: returns the number of recorded steps; called once, when the window starts.
        on_progress: called when the window is postponed, starts to record, or is given up.
    """

    def __init__(
        self,
        first_step: int,
        choose_num_steps: Callable[[], int],
        on_progress: Callable[["TriggeredWindow"], object] = lambda window: None,
    ) -> None:
        self.first_step: int = first_step
        """Later than requested if the schedule has a window there."""
        self.num_steps: int = 0
        """0 until the window starts."""
        self.progress: Progress = Progress.WAITING
        self._earliest_step, self._choose_num_steps, self._on_progress = first_step, choose_num_steps, on_progress

    @property
    def has_recorded(self) -> bool:
        """True once the first step is recorded."""
        return self.progress is Progress.RECORDING

    @property
    def is_given_up(self) -> bool:
        """True if it will not record."""
        return self.progress in (Progress.LATE, Progress.BLOCKED)

    def action(self, step: int, planned: ProfilerAction) -> ProfilerAction:
        """Return the action of a step whose ``planned`` action is that of the schedule.

        A window of the schedule that is open stays as planned: then the first step is the second one after it.
        """
        if step < self.first_step - 1 or self.is_given_up:
            return planned
        if self.progress is Progress.WAITING:
            if step > self.first_step:
                return self._give_up(Progress.LATE, planned)
            if planned is not _SKIP:
                return self._postpone(step, planned)
            self.num_steps, self.progress = self._choose_num_steps(), Progress.WARM
        if step < self.first_step:
            return ProfilerAction.WARMUP
        if self.has_recorded and step >= self.first_step + self.num_steps:
            return planned  # its window is about to close
        if not self.has_recorded:
            self.progress = Progress.RECORDING
            self._on_progress(self)
        return _ACTIVE if step < self.first_step + self.num_steps - 1 else _SAVE

    def _postpone(self, step: int, planned: ProfilerAction) -> ProfilerAction:
        """Postpone the window. All ranks have the same schedule, and so the same first step."""
        if step - self._earliest_step > _MAX_POSTPONED_STEPS:
            return self._give_up(Progress.BLOCKED, planned)
        self.first_step = step + 2
        self._on_progress(self)
        return planned

    def _give_up(self, progress: Progress, planned: ProfilerAction) -> ProfilerAction:
        self.progress = progress
        self._on_progress(self)
        return planned
