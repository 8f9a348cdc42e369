"""CPU time of this process, of its command and of the machine, and CPU throttling by cgroups."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from kinetoscope.core.clock.proc import StatField, read_stat
from kinetoscope.core.paths.cgroups import cgroup_folders, read_lines

_NS = 1_000_000_000
_BUSY_FIELDS = (0, 1, 2, 5, 6)  # of a CPU's line in /proc/stat: user, nice, system, irq, softirq
_STEAL_FIELD = 7
_CUMULATIVE_KEYS = ("wall_ns", "own_ns", "command_ns", "busy_ns", "steal_ns", "throttled_ns", "num_throttled")
_TIMES = (StatField.USER_TIME, StatField.SYSTEM_TIME)
_ALL_TIMES = (*_TIMES, StatField.CHILDREN_USER_TIME, StatField.CHILDREN_SYSTEM_TIME)  # also of ended children
_MAX_THREADS = 1_000
"""Maximum number of threads whose children are read, which takes about 10 us per thread."""

CPUUse = dict[str, int]


def read_cpu_use(native_id: int | None, command_pid: int = 0) -> CPUUse:
    """Return the CPU use until now, in nanoseconds, as far as the system reports it.

    - ``own_ns``: this process and its children started by the thread ``native_id``
    - ``command_ns``: the command ``command_pid`` and all processes below it, including this one
    - ``busy_ns``: all processes, on the CPUs that this process may use; ``steal_ns``: other virtual machines
    - ``throttled_ns``, ``num_throttled``: duration and number of throttlings by the limit of this process's cgroup
    - ``cores``: number of CPUs that it may use; ``threads``: torch's threads per operator
    """
    use = {"wall_ns": time.monotonic_ns(), "own_ns": time.process_time_ns()}
    if sys.platform != "linux":
        return use
    cores = os.sched_getaffinity(0)
    use |= {"cores": len(cores)} | _read_torch_threads() | _read_machine_use(cores) | _read_throttling()
    use["own_ns"] += _read_children_ns(native_id)
    return use | _read_command_use(command_pid)


def cpu_use_since(before: CPUUse, native_id: int | None, command_pid: int = 0) -> CPUUse:
    """Return the CPU use since ``before``, with the keys of `read_cpu_use`."""
    now = read_cpu_use(native_id, command_pid)
    return {
        name: max(0, value - before[name]) if name in _CUMULATIVE_KEYS else value
        for name, value in now.items()
        if name not in _CUMULATIVE_KEYS or name in before
    }


def _read_torch_threads() -> CPUUse:
    get_num_threads: Any = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return {} if get_num_threads is None else {"threads": get_num_threads()}


def _read_machine_use(cores: set[int]) -> CPUUse:
    """Return busy and stolen time of the given CPUs, from /proc/stat."""
    tick_ns, busy, steal = _NS // os.sysconf("SC_CLK_TCK"), 0, 0
    for line in read_lines("/proc/stat"):
        name, _, rest = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            fields = [int(field) for field in rest.split()]
            busy += sum(fields[index] for index in _BUSY_FIELDS)
            steal += fields[_STEAL_FIELD]
    return {"busy_ns": busy * tick_ns, "steal_ns": steal * tick_ns} if busy else {}


def _read_children_ns(native_id: int | None) -> int:
    """Return the CPU time of ended children, and of the running ones that a thread has started."""
    times = os.times()
    ended_s = times.children_user + times.children_system
    ticks = 0
    for child in "".join(read_lines(f"/proc/self/task/{native_id}/children")).split():
        ticks += _read_ticks(child, _TIMES)
    return round(ended_s * _NS) + ticks * (_NS // os.sysconf("SC_CLK_TCK"))


def _read_command_use(command_pid: int) -> CPUUse:
    """Return the CPU time of the command that started this process, and of all processes below it.

    The result is empty where the command is this process, is on another machine, or has more than `_MAX_THREADS`
    threads: this runs between two steps.
    """
    if command_pid in (0, os.getpid()):
        return {}
    pids, ticks, num_threads, is_in = [command_pid], 0, 0, False
    while pids:
        pid = pids.pop()
        is_in |= pid == os.getpid()
        ticks += _read_ticks(pid, _ALL_TIMES)
        threads = _list_threads(pid)
        num_threads += len(threads)
        if num_threads > _MAX_THREADS:
            return {}
        for thread in threads:
            pids += map(int, "".join(read_lines(f"/proc/{pid}/task/{thread}/children")).split())
    return (
        {"command_ns": ticks * (_NS // os.sysconf("SC_CLK_TCK"))} if is_in else {}
    )  # else the command is on another machine


def _read_ticks(process: int | str, times: Sequence[StatField]) -> int:
    """Return the sum of some times of a process; 0 if it has ended."""
    try:
        fields = read_stat(process)
    except OSError:
        return 0
    return sum(int(fields[field]) for field in times)


def _list_threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:  # the process has ended
        return []


def _read_throttling() -> CPUUse:
    """Return the throttling of the cgroup that was throttled longest, among ours and its parents."""
    worst: CPUUse = {}
    for folder in cgroup_folders("cpu"):
        statistics = dict(line.split() for line in read_lines(folder / "cpu.stat"))
        num_throttled = int(statistics.get("nr_throttled", 0))
        throttled_ns = (
            int(statistics["throttled_usec"]) * 1000
            if "throttled_usec" in statistics
            else int(statistics.get("throttled_time", 0))
        )
        if statistics and throttled_ns >= worst.get("throttled_ns", 0):
            worst = {"throttled_ns": throttled_ns, "num_throttled": num_throttled}
    return worst
