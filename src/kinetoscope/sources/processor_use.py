"""sources: who used the machine's processors: this process and its children, everybody, or a limit that stopped us."""

import os
import sys
import time
from typing import Any

from kinetoscope.core.paths.cgroups import cgroup_folders, read_lines

_NS = 1_000_000_000
_FIELDS_BUSY = (0, 1, 2, 5, 6)  # of a processor in /proc/stat: user, nice, system, irq, softirq
_FIELD_STEAL = 7
_SUMS = ("wall_ns", "own_ns", "command_ns", "busy_ns", "steal_ns", "throttled_ns", "num_throttled")
_FIELDS_TIMES = (11, 12, 13, 14)  # of a process in /proc/PID/stat, after its name: its own, and of its ended children
_MAX_THREADS = 1_000
"""Reading the children of a thread takes about 10 us."""

Use = dict[str, int]


def processor_use(native_id: int | None, command_pid: int = 0) -> Use:
    """What was used until now, in ns, as far as the system says it:

    - ``own_ns``: by this process, and by its children that the thread ``native_id`` has started
    - ``command_ns``: by the command ``command_pid`` and all processes below it, of which this process is one
    - ``busy_ns``: by everybody, on the processors that this process may use; ``steal_ns``: by other virtual machines
    - ``throttled_ns``, ``num_throttled``: how long, and how often, a limit of this process's cgroup has stopped it
    - ``cores``: how many processors it may use; ``threads``: on how many torch computes an operator
    """
    use = {"wall_ns": time.monotonic_ns(), "own_ns": time.process_time_ns()}
    if sys.platform != "linux":
        return use
    cores = os.sched_getaffinity(0)
    use |= {"cores": len(cores)} | _threads_of_torch() | _of_machine(cores) | _throttled()
    use["own_ns"] += _children_ns(native_id)
    return use | _of_command(command_pid)


def processor_use_since(before: Use, native_id: int | None, command_pid: int = 0) -> Use:
    """The same, but what was used since ``before``."""
    now = processor_use(native_id, command_pid)
    return {
        name: max(0, value - before[name]) if name in _SUMS else value
        for name, value in now.items()
        if name not in _SUMS or name in before
    }


def _threads_of_torch() -> Use:
    ask: Any = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return {} if ask is None else {"threads": ask()}


def _of_machine(cores: set[int]) -> Use:
    tick_ns, busy, steal = _NS // os.sysconf("SC_CLK_TCK"), 0, 0
    for line in read_lines("/proc/stat"):
        name, _, rest = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            fields = [int(field) for field in rest.split()]
            busy += sum(fields[place] for place in _FIELDS_BUSY)
            steal += fields[_FIELD_STEAL]
    return {"busy_ns": busy * tick_ns, "steal_ns": steal * tick_ns} if busy else {}


def _children_ns(native_id: int | None) -> int:
    times = os.times()
    own_s = times.children_user + times.children_system
    ticks = 0
    for child in "".join(read_lines(f"/proc/self/task/{native_id}/children")).split():
        fields = "".join(read_lines(f"/proc/{child}/stat")).rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12]) if fields else 0
    return round(own_s * _NS) + ticks * (_NS // os.sysconf("SC_CLK_TCK"))


def _of_command(command_pid: int) -> Use:
    """Return the CPU time of the command that has started this process, and of all processes below it.

    Nothing is read where the command is this process, and it is unknown where the command has too many threads: this
    runs between two steps.
    """
    if command_pid in (0, os.getpid()):
        return {}
    pids, ticks, num_threads, is_in = [command_pid], 0, 0, False
    while pids:
        pid = pids.pop()
        is_in |= pid == os.getpid()
        if fields := "".join(read_lines(f"/proc/{pid}/stat")).rpartition(")")[2].split():
            ticks += sum(int(fields[place]) for place in _FIELDS_TIMES)
        threads = _threads_of(pid)
        num_threads += len(threads)
        if num_threads > _MAX_THREADS:
            return {}
        for thread in threads:
            pids += map(int, "".join(read_lines(f"/proc/{pid}/task/{thread}/children")).split())
    return {"command_ns": ticks * (_NS // os.sysconf("SC_CLK_TCK"))} if is_in else {}  # else it is on another machine


def _threads_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return []


def _throttled() -> Use:
    """Of our cgroup and those that it is in, the one that was stopped most."""
    most: Use = {}
    for folder in cgroup_folders("cpu"):
        said = dict(line.split() for line in read_lines(folder / "cpu.stat"))
        number = int(said.get("nr_throttled", 0))
        took_ns = int(said["throttled_usec"]) * 1000 if "throttled_usec" in said else int(said.get("throttled_time", 0))
        if said and took_ns >= most.get("throttled_ns", 0):
            most = {"throttled_ns": took_ns, "num_throttled": number}
    return most
