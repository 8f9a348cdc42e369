"""sources: a source that works only while a window is open, and leaves nothing of it in a forked child."""

from typing import Any

from kinetoscope.core.background.fork_resets import reset_after_fork
from kinetoscope.core.job.event import Callback
from kinetoscope.core.job.state import RunState
from kinetoscope.recording.run.plugin_api import ProfiledState, RunContext


class WindowSource(Callback):
    """Installs its hooks when a window opens, and removes them when it closes. What it records, it notes in the run.

    Subclasses override `install`, `remove`, and `finish` if they have something to write at a window's end.
    """

    def __init__(self) -> None:
        self._run: RunContext | None = None
        """The run, while the hooks are installed."""
        reset_after_fork(self.reset_in_child)

    def install(self, run: RunContext) -> None:
        """Begins to record into ``run``."""

    def finish(self, run: RunContext) -> None:
        """Writes what is left to write, while the hooks are still installed."""

    def remove(self) -> None:
        """Removes all hooks that are installed. It may be called when there are none, and in a forked child."""

    def window_opened(self, state: ProfiledState) -> None:
        run = state.profiler.run
        self._run = run
        self.install(run)

    def window_closing(self, state: RunState) -> None:
        del state
        run, self._run = self._run, None
        try:
            if run is not None:
                self.finish(run)
        finally:
            self.remove()

    def close(self, state: RunState, logger: Any) -> None:
        """Removes the hooks of a source that was switched off because it failed."""
        self._run = None
        self.remove()

    def reset_in_child(self) -> None:
        """In a forked child, remove the hooks: the run is the parent's."""
        if self._run is not None:
            self._run = None
            self.remove()
