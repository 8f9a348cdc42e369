"""composer: the SystemProfiler, under Composer's module path, as a Callback that a Trainer takes."""

from typing import Any

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback, require_profiler
from kinetoscope.sources import system_profiler

__all__ = ["SystemProfiler"]


class SystemProfiler(GuardedCallback, system_profiler.SystemProfiler, TrainerCallback):
    """As `kinetoscope.SystemProfiler`. `Profiler` makes one when a ``sys_prof_`` option asks for it."""

    def init(self, state: Any, logger: Any) -> None:
        require_profiler(self, state)
