"""One of two ranks that compare their clocks: ``rank.py RANK PORT NUM_RUNS TRUE_OFFSET_NS|kernel``.

Rank 0 has the store and answers. Rank 1 measures and prints a line of JSON per run: its estimate, the bound, and the
true offset. The true offset is given, or read from the kernel directly, past a library that fakes time.
"""

import ctypes
import json
import platform
import sys
import threading
import time
from datetime import timedelta

import torch.distributed

from kinetoscope.core.clock.clock import SystemClock
from kinetoscope.core.clock.sync import ClockClient, ClockServer, clock_identity

_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}
_LIBC = ctypes.CDLL(None)


def kernel_ns() -> int:
    moment = (ctypes.c_long * 2)()
    _LIBC.syscall(_CLOCK_GETTIME[platform.machine()], 1, moment)
    return moment[0] * 10**9 + moment[1]


def true_offset_ns() -> tuple[int, int]:
    """Return how far the kernel's clock is ahead of this process's, and the uncertainty."""
    pairs = []
    for _ in range(20):
        before, kernel, after = time.monotonic_ns(), kernel_ns(), time.monotonic_ns()
        pairs.append((after - before, kernel - (before + after) // 2))
    width, offset = min(pairs)
    return offset, width


def answer(store) -> None:
    server = ClockServer(store.clone(), "test/", SystemClock(), clock_identity(), world_size=2)
    stop = threading.Event()
    thread = threading.Thread(target=server.serve, args=(stop,))
    thread.start()
    store.wait(["measured"], timedelta(minutes=10))
    stop.set()
    thread.join()


def measure(store, num_runs: int, truth: str) -> None:
    client = ClockClient(store.clone(), "test/", SystemClock(), clock_identity())
    client.begin(30, threading.Event())
    print(json.dumps({"same_clock": client.relation.is_same}), flush=True)
    for _ in range(num_runs):
        client.update(30, threading.Event())
        true_ns, width_ns = true_offset_ns() if truth == "kernel" else (int(truth), 0)
        now_ns, relation = time.monotonic_ns(), client.relation
        drift_since_ns = relation.offset_ns(now_ns) - relation.latest.offset_ns if truth == "kernel" else 0
        latest = relation.latest
        line = {"error_ns": latest.offset_ns + drift_since_ns - true_ns, "bound_ns": latest.bound_ns}
        apart_ns = latest.monotonic_ns - relation.first.monotonic_ns
        drift_bound_ppm = 1e6 * (relation.first.bound_ns + latest.bound_ns) / apart_ns
        line |= {"width_ns": width_ns, "drift_ppm": relation.drift_ppm, "drift_bound_ppm": drift_bound_ppm}
        print(json.dumps(line), flush=True)
    store.set("measured", "1")


if __name__ == "__main__":
    rank, port, num_runs = map(int, sys.argv[1:4])
    store = torch.distributed.TCPStore(
        "127.0.0.1", port, None, rank == 0, timedelta(seconds=60), wait_for_workers=False
    )
    answer(store) if rank == 0 else measure(store, num_runs, sys.argv[4])
