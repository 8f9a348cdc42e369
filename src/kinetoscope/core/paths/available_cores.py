"""The cores that this process may use."""

import math
import os
from collections.abc import Iterator

from kinetoscope.core.paths.cgroups import cgroup_folders, read_lines


def count_cores() -> int:
    """Return the number of cores that this process may use: those of its affinity, or less by a cgroup's CPU quota."""
    of_affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min((of_affinity, *map(math.ceil, _read_quotas())))


def _read_quotas() -> Iterator[float]:
    """Yield the quotas of this process's cgroups, in cores; none for a group without a quota."""
    for folder in cgroup_folders("cpu"):
        version_2 = read_lines(folder / "cpu.max")
        version_1 = read_lines(folder / "cpu.cfs_quota_us") + read_lines(folder / "cpu.cfs_period_us")
        numbers = " ".join(version_2 or version_1).split()
        if len(numbers) == 2 and all(map(str.isdigit, numbers)):  # unlimited groups have "max", or -1
            yield int(numbers[0]) / int(numbers[1])
