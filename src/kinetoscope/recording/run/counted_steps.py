"""Fast path of a loop: steps that only need counting are counted by the pulse, in C."""

from collections.abc import Callable

from kinetoscope.core.job.state import State
from kinetoscope.recording.run.lifecycle import RunLifecycle


def _count_nothing(samples: int, tokens: int) -> bool:
    """Return False: nothing is counted."""
    del samples, tokens
    return False


class CountedSteps:
    """Steps of ``run`` that are counted in C while no source, handler or window needs them."""

    def __init__(self, run: RunLifecycle, state: State) -> None:
        self._run, self._state, self._pulse = run, state, run.services.pulse
        self.is_on: bool = False
        """True while the pulse counts steps."""
        # Rebound, so that a skipped step is one call of C: with a method that checks whether steps count, it takes
        # 212 ns instead of 180, 18 % more (Python 3.11, benchmarks/recording/step_calls.py).
        self.end_step: Callable[[int, int], bool] = _count_nothing
        """Ends a step with its samples and tokens in a loop that calls `step`. Returns False if it is not counted."""

    def start(self, *, calls_step: bool) -> bool:
        """Let the pulse count the next steps, if they only need counting; return whether the loop may continue.

        ``calls_step`` is whether the loop calls `step` at the end of each.
        """
        windows, state = self._run.windows, self._state
        num_steps, writer = windows.count_idle_steps(), self._pulse.writer
        if num_steps <= 0 or writer is None or type(state) is not State:
            return True
        live_timestamp = self._pulse.start_counting(num_steps, state.timestamp, with_fetches=calls_step)
        if live_timestamp is None:
            return True
        state.track_progress(live_timestamp)
        self.is_on = True
        if calls_step:
            self.end_step = writer.count_step
        # Another thread or a signal handler may have changed it meanwhile.
        return windows.on_demand.request is None and self._run.is_running

    def stop(self) -> tuple[int, bool] | None:
        """Stop counting, and advance the state by the counted steps.

        Returns:
            The start of the current batch in monotonic nanoseconds, and whether its data was fetched, for a loop that
                calls `step`; None for other loops.
        """
        called_step = self.end_step is not _count_nothing
        self.is_on, self.end_step = False, _count_nothing
        self._state.freeze()
        self._run.windows.update_longest_epoch(self._state.timestamp)
        return self._pulse.read_counted_batch() if called_step else None
