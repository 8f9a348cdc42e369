"""Row of one run in a list of runs, which an analysis of the run keeps in the user's cache."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.core.paths.user_cache import CacheEntry
from kinetoscope.errors import KinetoscopeError


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """The results of an analysis of a run; unknown values are None.

    ``content_hash`` identifies its files. ``finding`` is the title of the top finding that is not of low confidence, ""
    where there is none, and ``saving`` its estimated saving as text. ``peak_bytes`` is the most that was allocated on a
    device of a rank, or on a machine (``peak_is_of_cpu``) where no device was recorded. ``why_unknown`` is the reason
    why the results are unknown, or why no fault was searched for. ``overview`` is the JSON of
    `pages.run_list.RunOverview`.
    """

    content_hash: str
    num_steps: int | None = None
    step_ns: float | None = None
    finding: str | None = None
    saving: str = ""
    mfu: float | None = None
    peak_bytes: int | None = None
    peak_is_of_cpu: bool = False
    ranks: list[int] = []
    hosts: list[str] = []
    devices: list[str] = []
    why_unknown: str = ""
    overview: dict[str, Any] | None = None


def read_row(run_folder: Path, content_hash: str) -> RunRow | None:
    """Return the cached row of the run in ``run_folder``, if its files have not changed since."""
    try:
        row = msgspec.json.decode(CacheEntry.of_row(run_folder).read(), type=RunRow)
    except (OSError, ValueError, RecursionError, KinetoscopeError):
        return None
    return row if row.content_hash == content_hash else None


def write_row(run_folder: Path, row: RunRow) -> None:
    """Cache the row of the run in ``run_folder``; if that fails, it is computed again next time."""
    with suppress(OSError, ValueError, KinetoscopeError):  # ValueError: a name that is not Unicode
        CacheEntry.of_row(run_folder).write(msgspec.json.encode(row))
