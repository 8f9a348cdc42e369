"""recording: how a child process finds the run it belongs to. Nothing flows in; the path of a run file flows out.

A child inherits an environment variable. But a fork server was started once, perhaps before the run, and its children
have its environment: they look for the run file that their real parent, the server's, has mapped.
"""

import contextlib
import os
import sys
from pathlib import Path

RUN_FILE_VARIABLE = "KINETOSCOPE_RUN_FILE"
"""The environment variable by which child processes find the run they belong to."""

_FORK_SERVER = "multiprocessing.forkserver"


def find_parents_run() -> str | None:
    """The run file of the run that this process is a child of; None if it is of none."""
    told = os.environ.get(RUN_FILE_VARIABLE)
    return told if told is not None or _FORK_SERVER not in sys.modules else _find_among_ancestors()


def _find_among_ancestors() -> str | None:
    server = os.getppid()
    with contextlib.suppress(OSError, ValueError):
        return _mapped_run_file(_parent_of(server)) or _mapped_run_file(server)
    return None


def _parent_of(pid: int) -> int:
    """Field 4 of /proc/pid/stat (proc(5)); the name before it, in parentheses, may hold anything."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])


def _mapped_run_file(pid: int) -> str | None:
    """The control file that a process has mapped, whose name begins with the process's number."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            path = os.fsdecode(b"/" + line.rstrip(b"\n").partition(b"/")[2])
            name = os.path.basename(path)
            if name.startswith(f"{pid}-") and name.endswith(".run"):
                return path if os.path.exists(path) else path.replace("\\012", "\n")  # the one escape there is, proc(5)
    return None
