"""recording: what a profiler does during one batch."""

from enum import StrEnum


class ProfilerAction(StrEnum):
    """What the profiler does during one batch; a schedule answers with one of these."""

    SKIP = "skip"
    """Record nothing."""
    WARMUP = "warmup"
    """Record, so that caches and tracers settle; the numbers of this batch are not representative."""
    ACTIVE = "active"
    """Record."""
    ACTIVE_AND_SAVE = "active_and_save"

    @classmethod
    def _missing_(cls, value: object) -> "ProfilerAction | None":
        """The action that somebody else's enum, such as Composer's own, has under the same name or value."""
        value = getattr(value, "value", value)
        return next((it for it in cls if isinstance(value, str) and value.lower() == it.value), None)

    """Record, then close the window and hand the cycle over when the batch ends."""
