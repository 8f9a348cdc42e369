"""Threads of gloo, with the process group that each of them serves.

A span of gloo does not carry its group, but each group runs its collectives on threads of its own, which it starts when
it is created.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kinetoscope.torch.private_names as private_names
from kinetoscope.core.clock.proc import StatField, read_stat

_NAME = "pt_gloo_runloop"
"""Name that torch gives these threads."""


def add_gloo_threads(groups: Iterable[dict[str, Any]], distributed: Any) -> list[dict[str, Any]]:
    """Return the entries of ``pg_config``; those of groups with gloo get ``threads``, the numbers of its threads.

    Threads are matched to groups by the order in which they were started. None is where their number is another one
    than that of all groups together: a group may just have been destroyed, or have threads without a name.
    """
    counts = private_names.gloo_thread_counts(distributed)
    threads = _list_gloo_threads() if len(counts) > 1 else []
    if sum(count for _, count in counts) != len(threads):
        return [*groups]
    threads_by_group: dict[str, list[int]] = {}
    for name, count in counts:
        threads_by_group[name], threads = threads[:count], threads[count:]
    return [
        group | {"threads": threads_by_group[name]} if (name := group.get("pg_name")) in threads_by_group else group
        for group in groups
    ]


def _list_gloo_threads() -> list[int]:
    """Return the threads of gloo in this process, in the order in which they were started."""
    try:
        found = [int(entry.name) for entry in os.scandir("/proc/self/task") if _read_file(entry.path, "comm") == _NAME]
        started = {thread: int(read_stat(f"self/task/{thread}")[StatField.START]) for thread in found}
    except (OSError, ValueError, IndexError):
        return []
    return sorted(found, key=lambda thread: (started[thread], thread))


def _read_file(folder: str, name: str) -> str:
    return Path(folder, name).read_text(encoding="utf-8", errors="replace").strip()
