"""List ``{run}/slow_steps/rank{r}.jsonl`` of a rank's slow steps, each with a trace beside it."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.core.job.ranks import Number, Start
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, RunFolder, is_name_inside
from kinetoscope.errors import KinetoscopeError
from kinetoscope.formats.header import Count, Nanoseconds
from kinetoscope.formats.journal import append_line, journal_of_rank, journals_of_ranks, read_journal
from kinetoscope.formats.struct_json import encode_struct

FOLDER = "slow_steps"
_Phase = Annotated[int, msgspec.Meta(ge=0, le=6)]


class SlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that took much longer than those before it; times in nanoseconds, ``begin_ns`` in unix time.

    ``usual_ns`` is the median of the steps before, and ``phase`` the `Phase` with most of what is more than usual: it
    took ``phase_ns``, and usually ``phase_usual_ns``. Of ``num_samples`` of the training thread's stack, taken once the
    step was late, ``num_on_line`` were at ``line`` (``file:line``), which is None if there are too few. ``starved_ns``
    is how much longer than usual the training thread waited for a CPU, None where the system does not
    report it. ``every`` is the period in steps of regular ones, else None. ``path`` is its trace, in the same folder.
    """

    start: Start
    restart: Number
    rank: Number
    step: Count
    epoch: Count
    begin_ns: Nanoseconds
    duration_ns: Count
    usual_ns: Count
    phase: _Phase
    phase_ns: Count
    phase_usual_ns: Count
    line: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    num_samples: Count = 0
    num_on_line: Count = 0
    starved_ns: Nanoseconds | None = None
    every: Count | None = None
    path: Annotated[str, msgspec.Meta(max_length=4096)] = ""

    @property
    def excess_ns(self) -> int:
        """The time by which the step was longer than usual, in ns."""
        return self.duration_ns - self.usual_ns

    @property
    def is_machines(self) -> bool:
        """True if run-queue delay is half of the excess or more: other processes used the CPUs."""
        return self.starved_ns is not None and 2 * self.starved_ns >= self.excess_ns


def append_slow_step(run_folder: Path, slow: SlowStep) -> None:
    """Append a slow step to the list of its rank. Raises OSError if it cannot."""
    append_line(RunFolder(run_folder), journal_of_rank(FOLDER, slow.rank), encode_struct(slow))


def read_slow_steps(run_folder: Path) -> list[SlowStep]:
    """Return the slow steps in a run's folder, rank by rank, without damaged lines and lists that cannot be read."""
    if not HAS_RUN_FOLDERS:
        return []
    run = RunFolder(run_folder)
    found: list[SlowStep] = []
    with suppress(OSError, KinetoscopeError):
        for name in journals_of_ranks(run, FOLDER).values():
            with suppress(OSError, KinetoscopeError):
                found += read_journal(run, name, SlowStep)
    inside = (slow for slow in found if not slow.path or is_name_inside(slow.path))
    return sorted(inside, key=lambda slow: (slow.rank, slow.begin_ns))
