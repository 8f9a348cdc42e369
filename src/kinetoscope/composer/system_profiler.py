"""SystemProfiler under Composer's module path, as a Callback for a Trainer."""

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback, require_profiler
from kinetoscope.core.job.state import RunState
from kinetoscope.sources import system_profiler

__all__ = ["SystemProfiler"]


class SystemProfiler(GuardedCallback, system_profiler.SystemProfiler, TrainerCallback):
    """Variant of `kinetoscope.SystemProfiler` for a Trainer. `Profiler` creates one if a ``sys_prof_`` option is on."""

    def init(self, state: RunState, logger: object) -> None:
        """Require a Profiler of ours. Called by the engine."""
        require_profiler(self, state)
