"""recording: schedules. A state of the run flows in, the action for its current batch flows out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kinetoscope.errors import ScheduleError
from kinetoscope.recording.action import ProfilerAction


@dataclass(frozen=True, kw_only=True, slots=True)
class CyclePlan:
    """The arithmetic of wait, warm up, record: which action falls on batch number ``index``.

    All fields count batches. ``repeat=0`` means cycles for ever. A non-zero ``skip_first_wait`` drops the wait
    of the first cycle. Both public schedules, `cyclic_schedule` and `kinetoscope.torch.schedule`, are faces
    of this plan.
    """

    wait: int
    warmup: int
    active: int
    repeat: int = 0
    skip_first: int = 0
    skip_first_wait: int = 0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if type(value) is not int:
                raise ScheduleError(f"{name} counts batches and must be an int, not {value!r}.")
            if value < 0:
                raise ScheduleError(f"{name} counts batches and cannot be negative, but is {value}.")
        if self.active < 1:
            raise ScheduleError("active must be at least 1: a cycle that records nothing has nothing to save.")

    def action(self, index: int) -> ProfilerAction:
        """The action for batch ``index`` (the first batch is 0)."""
        position = index - self.skip_first
        if position < 0:
            return ProfilerAction.SKIP
        if self.skip_first_wait:
            position += self.wait
        length = self.wait + self.warmup + self.active
        cycle, position = divmod(position, length)
        if self.repeat and cycle >= self.repeat:
            return ProfilerAction.SKIP
        if position < self.wait:
            return ProfilerAction.SKIP
        if position < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.ACTIVE if position < length - 1 else ProfilerAction.ACTIVE_AND_SAVE


class _Timestamp(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def batch_in_epoch(self) -> int: ...


class ScheduleState(Protocol):
    """What a schedule reads of a run: our `State`, Composer's, or anything with these attributes."""

    @property
    def timestamp(self) -> _Timestamp: ...
    @property
    def dataloader_len(self) -> int | None: ...


Schedule = Callable[[ScheduleState], ProfilerAction]


def cyclic_schedule(skip_first: int = 0, wait: int = 0, warmup: int = 1, active: int = 4, repeat: int = 1) -> Schedule:
    """A schedule that, in every epoch, skips ``skip_first`` batches and then repeats wait, warm up, record.

    All arguments count batches; ``repeat=0`` repeats until the epoch ends. In the epoch in which a run was
    resumed, ``skip_first`` counts from the batch it resumed at. The last active batch of a cycle, and the last
    batch of an epoch when it falls inside an active stretch, is ACTIVE_AND_SAVE.

    >>> schedule = cyclic_schedule(skip_first=1, warmup=1, active=2)
    >>> from kinetoscope import State, Timestamp
    >>> [str(schedule(State(timestamp=Timestamp(batch_in_epoch=n)))) for n in range(5)]
    ['skip', 'warmup', 'active', 'active_and_save', 'skip']

    Raises `ScheduleError` for a negative argument or ``active < 1``.
    """
    plan = CyclePlan(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)

    def schedule(state: ScheduleState) -> ProfilerAction:
        timestamp = state.timestamp
        batch, length = _plain(timestamp.batch_in_epoch), _plain(state.dataloader_len)
        if length is not None and batch >= length:
            return ProfilerAction.SKIP
        action = plan.action(batch - _resumption_batch(state))
        if action is ProfilerAction.ACTIVE and length is not None and batch == length - 1:
            return ProfilerAction.ACTIVE_AND_SAVE
        return action

    return schedule


def _resumption_batch(state: ScheduleState) -> int:
    """The batch at which the current epoch was resumed; 0 in an epoch that began at its beginning."""
    profiler = getattr(state, "profiler", None)
    batch = getattr(profiler, "resumption_batch_idx", 0)
    epoch = getattr(profiler, "resumption_epoch", None)
    is_other_epoch = isinstance(epoch, int) and _plain(state.timestamp.epoch) != epoch
    return 0 if is_other_epoch else batch


def _plain(count: Any) -> Any:
    """A count as an int: Composer's `Time` carries its number in ``.value``."""
    return getattr(count, "value", count)
