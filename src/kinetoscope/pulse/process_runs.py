"""Sentences on further training runs of a process, and on further training processes of a command."""

import os
import re
from collections.abc import Iterable
from itertools import count, takewhile
from pathlib import Path

from kinetoscope.core.paths.later_run import CLAIM
from kinetoscope.core.text.wording import format_count, sanitize_sentence
from kinetoscope.pulse.layout import FOLDER
from kinetoscope.pulse.snapshot import RankSnapshot, read_run_snapshot

MAX_LISTED_RUNS = 10


def describe_other_runs(run_folder: Path) -> list[str]:
    """Return sentences on the other training runs of a run's process, and on the other processes of its command."""
    return [*describe_later_runs(run_folder), *_describe_processes(run_folder)]


def find_runs_of_command(run_folder: Path) -> list[Path]:
    """Return the folders of all processes of the command that recorded this run, in order; none if it is unknown."""
    run_folder = run_folder.absolute()
    if not (command := _read_command(run_folder)):
        return []
    numbered = re.fullmatch(r"(.+)-(\d{1,4})", run_folder.name)
    first, number = run_folder, 1
    if numbered is not None and (run_folder.with_name(numbered[1]) / CLAIM).is_file():
        first, number = run_folder.with_name(numbered[1]), int(numbered[2])

    def matching(numbers: Iterable[int]) -> list[Path]:
        folders = (first if one == 1 else first.with_name(f"{first.name}-{one}") for one in numbers)
        return [*takewhile(lambda folder: _read_command(folder) == command, folders)]

    return [*reversed(matching(range(number, 0, -1))), *matching(count(number + 1))]


def _read_command(run_folder: Path) -> str:
    run = _first_rank(run_folder) if (run_folder / CLAIM).is_file() else None
    facts = None if run is None else run.header.process.training
    return "" if facts is None else facts.command


def _describe_processes(run_folder: Path) -> list[str]:
    folders = find_runs_of_command(run_folder)
    if len(folders) < 2:
        return []
    joined = "and" if len(folders) == 2 else "to"
    names = f"{sanitize_sentence(folders[0].name)} {joined} {sanitize_sentence(folders[-1].name)}"
    return [f"{len(folders)} processes of this command trained, each in a folder of its own: {names}."]


def describe_later_runs(run_folder: Path) -> list[str]:
    """Return sentences on the training runs in the folders ``2``, ``3`` and so on of a run's folder.

    They are of the same process, with their differences, or of other processes. Each has a pulse.
    """
    last = next(number for number in count(1) if not os.path.isdir(run_folder / str(number + 1) / FOLDER))
    if last == 1 or not os.path.isdir(run_folder / FOLDER):
        return []
    folders = [run_folder, *(run_folder / str(number) for number in range(2, last + 1))]
    runs = dict(enumerate(map(_first_rank, folders), 1))
    pids = {(run.header.process.attempt.host, run.header.process.attempt.pid) for run in runs.values() if run}
    if len(pids) > 1:
        return [f"{len(pids)} processes were recorded here, and this is the first. The last is in folder {last}."]
    listed = [f"{number}: {_describe(run)}" for number, run in runs.items() if number <= MAX_LISTED_RUNS]
    more = [f"{MAX_LISTED_RUNS + 1} to {last}: see there"] if last > MAX_LISTED_RUNS else []
    return [
        f"This process trained {last} times, and this is the first training run. The last is in folder {last}. "
        f"{'; '.join(listed + more)}."
    ]


def describe_training_run(run_folder: Path) -> tuple[int, str] | None:
    """Return the number of a training run within its process, and its differences; None if unknown."""
    run = _first_rank(run_folder)
    facts = None if run is None else run.header.process.training
    return None if run is None or facts is None else (facts.number, _describe(run))


def _first_rank(run_folder: Path) -> RankSnapshot | None:
    return next(iter(read_run_snapshot(run_folder).last), None)


def _describe(run: RankSnapshot | None) -> str:
    """Return the differences of a training run to the others of its process, and its length."""
    if run is None:
        return "unreadable"
    facts, parts = run.header.process.training, list[str]()
    if facts is not None and facts.optimizer:
        rate = "" if facts.learning_rate is None else f" with lr {facts.learning_rate:g}"
        parts.append(f"{sanitize_sentence(facts.optimizer)}{rate}")
    if facts is not None and facts.num_parameters is not None:
        parts.append(f"{facts.num_parameters:,} parameters")
    parts.append(format_count(run.header.num_steps, "step"))
    return ", ".join(parts) + ("" if run.step_ns is None else f" of {run.step_ns / 1e6:.3g} ms")
