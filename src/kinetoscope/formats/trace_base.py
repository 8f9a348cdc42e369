"""formats: what the times in a trace count from. Moments flow in; a base that all traces of a run share flows out.

Some tools put traces together and pass over ``baseTimeNanoseconds``: so the traces of a run must have the same one.
It is when the process started, down to a grid of 26 days, and nothing has to be exchanged for it: only processes that
start on both sides of a line of the grid differ. A double holds nanoseconds for 50 days from there.
"""

import os
import sys
import time
from pathlib import Path

GRID_NS = 2**51
_EXACT_NS = 2**42 * 1000  # a double holds so many microseconds to half a nanosecond


def choose_base_ns(earliest_ns: int, *known_ns: int) -> int:
    """The base for a trace whose earliest event begins at ``earliest_ns``: a line of the grid.

    The earliest of those ``known_ns`` that can be one, such as that of the process or those of files that are merged;
    where there is none, the last line before the event.
    """
    fitting = (base for base in known_ns if base % GRID_NS == 0 and 0 <= earliest_ns - base < _EXACT_NS)
    return min(fitting, default=earliest_ns // GRID_NS * GRID_NS)


def process_base_ns() -> int:
    """The base of this process's traces: a process that it forks or spawns has the same one."""
    return _process_base_ns


def _started_ns() -> int:
    """When this process started, or the one that multiprocessing made it for; in unix time."""
    multiprocessing = sys.modules.get("multiprocessing.process")  # which is there where it has made this process
    parent = multiprocessing.parent_process() if multiprocessing is not None else None
    try:
        stat = Path(f"/proc/{parent.pid if parent else os.getpid()}/stat").read_text(encoding="utf-8", errors="replace")
        ticks = int(stat.rpartition(")")[2].split()[19])
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):  # no Linux
        age_ns = 0
    return time.time_ns() - max(age_ns, 0)


# A global, because it is the process's; read at once, so that what it forks has it as well.
_process_base_ns = _started_ns() // GRID_NS * GRID_NS
