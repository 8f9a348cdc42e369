"""Schedules, and ProfilerAction, which they choose for each batch."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Protocol

from kinetoscope.core.job.timestamp import plain_value
from kinetoscope.errors import ScheduleError, SettingsError


class ProfilerAction(StrEnum):
    """Action of the profiler during one batch; a schedule returns one of these.

    An action equals its name or value as a string, in upper or lower case, and the action with the same name in another
    enum, such as Composer's. It prints as a member: ``ProfilerAction.SKIP``.
    """

    SKIP = "skip"
    """Record nothing."""
    WARMUP = "warmup"
    """Record, so that caches and tracers settle; the times of this batch are not representative."""
    ACTIVE = "active"
    """Record."""
    ACTIVE_AND_SAVE = "active_and_save"
    """Record, then close the window and hand the cycle over when the batch ends."""

    @classmethod
    def _missing_(cls, value: object) -> "ProfilerAction | None":
        return next((action for action in cls if action == value), None)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        text = plain_value(other)
        return isinstance(text, str) and text.lower() == self.value

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)

    __hash__ = StrEnum.__hash__
    __str__ = Enum.__str__


_FOREVER = 1 << 60


@dataclass(frozen=True, kw_only=True, slots=True)
class CyclePlan:
    """Arithmetic of cycles of wait, warm-up and recording: the action of batch number ``index``.

    All fields count batches. ``repeat=0`` repeats cycles forever. A non-zero ``skip_first_wait`` drops the wait of the
    first cycle. Both public schedules, `cyclic_schedule` and `kinetoscope.torch.schedule`, use this.
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

    @property
    def first_recorded(self) -> int:
        """The index of the first batch that is not skipped."""
        return self.skip_first + (0 if self.skip_first_wait else self.wait)

    def action(self, index: int) -> ProfilerAction:
        """Return the action for batch ``index`` (the first batch is 0)."""
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

    def is_exhausted(self, index: int) -> bool:
        """Return whether no batch from batch ``index`` on is recorded, because all cycles have ended."""
        return index > self.first_recorded and self.num_skipped(index) == _FOREVER

    def num_skipped(self, index: int) -> int:
        """Return the number of consecutive batches, from batch ``index`` on, that are skipped."""
        if index < self.first_recorded:
            return self.first_recorded - index
        position = index - self.skip_first + (self.wait if self.skip_first_wait else 0)
        cycle, position = divmod(position, self.wait + self.warmup + self.active)
        if self.repeat and cycle >= self.repeat:
            return _FOREVER
        return max(0, self.wait - position)


class _Timestamp(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def batch_in_epoch(self) -> int: ...


class ScheduleState(Protocol):
    """Attributes of a run that a schedule reads: our `State`, Composer's, or any object with these attributes."""

    @property
    def timestamp(self) -> _Timestamp:
        """The position of training."""
        ...

    @property
    def dataloader_len(self) -> int | None:
        """The number of batches of an epoch; None if unknown."""
        ...


Schedule = Callable[[ScheduleState], ProfilerAction]


@dataclass(frozen=True, slots=True)
class CyclicSchedule:
    """Schedule that applies a `CyclePlan` to the batches of each epoch, or of the run: the result of `cyclic_schedule`.

    ``advice`` is shown to the user of a run that ended before its first recorded batch.
    """

    plan: CyclePlan
    per: str
    advice: str = "Pass a schedule with a smaller skip_first or wait."

    def __call__(self, state: ScheduleState) -> ProfilerAction:
        """Return the action for the current batch of ``state``."""
        if self.per == "run":
            return self.plan.action(plain_value(state.timestamp.batch) - _get_first_batch(state))
        batch, length = plain_value(state.timestamp.batch_in_epoch), plain_value(state.dataloader_len)
        if length is not None and batch >= length:
            return ProfilerAction.SKIP
        action = self.plan.action(batch - _get_resumption_batch(state))
        if action is ProfilerAction.ACTIVE and length is not None and batch == length - 1:
            return ProfilerAction.ACTIVE_AND_SAVE
        return action

    def num_skipped(self, state: ScheduleState) -> int:
        """Return the number of consecutive batches of this epoch, from the current one on, that are skipped."""
        if self.per == "run":
            return self.plan.num_skipped(plain_value(state.timestamp.batch) - _get_first_batch(state))
        return self.plan.num_skipped(plain_value(state.timestamp.batch_in_epoch) - _get_resumption_batch(state))


@dataclass(frozen=True, slots=True)
class PulseOnly:
    """Schedule that records no window, with the reason."""

    reason: str

    def __call__(self, state: ScheduleState) -> ProfilerAction:
        """Return SKIP."""
        return ProfilerAction.SKIP


def cyclic_schedule(
    skip_first: int = 0, wait: int = 0, warmup: int = 1, active: int = 4, repeat: int = 1, *, per: str = "epoch"
) -> CyclicSchedule:
    """Return a schedule that skips ``skip_first`` batches, and then repeats wait, warm-up and recording.

    All arguments count batches. The last active batch of a cycle is ACTIVE_AND_SAVE. If the run was resumed,
    ``skip_first`` counts from the batch at which it was resumed.

    >>> schedule = cyclic_schedule(skip_first=1, warmup=1, active=2)
    >>> from kinetoscope import State, Timestamp
    >>> [schedule(State(timestamp=Timestamp(batch_in_epoch=n))).value for n in range(5)]
    ['skip', 'warmup', 'active', 'active_and_save', 'skip']

    Args:
        skip_first: the batches to skip first.
        wait: the batches to skip in each cycle.
        warmup: the batches to record as warm-up in each cycle.
        active: the batches to record in each cycle.
        repeat: the number of cycles; 0 repeats without end.
        per: ``"epoch"`` starts the schedule again in each epoch; the last batch of an epoch is ACTIVE_AND_SAVE if it
            would be ACTIVE. ``"run"`` counts batches across epochs, and the end of an epoch changes nothing.

    Raises:
        ScheduleError: for a negative argument, ``active < 1``, or another ``per``.
    """
    if per not in ("epoch", "run"):
        raise ScheduleError(f'per is "epoch" or "run", the unit in which batches are counted; not {per!r}.')
    return CyclicSchedule(CyclePlan(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat), per)


def check_schedule(schedule: object) -> None:
    """Raise `SettingsError` unless ``schedule`` is a function."""
    if schedule is cyclic_schedule:
        raise SettingsError("schedule must be the result of cyclic_schedule: call it, as in cyclic_schedule(active=4).")
    if not callable(schedule) or isinstance(schedule, type):
        raise SettingsError(f"schedule must be a function from State to ProfilerAction, not {schedule!r}.")


def _get_first_batch(state: ScheduleState) -> int:
    """Return the batch at which this process started or resumed the run."""
    return getattr(_get_run(state), "first_batch", 0)


def _get_resumption_batch(state: ScheduleState) -> int:
    """Return the batch at which the current epoch was resumed, or 0."""
    batch = getattr(getattr(state, "profiler", None), "resumption_batch_idx", 0)
    epoch = getattr(_get_run(state), "resumption_epoch", None)
    is_other_epoch = isinstance(epoch, int) and plain_value(state.timestamp.epoch) != epoch
    return 0 if is_other_epoch else batch


def _get_run(state: ScheduleState) -> Any:
    """Return the run of our Profiler; None if there is no Profiler, or another one."""
    return getattr(getattr(state, "profiler", None), "run", None)
