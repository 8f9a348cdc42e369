"""Groups of runs that can be compared: those of one command, or of folders that differ only in numbers."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import NamedTuple

from kinetoscope.core.paths.user_cache import CacheEntry

_SALT = "salt"
_NUM_SALT_BYTES = 16
_NUMBER = re.compile(r"\d+")


class RunGroup(NamedTuple):
    """The ``pattern`` of a folder's name, without numbers, and the salted hash of its ``command``, if that is known."""

    pattern: str
    command: str | None

    def has(self, other: "RunGroup") -> bool:
        """Return whether a run of the other group is of this one: by commands where both are known, else by names."""
        if self.command is None or other.command is None:
            return self.pattern == other.pattern
        return self.command == other.command


def number_groups(groups: Iterable[RunGroup]) -> list[int]:
    """Return the number of each run's group; a run is in the group of the last one before it that `RunGroup.has`."""
    numbers: list[int] = []
    by_command: dict[str, int] = {}
    by_pattern: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for pattern, command in groups:
        known = by_pattern.get(pattern) if command is None else by_command.get(command, unknown.get(pattern))
        number = len(numbers) if known is None else known
        by_pattern[pattern] = number
        if command is None:
            unknown[pattern] = number
        else:
            by_command[command] = number
        numbers.append(number)
    return numbers


def find_run_group(run_folder: str | os.PathLike[str]) -> RunGroup:
    """Return the group of a run, without its command if this user's cache lacks it."""
    command = None
    with suppress(OSError):
        command = CacheEntry.of_command(Path(run_folder)).read().decode(errors="replace")
    name = PurePath(os.path.realpath(run_folder)).name
    return RunGroup(_NUMBER.sub("#", name), command)


def store_command_hash(run_folder: Path, command: Sequence[str]) -> None:
    """Store a salted hash of a command and its working directory in the user's cache, not in the folder of the run.

    Nothing is stored without such a cache.
    """
    with suppress(OSError):
        text = "\0".join([os.getcwd(), *command])
        digest = hashlib.blake2b(os.fsencode(text), key=_salt(), digest_size=16)
        CacheEntry.of_command(run_folder).write(digest.hexdigest().encode())


def _salt() -> bytes:
    entry = CacheEntry(_SALT)
    try:
        return entry.read()[:_NUM_SALT_BYTES]
    except OSError:
        salt = secrets.token_bytes(_NUM_SALT_BYTES)
        entry.write(salt)
        return salt
