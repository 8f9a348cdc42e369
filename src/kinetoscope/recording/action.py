"""recording: what a profiler does during one batch."""

from enum import Enum, StrEnum


class ProfilerAction(StrEnum):
    """What the profiler does during one batch; a schedule answers with one of these.

    An action equals its name and its value as text, in any case, and the action of the same name of somebody else's
    enum, such as Composer's own. It prints as a member: ``ProfilerAction.SKIP``.
    """

    SKIP = "skip"
    """Record nothing."""
    WARMUP = "warmup"
    """Record, so that caches and tracers settle; the numbers of this batch are not representative."""
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
        text = getattr(other, "value", other)
        return isinstance(text, str) and text.lower() == self.value

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)

    __hash__ = StrEnum.__hash__
    __str__ = Enum.__str__
