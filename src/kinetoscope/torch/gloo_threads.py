"""Threads of gloo: which process group each of them serves.

A span of gloo does not carry its group, but each group runs its collectives on threads of its own, which it starts when
it is created.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kinetoscope.torch.private_names as private_names

_NAME = "pt_gloo_runloop"
"""The name that torch gives these threads."""

_START_TIME = 19
"""The index of the start time among the fields of ``/proc/PID/stat`` after the name."""


def add_gloo_threads(groups: Iterable[dict[str, Any]], distributed: Any) -> list[dict[str, Any]]:
    """Return the entries of ``pg_config``; those of groups with gloo get ``threads``, the numbers of its threads.

    Threads are matched to groups by the order in which they were started. None is where their number is another one
    than that of all groups together: a group may just have been destroyed, or have threads without a name.
    """
    numbers = private_names.gloo_thread_counts(distributed)
    threads = _gloo_threads() if len(numbers) > 1 else []
    if sum(number for _, number in numbers) != len(threads):
        return [*groups]
    of_group: dict[str, list[int]] = {}
    for name, number in numbers:
        of_group[name], threads = threads[:number], threads[number:]
    return [
        group | {"threads": of_group[name]} if (name := group.get("pg_name")) in of_group else group for group in groups
    ]


def _gloo_threads() -> list[int]:
    """Return the threads of gloo in this process, in the order in which they were started."""
    try:
        found = [int(entry.name) for entry in os.scandir("/proc/self/task") if _read(entry.path, "comm") == _NAME]
        started = {thread: int(_fields(thread)[_START_TIME]) for thread in found}
    except (OSError, ValueError, IndexError):
        return []
    return sorted(found, key=lambda thread: (started[thread], thread))


def _fields(thread: int) -> list[str]:
    return _read(f"/proc/self/task/{thread}", "stat").rpartition(")")[2].split()


def _read(folder: str, name: str) -> str:
    return Path(folder, name).read_text(encoding="utf-8", errors="replace").strip()
