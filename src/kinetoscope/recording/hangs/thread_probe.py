"""Detection of progress in a thread, by repeated samples of its state."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from kinetoscope.core.clock.thread_times import SCHEDSTAT
from kinetoscope.pulse.layout import FROZEN_S, POLL_S
from kinetoscope.recording.private_names import frame_of_thread

_MIN_CPU_SHARE = 0.05  # of the time in which the thread was not waiting for a CPU
_RUNNABLE = "R"


class _Sample(NamedTuple):
    """State of a thread at one moment. None stands for values that the system does not report."""

    at_s: float
    position: tuple[int, int] | None
    num_replies: int
    cpu_s: float | None
    delay_s: float | None
    state: str | None
    num_waits: int | None

    def ran_since(self, before: "_Sample") -> bool:
        """Return whether the thread ran on a CPU since ``before``. Linux counts a run-queue delay when it has ended."""
        return (self.cpu_s, self.delay_s) != (before.cpu_s, before.delay_s)


class ThreadProbe:
    """Sample a thread every `POLL_S` seconds: its position, its CPU time, and its context switches.

    A sample takes the GIL. A thread that runs Python releases it and waits to get it back; one that computes in C
    without the GIL is not disturbed. The main thread also replies to pings whenever it returns to Python.
    """

    def __init__(self, ident: int, native_id: int, ping_main_thread: Callable[[], int]) -> None:
        self._ident, self._native_id = ident, native_id
        self._ping = ping_main_thread if ident == threading.main_thread().ident else lambda: 0
        self._samples: list[_Sample] = []

    def add_sample(self) -> None:
        """Take one more sample."""
        frame = frame_of_thread(self._ident)
        state, num_waits = _read_state_and_waits(self._native_id)
        self._samples.append(
            _Sample(
                at_s=time.monotonic(),
                position=None if frame is None else (id(frame), frame.f_lasti),
                num_replies=self._ping(),
                cpu_s=_read_cpu_time_s(self._ident),
                delay_s=read_run_queue_delay_s(self._native_id),
                state=state,
                num_waits=num_waits,
            )
        )

    def is_active(self) -> bool:
        """Return whether the thread used the CPU and made progress. A thread that waits again and again is not active.

        A thread that got no CPU time cannot be judged, so it counts as active.
        """
        first, last = self._samples[0], self._samples[-1]
        if first.cpu_s is None or last.cpu_s is None:
            return self._has_advanced()
        runnable_s = self._measure_observed_s() - self._estimate_run_queue_delay_s()
        if runnable_s < POLL_S:
            return True
        return last.cpu_s - first.cpu_s > _MIN_CPU_SHARE * runnable_s and (self._has_advanced() or self._waits_often())

    def _measure_observed_s(self) -> float:
        """Return the seconds between the first and the last sample, without times in which the process was stopped."""
        return sum(min(after.at_s - sample.at_s, FROZEN_S) for sample, after in pairwise(self._samples))

    def _has_advanced(self) -> bool:
        """Return whether the thread executed Python: its position changed, or it replied to a ping."""
        positions = {sample.position for sample in self._samples if sample.position is not None}
        return len(positions) > 1 or self._samples[-1].num_replies > self._samples[0].num_replies

    def _waits_often(self) -> bool:
        """Return whether the thread has waited for something in at least every second interval."""
        before, after = self._samples[0].num_waits, self._samples[-1].num_waits
        return before is not None and after is not None and after - before >= len(self._samples) // 2

    def _estimate_run_queue_delay_s(self) -> float:
        """Return the seconds in which the thread was ready to run but had no CPU, with a delay that has not ended."""
        first, last = self._samples[0], self._samples[-1]
        if first.delay_s is None or last.delay_s is None:
            return 0.0
        since_s = last.at_s
        for sample in reversed(self._samples):
            if sample.state != _RUNNABLE or last.ran_since(sample):
                break
            since_s = sample.at_s
        return last.delay_s - first.delay_s + last.at_s - since_s


def _read_state_and_waits(native_id: int) -> tuple[str | None, int | None]:
    """Return the state letter of a thread and its number of voluntary context switches; None if unknown."""
    try:
        with open(f"/proc/self/task/{native_id}/status", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file if b":" in line)
        return fields[b"State"].split()[0].decode(), int(fields[b"voluntary_ctxt_switches"])
    except (OSError, ValueError, LookupError):
        return None, None


def _read_cpu_time_s(ident: int) -> float | None:
    """Return the CPU time of a thread of this process in seconds; None if unknown."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return None


def read_run_queue_delay_s(native_id: int) -> float | None:
    """Return the total run-queue delay of a thread of this process in seconds; None if it is unknown."""
    try:
        with open(SCHEDSTAT.format(native_id), "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
