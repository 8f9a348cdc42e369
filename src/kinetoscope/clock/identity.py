"""clock: which clock this is. Two processes share one if their identities are the same, and only then."""

import ctypes
import hashlib
import os
import platform
import socket
import sys
import time
import uuid
from pathlib import Path

_CLOCK_MONOTONIC = 1
_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}
_SHIM_TOLERANCE_NS = 50_000_000


def clock_identity() -> str:
    """The name of this process's CLOCK_MONOTONIC: of the boot and the time namespace that it counts in.

    Where a library stands before the clock (libfaketime, say), it is the process's own, shared with nobody.
    """
    parts = [_read("/proc/sys/kernel/random/boot_id") or socket.gethostname(), _time_namespace()]
    if _has_shim():
        parts.append(uuid.uuid4().hex)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _time_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


def _has_shim() -> bool:
    """Whether the clock is not the kernel's: by the name of the usual library, and by asking the kernel itself."""
    kernel_ns = _kernel_monotonic_ns()
    is_far_off = kernel_ns is not None and abs(time.monotonic_ns() - kernel_ns) > _SHIM_TOLERANCE_NS
    return is_far_off or "libfaketime" in _read("/proc/self/maps")


def _kernel_monotonic_ns() -> int | None:
    number = _CLOCK_GETTIME.get(platform.machine()) if sys.platform == "linux" else None
    if number is None:
        return None
    seconds_and_ns = (ctypes.c_long * 2)()
    if ctypes.CDLL(None).syscall(number, _CLOCK_MONOTONIC, seconds_and_ns) != 0:
        return None
    return seconds_and_ns[0] * 10**9 + seconds_and_ns[1]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
