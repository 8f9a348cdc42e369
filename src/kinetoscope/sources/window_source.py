"""Base class of sources that are active only while a window is open."""

from typing import Any

from kinetoscope.core.background.fork_resets import reset_after_fork
from kinetoscope.core.job.event import Callback
from kinetoscope.core.job.state import RunState
from kinetoscope.recording.run.plugin_api import ProfiledState, RunContext


class WindowSource(Callback):
    """Install hooks when a window opens, and remove them when it closes or the process forks.

    Subclasses override `install`, `remove` and, if they record something at a window's end, `finish`.
    """

    def __init__(self) -> None:
        self._run: RunContext | None = None
        """Run of the open window; None while no hooks are installed."""
        reset_after_fork(self.reset_in_child)

    def install(self, run: RunContext) -> None:
        """Start to record into ``run``."""

    def finish(self, run: RunContext) -> None:
        """Record what is due at the window's end, while the hooks are still installed."""

    def remove(self) -> None:
        """Remove all hooks; also called when there are none, and in a forked child."""

    def window_opened(self, state: ProfiledState) -> None:
        """Install the hooks."""
        run = state.profiler.run
        self._run = run
        self.install(run)

    def window_closing(self, state: RunState) -> None:
        """Finish recording and remove the hooks, also after an error."""
        del state
        run, self._run = self._run, None
        try:
            if run is not None:
                self.finish(run)
        finally:
            self.remove()

    def close(self, state: RunState, logger: Any) -> None:
        """Remove the hooks of a source that was disabled after a failure."""
        self._run = None
        self.remove()

    def reset_in_child(self) -> None:
        """Remove the hooks in a forked child, since the run is the parent's."""
        if self._run is not None:
            self._run = None
            self.remove()
