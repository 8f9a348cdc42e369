"""Stalled phases of a rank: the stacks of its threads, and the progress of its process groups.

They are in `pulse/{start}.stuck`, beside the pulse. The stacks that faulthandler writes of a process whose GIL is held
are beside it, in `pulse/{start}.stacks`.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, RunFolder
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.formats.struct_json import decode_struct, encode_struct
from kinetoscope.pulse.layout import FOLDER

STALL_SUFFIX, STACKS_SUFFIX = ".stuck", ".stacks"
_MAX_STACKS_BYTES = 1 << 22
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


class ThreadStack(msgspec.Struct, frozen=True):
    """The Python frames of a thread, the innermost first, as ``train.py(41): loss``."""

    name: str
    is_training: bool
    frames: list[str]


class GroupState(msgspec.Struct, frozen=True):
    """A process group of torch: the number of collectives that this rank has begun in it, and the last one.

    The last one is known if torch's flight recorder has it.
    """

    name: str
    ranks: list[int]
    sequence: int
    collective: str = ""
    timeout_s: float | None = None


class StalledPhase(msgspec.Struct, frozen=True):
    """A phase that lasted too long; ``hangs`` is False where it was sampled too seldom to tell.

    Times are unix nanoseconds; ``resumed_ns`` is when it was seen to be over, None if it was not.
    """

    phase: str
    hangs: bool
    step: int
    since_ns: int
    found_ns: int
    limit_ns: int
    location: str
    stacks: list[ThreadStack]
    groups: list[GroupState]
    resumed_ns: int | None = None


class StallFile(msgspec.Struct, frozen=True):
    """All stalled phases of a process, the oldest first."""

    ranks: Ranks
    attempt: Attempt
    phases: list[StalledPhase]

    def encoded(self) -> bytes:
        """Return the bytes of its file."""
        return encode_struct(self)


class BlockedCollective(msgspec.Struct, frozen=True):
    """A collective in which ``waiting`` ranks are, and which ``missing`` ones have not begun."""

    group: str
    sequence: int
    collective: str
    waiting: list[int]
    missing: list[int]


def read_stalls(run_folder: Path) -> list[StallFile]:
    """Return the stalled phases of all attempts of a run; unreadable ones are left out."""
    found: list[StallFile] = []
    if not HAS_RUN_FOLDERS:
        return found
    run = RunFolder(run_folder)
    with suppress(OSError):
        for name in run.names(FOLDER):
            if name.endswith(STALL_SUFFIX):
                with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    found.append(decode_struct(run.read(f"{FOLDER}/{name}", _MAX_STACKS_BYTES), StallFile))
    return found


def find_blocked_collectives(stuck: Iterable[tuple[int, StalledPhase]]) -> list[BlockedCollective]:
    """Return the collectives in which some ranks wait for others, by the stalls of hung ranks."""
    states: dict[str, dict[int, GroupState]] = {}
    for rank, phase in stuck:
        for group in phase.groups:
            states.setdefault(group.name, {})[rank] = group
    return [found for name, of_ranks in states.items() if (found := _find_in_group(name, of_ranks))]


def _find_in_group(name: str, of_ranks: dict[int, GroupState]) -> BlockedCollective | None:
    last = max(state.sequence for state in of_ranks.values())
    waiting = sorted(rank for rank, state in of_ranks.items() if state.sequence == last)
    missing = sorted(rank for rank, state in of_ranks.items() if state.sequence < last)
    if not missing:
        return None
    return BlockedCollective(name, last, of_ranks[waiting[0]].collective, waiting, missing)


def read_gil_stall_stack(run_folder: Path, start: str, thread: int) -> list[str]:
    """Return the frames of a thread in the last stacks of a process, the innermost first; [] if unknown."""
    try:
        text = (
            RunFolder(run_folder).read(f"{FOLDER}/{start}{STACKS_SUFFIX}", _MAX_STACKS_BYTES).decode(errors="replace")
        )
    except OSError:
        return []
    threads = list(_THREAD.finditer(text))
    ends = [*(found.start() for found in threads[1:]), len(text)]
    frames: Sequence[str] = []
    for found, end in zip(threads, ends, strict=False):
        if int(found[1], 16) == thread:
            frames = [
                f"{source_name(file)}({line}): {name}" for file, line, name in _FRAME.findall(text[found.end() : end])
            ]
    return list(frames)
