"""Hangs that ranks have reported in their pulses, and the collectives in which ranks wait for others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.pulse.header import PulseHeader
from kinetoscope.pulse.layout import StallState
from kinetoscope.pulse.stalls import BlockedCollective, find_blocked_collectives, read_gil_stall_stack, read_stalls


@dataclass(frozen=True, kw_only=True)
class Hang:
    """A phase that takes too long. ``location`` is that of the training thread, "" if unknown.

    ``hangs`` is False if it was observed too rarely to be certain. With ``holds_gil`` the GIL is held, so that Python
    cannot run.
    """

    hangs: bool = True
    holds_gil: bool = False
    location: str = ""


def find_hang(run_folder: Path, header: PulseHeader) -> Hang | None:
    """Return the hang that a rank has reported; None if its phase takes no longer than usual, or is new."""
    found = header.stuck
    if found is None or found.stuck is StallState.SUSPECTED:
        return None
    if found.stuck is not StallState.GIL_HELD:
        return Hang(hangs=found.stuck is StallState.HUNG, location=found.location)
    frames = read_gil_stall_stack(run_folder, header.process.attempt.start, found.thread)
    return Hang(holds_gil=True, location=frames[0] if frames else "")


def find_blocking_collectives(run_folder: Path, headers: Iterable[PulseHeader]) -> Sequence[BlockedCollective]:
    """Return the collectives in which some of these hung ranks wait for others."""
    by_start = {header.process.attempt.start: header for header in headers}
    if not by_start:
        return []
    files = [file for file in read_stalls(run_folder) if file.attempt.start in by_start]
    last = [(file.ranks.rank, file.phases[-1]) for file in files if file.phases]
    return find_blocked_collectives((rank, phase) for rank, phase in last if phase.resumed_ns is None)
