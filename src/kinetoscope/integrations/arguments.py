"""Arguments of `kinetoscope.profile`, for a Profiler that is created later, and perhaps several times."""

import os
from collections.abc import Callable, Collection, Iterable
from inspect import signature
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from kinetoscope.api import profile
from kinetoscope.core.job.event import Callback
from kinetoscope.errors import SettingsError
from kinetoscope.recording.markers.schedule import Schedule
from kinetoscope.recording.profiler import Profiler

if TYPE_CHECKING:
    from kinetoscope.sources.system_profiler import SystemProfiler
    from kinetoscope.sources.torch_profiler import TorchProfiler
    from kinetoscope.torch.session import Activity


class ProfileOptions(TypedDict, total=False):
    """Arguments of `kinetoscope.profile` besides ``out``."""

    schedule: Schedule | None
    torch: "bool | TorchProfiler"
    system: "bool | SystemProfiler"
    handlers: Callback | Collection[Callback] | None
    sources: Callback | Collection[Callback]
    diagnose: bool
    modules: bool
    run_name: str | None
    first_step: int
    record_shapes: bool | None
    profile_memory: bool | None
    with_stack: bool | None
    with_flops: bool | None
    activities: "Iterable[Activity] | None"
    experimental_config: Any
    system_interval_s: float | None
    overwrite: bool
    num_traces_to_keep: int
    upload_to: str | None
    strict: bool
    grace_s: float
    quiet: bool
    report: bool
    redact: Callable[[str], str] | None
    hangs: bool
    slow_steps: bool
    log_to: Any


class ProfileArguments:
    """Factory of one Profiler per training run of a process: the first in ``out``, others in ``out/2`` and so on.

    Raises TypeError for an option that `kinetoscope.profile` does not have. Others that cannot work are found when a
    Profiler is created.
    """

    def __init__(self, out: str | os.PathLike[str] = "runs/{time}", **options: Unpack[ProfileOptions]) -> None:
        signature(profile).bind(out, **options)
        self._out, self._options = out, options
        self._num_made = 0

    def reject(self, option: str, reason: str) -> None:
        """Raise `SettingsError` if this option was given, which has no effect here."""
        if option in self._options:
            raise SettingsError(f"{option}={self._options[option]!r} has no effect: {reason}. Leave it out.")

    def make_profiler(self, **options: Unpack[ProfileOptions]) -> Profiler:
        """Return a new Profiler, on each rank for the same folder. ``options`` replace those that were given.

        Raises the errors of `kinetoscope.profile`.
        """
        profiler = profile(self._next_folder(), **(self._options | options))
        self._num_made += 1
        return profiler

    def _next_folder(self) -> Any:
        """Return ``out`` for the next Profiler, with a number if earlier ones may be overwritten."""
        out = self._out
        if not isinstance(out, str | os.PathLike) or not (self._options.get("overwrite") and self._num_made):
            return out
        return os.path.join(out, str(self._num_made + 1))  # else `profile` chooses the folder of each training run
