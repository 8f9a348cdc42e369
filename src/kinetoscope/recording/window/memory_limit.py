"""Limit of the memory growth of the process during a window."""

import logging
import time

from kinetoscope.core.paths.available_memory import available_bytes
from kinetoscope.pulse.pulse_recorder import read_resident_bytes
from kinetoscope.recording.markers.schedule import ProfilerAction

MAX_GROWTH_SHARE = 0.25
"""Share of the available memory by which a process may grow in a window."""

MAX_GROWTH_SHARE_WITH_OPERATORS = 1 / 16
"""The same where Kineto records: at its stop it takes nine times as much as while it records (660,000 operators: 223 MB
before the stop, 2,038 MB after it, and 2,263 MB while they are saved)."""

_GB = 1e9
_POLL_INTERVAL_S = 0.1
_RECORDS = (ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE)
_log = logging.getLogger("kinetoscope")


class MemoryLimit:
    """End a window early where the process's memory has grown too much since it opened.

    Without a ``share``, the default, there is no limit. The window ends with the batch that has just ended: its action
    becomes ACTIVE_AND_SAVE, and that of the other batches of the window SKIP.
    """

    def __init__(self) -> None:
        self.share: float | None = None
        self._start_bytes: int | None = None
        self._available_bytes = self._polled_s = 0.0
        self._is_over = self._has_warned = False

    def next_action(self, planned: ProfilerAction) -> ProfilerAction:
        """Return the action of the next batch: the ``planned`` one, or SKIP after a window that was ended early."""
        if self.share is None:
            return planned
        if planned is ProfilerAction.SKIP:
            self._start_bytes, self._is_over = None, False
        elif self._is_over and planned in _RECORDS:
            self._is_over = planned is not ProfilerAction.ACTIVE_AND_SAVE
            return ProfilerAction.SKIP
        elif self._start_bytes is None:
            self._start_bytes, self._available_bytes = read_resident_bytes(), available_bytes() or 0
        return planned

    def ended_action(self, action: ProfilerAction) -> ProfilerAction:
        """Return the action of the batch that has ended: its window ends here if memory has grown too much."""
        if self.share is None or action is not ProfilerAction.ACTIVE or not self._has_grown(self.share):
            return action
        self._start_bytes, self._is_over = None, True
        return ProfilerAction.ACTIVE_AND_SAVE

    def _has_grown(self, share: float) -> bool:
        """Return whether the process has grown by more than ``share`` of the available memory in the window."""
        now_s = time.monotonic()
        if self._start_bytes is None or now_s - self._polled_s < _POLL_INTERVAL_S:
            return False
        self._polled_s = now_s
        grown = (read_resident_bytes() or 0) - self._start_bytes
        if not self._available_bytes or grown < share * self._available_bytes:
            return False
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "A window is closed early, and its first steps are saved: memory has grown by %.1f GB since it opened, "
                "when %.1f GB were available. To record more steps, record less of each, as with profile_memory=False.",
                grown / _GB,
                self._available_bytes / _GB,
            )
        return True
