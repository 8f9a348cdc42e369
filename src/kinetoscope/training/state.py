"""training: the state of a run, as far as a profiler needs to know it."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from kinetoscope.training.timestamp import Moment, Timestamp


class RunState(Protocol):
    """What is read of a run's state: our `State`, Composer's, or anything with these attributes.

    ``profiler`` is the face of the profiler that records the run: see `kinetoscope.recording.profiler.AnyProfiler`.
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
    """That of a trainer, to which a profiler is bound."""

    @property
    def profiler(self) -> Any: ...
    @profiler.setter
    def profiler(self, profiler: object) -> None: ...
    @property
    def callbacks(self) -> list[Any]: ...


@dataclass(slots=True, kw_only=True)
class State:
    """What a run looks like from outside: its name, where it is, how long an epoch is.

    ``dataloader_len`` counts the batches of an epoch; None where nobody knows. Composer's own State is accepted
    wherever this one is: only these attributes are touched.
    """

    run_name: str = "run"
    timestamp: Timestamp = field(default_factory=Timestamp)
    dataloader_len: int | None = None
    profiler: Any = None
    callbacks: list[Any] = field(default_factory=list)
