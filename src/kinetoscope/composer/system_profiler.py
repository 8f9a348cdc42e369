"""composer: the SystemProfiler, under Composer's module path, as a Callback that a Trainer takes."""

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback, require_profiler
from kinetoscope.core.job.state import RunState
from kinetoscope.sources import system_profiler

__all__ = ["SystemProfiler"]


class SystemProfiler(GuardedCallback, system_profiler.SystemProfiler, TrainerCallback):
    """As `kinetoscope.SystemProfiler`. `Profiler` makes one when a ``sys_prof_`` option asks for it."""

    def init(self, state: RunState, logger: object) -> None:
        require_profiler(self, state)
