"""The control groups of this process, and other files of Linux that are a few lines of text."""

from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cgroup_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of a controller in this process's group and in all groups around it, the innermost first."""
    for line in read_lines("/proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.strip().partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mounts = (_CGROUPS / controllers, _CGROUPS / controller) if controllers else (_CGROUPS, _CGROUPS / "unified")
        for mount in mounts:
            folder = Path(path.lstrip("/"))
            yield from (mount / one for one in dict.fromkeys((folder, *folder.parents)))


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
