"""recording: what a run came to. Its counts flow in; a sentence flows out: what there is and where, or why nothing."""

import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.recording.contract import run_folder_of
from kinetoscope.recording.schedule import CyclicSchedule
from kinetoscope.training.wording import counted

_log = logging.getLogger("kinetoscope")


@dataclass(slots=True)
class RunCounts:
    """How far a run got. ``num_saved`` windows are in the handlers' hands, ``num_unsaved`` are not."""

    num_batches: int = 0
    longest_epoch: int = 0
    num_windows: int = 0
    num_saved: int = 0
    num_unsaved: int = 0


def why_nothing(schedule: object, counts: RunCounts) -> str:
    """Why a run recorded nothing, and what to change."""
    return f"Nothing was recorded: {_reason(schedule, counts)}"


def _reason(schedule: object, counts: RunCounts) -> str:
    if counts.num_unsaved:
        return "what was, could not be saved. The errors above say why."
    if counts.num_windows:
        return "no marker, source or loop had anything to record while recording was on."
    if counts.num_batches == 0:
        return (
            "no step() was called, and no loop over batches() ended a batch. Write `for batch in "
            "profiler.batches(loader):`, or call profiler.step() at the end of each batch."
        )
    if not isinstance(schedule, CyclicSchedule):
        return f"the schedule answered skip for {_all(counts.num_batches)}."
    first = schedule.plan.first_recorded + 1
    if schedule.per == "run":
        return (
            f"the first batch to record is {first}; the run had {counts.num_batches}. Make skip_first or wait smaller."
        )
    return (
        f"the first batch to record is {first}; the longest epoch had {counts.longest_epoch}. To count batches across "
        'epochs pass per="run" to cyclic_schedule, or make skip_first or wait smaller.'
    )


def what_there_is(counts: RunCounts, handlers: Iterable[object]) -> str:
    """What a run has saved, where its ``handlers`` say (``saved_to``), and which command comes next."""
    places = [place for handler in handlers if isinstance(place := getattr(handler, "saved_to", None), Path)]
    run_folder = run_folder_of(handlers)
    where = f", saved to {' and '.join(map(_short, places))}" if places else ""
    lines = [
        f"Kinetoscope: {counted(counts.num_saved, 'window')} recorded in {counted(counts.num_batches, 'batch')}{where}."
    ]
    if places:
        lines.append(f"Open it in https://ui.perfetto.dev, or run: kinetoscope info {_short(run_folder or places[0])}")
    if counts.num_unsaved and run_folder is not None:
        lines.append(f"{counts.num_unsaved} more could not be saved: kinetoscope recover {_short(run_folder)}")
    return " ".join(lines)


def _all(num_batches: int) -> str:
    return "the only batch" if num_batches == 1 else f"each of the {num_batches:,} batches"


def tell_outcome(counts: RunCounts, schedule: object, handlers: Iterable[object], *, is_quiet: bool) -> None:
    """Says what a run has saved and where, unless it ``is_quiet``; or in any case why there is nothing."""
    if not counts.num_saved:
        _log.warning(why_nothing(schedule, counts))
    elif not is_quiet:
        say_outcome(what_there_is(counts, handlers))


def say_outcome(line: str) -> None:
    """Prints a line where a person sees it; else it goes into the log."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(line, file=sys.stderr)
    else:
        _log.info(line)


def _short(path: Path) -> str:
    """A path as a person here would type it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
