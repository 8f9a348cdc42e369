"""The state of a run, as far as a profiler needs it."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from kinetoscope.training.timestamp import Moment, Timestamp


class RunState(Protocol):
    """The attributes of a run's state that are read: of our `State`, Composer's, or any other object.

    ``profiler`` is the profiler that records the run: see `kinetoscope.recording.profiler.AnyProfiler`.
    """

    @property
    def run_name(self) -> str: ...
    @property
    def timestamp(self) -> Moment: ...
    @property
    def dataloader_len(self) -> Any: ...
    @property
    def profiler(self) -> Any: ...


class TrainerState(RunState, Protocol):
    """The state of a trainer, to which a profiler is bound."""

    @property
    def profiler(self) -> Any: ...
    @profiler.setter
    def profiler(self, profiler: object) -> None: ...
    @property
    def callbacks(self) -> list[Any]: ...


@dataclass(slots=True, kw_only=True)
class State:
    """The state of a run: its name, its progress, and the length of an epoch.

    ``dataloader_len`` is the number of batches of an epoch, None if unknown. Composer's State is accepted wherever this
    one is, since only these attributes are used.
    """

    run_name: str = "run"
    timestamp: Timestamp = field(default_factory=Timestamp)
    dataloader_len: int | None = None
    profiler: Any = None
    callbacks: list[Any] = field(default_factory=list)
