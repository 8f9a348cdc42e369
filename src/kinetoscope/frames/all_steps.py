"""All steps of a run as a table, from the pulses that its ranks have left."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from kinetoscope.core.paths.attempt_folders import resolve_run_folder
from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.formats.field_owners import field_of_name
from kinetoscope.formats.slow_steps import SlowStep, read_slow_steps
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.pulses import Pulse, find_pulses
from kinetoscope.pulse.stalls import GroupState, StalledPhase, read_stalls

PHASES = [f"{phase.name.lower()}_ns" for phase in Phase]
"""The columns of phases."""

_COLUMNS: dict[str, Any] = {
    "rank": pl.Int64,
    "step": pl.Int64,
    "num_steps": pl.Int64,
    "epoch": pl.Int64,
    "begin_ns": pl.Int64,
    "duration_ns": pl.Int64,
    **dict.fromkeys(PHASES, pl.Int64),
    "min_duration_ns": pl.Int64,
    "max_duration_ns": pl.Int64,
    "slowest_step": pl.Int64,
    "squares": pl.Float64,
}


def find_run_pulses(source: str | os.PathLike[str], attempt: int | None = None) -> list[Pulse]:
    """Return the pulse of each rank of a run, of its last attempt or of ``attempt``.

    The list is empty without pulses, or if ``source`` is no folder of a run.
    """
    return find_attempt_pulses(source, attempt)[0]


def find_attempt_pulses(source: str | os.PathLike[str], attempt: int | None = None) -> tuple[list[Pulse], list[Pulse]]:
    """Return the pulse of each rank of a run as `find_run_pulses`, and the first rank's of each earlier attempt."""
    if not os.path.isdir(source):
        return [], []
    found = find_pulses(resolve_run_folder(Path(source)))
    last = max(found, default=0) if attempt is None else attempt
    return found.get(last, []), [pulses[0] for number, pulses in found.items() if number < last]


def read_run_slow_steps(source: str | os.PathLike[str], pulses: Collection[Pulse]) -> list[SlowStep]:
    """Return the outlier steps that the processes of a run saved in its folder.

    Args:
        source: the folder of the run, or its ``traces`` folder.
        pulses: the per-step logs of the processes; steps of other restart attempts are left out.
    """
    starts = {pulse.header.process.attempt.start for pulse in pulses}
    return (
        [slow for slow in read_slow_steps(resolve_run_folder(Path(source))) if slow.start in starts] if starts else []
    )


def read_run_stuck_phases(source: str | os.PathLike[str], pulses: Collection[Pulse]) -> dict[int, list[StalledPhase]]:
    """Return the phases that the watchdogs of the processes with these ``pulses`` have found stuck, by rank."""
    found = read_stalls(resolve_run_folder(Path(source))) if pulses else []
    began_ns = {pulse.header.process.attempt.start: pulse.header.phase_since_ns for pulse in pulses}
    return {
        file.ranks.rank: _add_end(file.phases, began_ns[file.attempt.start])
        for file in found
        if file.attempt.start in began_ns
    }


def _add_end(phases: list[StalledPhase], last_began_ns: int) -> list[StalledPhase]:
    """Return the phases; the last one has ended if the pulse has a later phase.

    After a kill, no other file contains that.
    """
    if not phases or phases[-1].resumed_ns is not None or last_began_ns <= phases[-1].found_ns:
        return phases
    return [*phases[:-1], msgspec.structs.replace(phases[-1], resumed_ns=last_began_ns)]


def anonymize_stuck_phases(
    found: dict[int, list[StalledPhase]], anonymizer: Anonymizer
) -> dict[int, list[StalledPhase]]:
    """Return the phases that lasted too long without names of users."""
    return {rank: [_anonymize_phase(phase, anonymizer) for phase in phases] for rank, phases in found.items()}


def _anonymize_phase(phase: StalledPhase, anonymizer: Anonymizer) -> StalledPhase:
    """Return a phase whose stacks are left out: a finding names its location only."""
    groups = [
        msgspec.structs.replace(
            group,
            name=anonymizer.text("Process Group Name", group.name),
            collective=_anonymize_collective(group, anonymizer),
        )
        for group in phase.groups
    ]
    return msgspec.structs.replace(phase, location=anonymizer.line(phase.location), stacks=[], groups=groups)


def _anonymize_collective(group: GroupState, anonymizer: Anonymizer) -> str:
    is_known = field_of_name("X", ["cpu_op"]).is_known(group.collective)
    return group.collective if is_known else anonymizer.text("Collective name", group.collective)


def anonymize_slow_steps(slow: list[SlowStep], anonymizer: Anonymizer) -> list[SlowStep]:
    """Return slow steps without names of users."""
    return [
        msgspec.structs.replace(
            step, line=None if step.line is None else anonymizer.line(step.line), path=anonymizer.line(step.path)
        )
        for step in slow
    ]


def find_trace_pulses(name: str, starts: Collection[str]) -> list[Pulse]:
    """Return the pulses of the processes that recorded a trace, if its file is in the folder of their run."""
    folder = os.path.dirname(os.path.abspath(name))
    if not starts or not os.path.isdir(folder):
        return []
    found = find_pulses(resolve_run_folder(folder)).values()
    return [pulse for pulses in found for pulse in pulses if pulse.header.process.attempt.start in starts]


def build_steps_frame(pulses: Sequence[Pulse]) -> pl.DataFrame:
    """Build the frame of all steps: a row for each step of each rank, or for a block of older ones."""
    rows = [
        (
            pulse.header.process.ranks.rank,
            *row[:5],
            *row.by_phase,
            row.min_duration_ns,
            row.max_duration_ns,
            row.slowest_step,
            row.squares,
        )
        for pulse in pulses
        for row in pulse.rows
    ]
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")
