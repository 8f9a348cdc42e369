"""Formats of file names, such as ``ep{epoch}-ba{batch}-rank{rank}.json``, filled in per rank and moment."""

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePath
from typing import Any

from kinetoscope.core.job.ranks import Ranks
from kinetoscope.core.job.timestamp import COUNTS, DURATIONS, Moment, Timestamp, timestamp_fields, timestamp_from_fields
from kinetoscope.errors import FileNameError

RANK_VARIABLES = ("rank", "local_rank", "world_size", "local_world_size", "node_rank")
RUN_VARIABLES = ("run_name", *RANK_VARIABLES)
TIMESTAMP_VARIABLES = COUNTS + DURATIONS
_TOO_WIDE = re.compile("[0-9]{3}")
_MAX_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class FileNameFormat:
    """A format for file names, checked at construction.

    Attributes:
        text: the format, such as ``rank{rank}.json``.
        argument: the name of the setting in error messages.
        has_timestamp: whether the variables of a timestamp are allowed.

    Raises `FileNameError` for an unknown variable or an invalid format specification.
    """

    text: str
    argument: str = "filename"
    has_timestamp: bool = True

    def __post_init__(self) -> None:
        known = RUN_VARIABLES + (TIMESTAMP_VARIABLES if self.has_timestamp else ())
        for variable in sorted(self.variables() - set(known)):
            listing = ", ".join(f"{{{name}}}" for name in known)
            raise FileNameError(f"{self._shown} has an unknown variable {{{variable}}}. Known variables: {listing}.")
        if any("{" in specification or _TOO_WIDE.search(specification) for _, specification in self._fields):
            raise FileNameError(f"{self._shown} pads to 100 characters or more, which is too long for a file name.")
        try:
            self.fill("run", Ranks(), Timestamp())
        except ValueError as error:
            raise FileNameError(f"{self._shown} is not a format: {error}.") from None

    def variables(self) -> set[str]:
        """Return the names of the variables in the format."""
        return {name for name, _ in self._fields}

    @property
    def _fields(self) -> list[tuple[str, str]]:
        """The variables in the format, each with its format specification, such as ``03d``."""
        try:
            return [
                (name, specification or "")
                for _, name, specification, _ in string.Formatter().parse(self.text)
                if name is not None
            ]
        except ValueError as error:
            raise FileNameError(f"{self._shown} is not a format: {error}.") from None

    @property
    def _shown(self) -> str:
        return f"{self.argument}={self.text[:_MAX_SHOWN_CHARACTERS]!r}"

    def fill(self, run_name: str, ranks: Ranks, timestamp: Moment | None = None) -> str:
        """Return the name with its variables replaced by those of a run, a process and a moment.

        ``timestamp`` can be omitted if the name has no variable of time.
        """
        values: dict[str, Any] = {"run_name": run_name}
        values |= {name: getattr(ranks, name) for name in RANK_VARIABLES}
        if timestamp is not None:
            values |= timestamp_fields(timestamp)
        return self.text.format(**values)

    def fill_folder(self, run_name: str, ranks: Ranks) -> str:
        """Return the deepest folder that contains all files of this name of this run and rank."""
        moments = (Timestamp(), timestamp_from_fields(dict.fromkeys(TIMESTAMP_VARIABLES, 1)))
        first, second = (self.fill(run_name, ranks, moment).split("/")[:-1] for moment in moments)
        shared = takewhile(lambda parts: parts[0] == parts[1], zip(first, second, strict=False))
        return "/".join(part for part, _ in shared)

    def require_distinct_ranks(self, ranks: Ranks, folder: str = "") -> None:
        """Raise `FileNameError` if two ranks of this world would write the same file in ``folder``."""
        used = self.variables() | FileNameFormat(folder, "folder").variables()
        enough = [{"rank"}, {"node_rank", "local_rank"}]
        if ranks.num_nodes == 1:
            enough.append({"local_rank"})
        if ranks.local_world_size == 1:
            enough.append({"node_rank"})
        if ranks.world_size > 1 and not any(needed <= used for needed in enough):
            raise FileNameError(
                f"{self.argument}={self.text!r} names the same file on each of the {ranks.world_size} ranks, "
                "which would overwrite each other's traces. Put {rank} into it."
            )


class UniqueNames:
    """Allocator of file names; a name that is already used gets a number."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)

    def choose(self, wanted: str) -> str:
        """Return ``wanted`` if it is free, else the first free one of ``wanted.2``, ``wanted.3`` and so on.

        The number is before the suffix.
        """
        suffixes = PurePath(wanted).suffixes
        suffix = "".join(suffixes[-2:] if wanted.endswith(".gz") else suffixes[-1:])
        name, number = wanted, 1
        while name in self._used:
            number += 1
            name = f"{wanted.removesuffix(suffix)}.{number}{suffix}"
        self._used.add(name)
        return name

    def release(self, name: str) -> None:
        """Free a chosen name under which nothing was written."""
        self._used.discard(name)
