"""The state of a run, as far as a profiler needs it."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from kinetoscope.core.job.timestamp import LiveTimestamp, Moment, Timestamp


class RunState(Protocol):
    """The attributes of a run's state that are read: of our `State`, Composer's, or any other object.

    ``profiler`` is the profiler that records the run: see `kinetoscope.recording.profiler.AnyProfiler`.
    """

    @property
    def run_name(self) -> str:
        """The name of the run."""
        ...

    @property
    def timestamp(self) -> Moment:
        """The progress of the run."""
        ...

    @property
    def dataloader_len(self) -> Any:
        """The number of batches of an epoch; None if unknown."""
        ...

    @property
    def profiler(self) -> Any:
        """The profiler that records the run."""
        ...


class TrainerState(RunState, Protocol):
    """The state of a trainer, to which a profiler is bound."""

    @property
    def profiler(self) -> Any:
        """The profiler that records the run."""
        ...

    @profiler.setter
    def profiler(self, profiler: object) -> None:
        """The profiler that records the run."""
        ...

    @property
    def callbacks(self) -> list[Any]:
        """The trainer's callbacks."""
        ...


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

    def track_progress(self, live_timestamp: LiveTimestamp) -> None:
        """Compute the timestamp from ``live_timestamp`` until another one is set."""
        _slot.__set__(self, live_timestamp)

    def freeze(self) -> None:
        """Keep the current timestamp: it does not advance by itself any more."""
        self.timestamp = self.timestamp


# The timestamp is made on access: a loop that records nothing never reads it.
_slot: Any = State.timestamp


def _timestamp(state: State) -> Any:
    value = _slot.__get__(state)
    return value.now() if type(value) is LiveTimestamp else value


def _set_timestamp(state: State, timestamp: Any) -> None:
    try:
        before = _slot.__get__(state)
    except AttributeError:  # a new state
        before = None
    if type(before) is LiveTimestamp:
        before.stop()
    _slot.__set__(state, timestamp)


State.timestamp = property(_timestamp, _set_timestamp)  # pyright: ignore[reportAttributeAccessIssue]
