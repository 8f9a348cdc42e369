"""The memory that this process can still use."""

import sys
from itertools import chain
from pathlib import Path

from kinetoscope.core.paths.cgroups import cgroup_folders, read_lines


def available_bytes() -> int | None:
    """Return the memory that this process can still use: the machine's, or less by a cgroup's limit."""
    if sys.platform != "linux":
        import psutil  # slow to import, and not needed on Linux

        return psutil.virtual_memory().available
    fields = (line.split() for line in read_lines("/proc/meminfo") if line.startswith("MemAvailable:"))
    of_machine = (int(values[1]) * 1024 for values in fields)
    of_groups = chain.from_iterable(map(_read_headroom, cgroup_folders("memory")))
    return min(chain(of_machine, of_groups), default=None)


def _read_headroom(folder: Path) -> list[int]:
    """Return the bytes up to the limit of a control group; none where it has no limit.

    Cached files that have not been used lately count as used there, but give way.
    """
    for limit, usage, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        numbers = [int(line) for name in (limit, usage) for line in read_lines(folder / name) if line.isdigit()]
        if len(numbers) == 2:
            stat = dict(line.split() for line in read_lines(folder / "memory.stat"))
            return [max(0, numbers[0] - numbers[1] + int(stat.get(cached, 0)))]
    return []
