"""Detection of network file systems, on which a mapped file is slow and others see it late."""

import contextlib
import os
from pathlib import Path

_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "ceph",
    "gpfs",
    "beegfs",
    "glusterfs",
    "9p",
    "afs",
    "fuse",
    "pvfs",
    "orangefs",
)


def is_on_network(path: Path) -> bool:
    """Return whether ``path``, or its future folder, is on a network file system."""
    import psutil  # slow to import, and used once a run

    resolved = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):
        mounts = [mount for mount in psutil.disk_partitions(all=True) if resolved.is_relative_to(mount.mountpoint)]
        # if there are several in one place, the last one hides the others
        innermost = max(reversed(mounts), key=lambda mount: len(mount.mountpoint), default=None)
        return innermost is not None and innermost.fstype.startswith(_NETWORK_FILE_SYSTEMS)
    return False
