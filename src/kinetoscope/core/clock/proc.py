"""Linux's ``/proc``: the id of the machine's boot, and the fields of a process or of a thread."""

from enum import IntEnum
from pathlib import Path


class StatField(IntEnum):
    """Indices of fields of `read_stat`. Times are in ticks; ``START`` counts from the boot."""

    STATE = 0
    PARENT = 1
    USER_TIME = 11
    SYSTEM_TIME = 12
    CHILDREN_USER_TIME = 13
    CHILDREN_SYSTEM_TIME = 14
    NUM_THREADS = 17
    START = 19
    RESIDENT_PAGES = 21


def read_boot_id() -> str:
    """Return the id of the machine's current boot, the same in all its containers; "" where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_stat(process: int | str) -> list[str]:
    """Return the fields of ``/proc/PROCESS/stat`` after the name, which may contain any character: see proc(5).

    Raises OSError if there is no such process, or no ``/proc``.

    Args:
        process: A pid, ``self``, or a thread, such as ``self/task/12``.
    """
    with open(f"/proc/{process}/stat", "rb", buffering=0) as file:
        return file.read().decode(errors="replace").rpartition(")")[2].split()
