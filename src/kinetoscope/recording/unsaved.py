"""recording: cycles on their way to the trace handlers. Those that somebody could not save are kept here, to be tried
again, within bounds."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kinetoscope.formats.record import RECORD_BYTES
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.live_folder import recipe_of
from kinetoscope.training.wording import counted

_log = logging.getLogger("kinetoscope")


@dataclass(slots=True, eq=False)
class Save:
    """A cycle, the handlers that have yet to take it, and those that never will: they were switched off."""

    cycle: Cycle
    waiting: list[Any]
    missed: list[Any] = field(default_factory=list)
    num_took: int = 0
    num_records: int = 0

    @property
    def is_to_try(self) -> bool:
        """Whether trying (again) may help."""
        contributions = self.cycle.contributions
        return bool(self.waiting or contributions.again or contributions.untold)

    @property
    def is_for_recover(self) -> bool:
        """Whether the live folder holds what no trace has: what a handler missed whose traces `recover` can make, or
        all of them missed."""
        is_missing = bool(self.missed) and (self.num_took == 0 or any(map(recipe_of, self.missed)))
        return is_missing and self.cycle.recorded.in_files


class UnsavedCycles:
    """The cycles that are not saved, at most ``limit_bytes`` of records: beyond that the oldest goes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._saves: list[Save] = []
        self.num_lost = self.num_lost_records = 0
        """How many were given up, and how many records they had."""

    def __len__(self) -> int:
        return len(self._saves)

    def to_try(self) -> list[Save]:
        """Those that may be saved yet, the one tried longest ago first."""
        return [save for save in self._saves if save.is_to_try]

    def keep(self, save: Save) -> None:
        """Keeps a cycle, behind the others: their turn comes first."""
        self.drop(save)
        self._saves.append(save)

    def drop(self, save: Save) -> None:
        """Keeps a cycle no longer: it is saved, or given up."""
        if save in self._saves:
            self._saves.remove(save)

    def give_up_oldest(self, is_short: Callable[[], bool]) -> Save | None:
        """The oldest one if they take too much space, or there ``is_short`` of it; then it is kept no longer."""
        num_bytes = RECORD_BYTES * sum(save.num_records for save in self._saves)
        if not self._saves or not (num_bytes > self._limit_bytes or is_short()):
            return None
        oldest = min(self._saves, key=lambda save: save.cycle.number)
        self.drop(oldest)
        self.num_lost += 1
        self.num_lost_records += oldest.num_records
        _log.error(
            "Cycle %d with its %s is lost: it could not be saved, and there is no more space for it within "
            "live_bytes_max. Lost so far: %s with %s.",
            oldest.cycle.number,
            counted(oldest.num_records, "record"),
            counted(self.num_lost, "cycle"),
            counted(self.num_lost_records, "record"),
        )
        return oldest
