"""Whether a thread is at work or hangs, by several looks at it."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from kinetoscope.core.clock.thread_times import SCHEDSTAT
from kinetoscope.pulse.layout import LOOK_S, STOOD_STILL_S
from kinetoscope.recording.private_names import frame_of_thread

_MIN_CPU_SHARE = 0.05  # of the time between looks in which it did not wait for a processor
_RUNNABLE = "R"


class _Sample(NamedTuple):
    """What one look at a thread finds. What the system does not say is None."""

    at_s: float
    position: tuple[int, int] | None
    num_answers: int
    cpu_s: float | None
    delay_s: float | None
    state: str | None
    num_waits: int | None

    def ran_since(self, before: "_Sample") -> bool:
        """Whether it had a processor in between: Linux counts a delay once it is over."""
        return (self.cpu_s, self.delay_s) != (before.cpu_s, before.delay_s)


class ThreadProbe:
    """Several looks at a thread, `LOOK_S` apart: where it is, how long it ran between them, and whether it went from
    one thing to the next.

    A look takes the GIL. A thread that runs Python hands it over, and waits to get it back; one that computes in C
    without the GIL does not notice. The main thread answers, too, whenever it comes back to Python.
    """

    def __init__(self, ident: int, native_id: int, ping_main_thread: Callable[[], int]) -> None:
        self._ident, self._native_id = ident, native_id
        self._ping = ping_main_thread if ident == threading.main_thread().ident else lambda: 0
        self._samples: list[_Sample] = []

    def add_sample(self) -> None:
        """Looks once more."""
        frame = frame_of_thread(self._ident)
        state, num_waits = _read_state_and_waits(self._native_id)
        self._samples.append(
            _Sample(
                at_s=time.monotonic(),
                position=None if frame is None else (id(frame), frame.f_lasti),
                num_answers=self._ping(),
                cpu_s=_read_cpu_time_s(self._ident),
                delay_s=read_run_queue_delay_s(self._native_id),
                state=state,
                num_waits=num_waits,
            )
        )

    def is_active(self) -> bool:
        """Whether it ran while it could, and went on. One that waits again and again is not at work.

        Nobody can tell of one that had no processor, so it is not called stuck.
        """
        first, last = self._samples[0], self._samples[-1]
        if first.cpu_s is None or last.cpu_s is None:
            return self._has_advanced()
        runnable_s = self._observed_s() - self._run_queue_delay_s()
        if runnable_s < LOOK_S:
            return True
        return last.cpu_s - first.cpu_s > _MIN_CPU_SHARE * runnable_s and (self._has_advanced() or self._waits_often())

    def _observed_s(self) -> float:
        """How long the looks took, but for times in which the process was stopped."""
        return sum(min(after.at_s - sample.at_s, STOOD_STILL_S) for sample, after in pairwise(self._samples))

    def _has_advanced(self) -> bool:
        positions = {sample.position for sample in self._samples if sample.position is not None}
        return len(positions) > 1 or self._samples[-1].num_answers > self._samples[0].num_answers

    def _waits_often(self) -> bool:
        before, after = self._samples[0].num_waits, self._samples[-1].num_waits
        return before is not None and after is not None and after - before >= len(self._samples) // 2

    def _run_queue_delay_s(self) -> float:
        """How long it was ready to run, without a processor. What goes on is not in the system's count yet."""
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
    """The state of a thread, a letter, and how often it has waited for anything, if the system says it."""
    try:
        with open(f"/proc/self/task/{native_id}/status", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file if b":" in line)
        return fields[b"State"].split()[0].decode(), int(fields[b"voluntary_ctxt_switches"])
    except (OSError, ValueError, LookupError):
        return None, None


def _read_cpu_time_s(ident: int) -> float | None:
    """The processor time of a thread of this process, in seconds."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return None


def read_run_queue_delay_s(native_id: int) -> float | None:
    """How long a thread of this process has been ready to run, without a processor; None where no system says it."""
    try:
        with open(SCHEDSTAT.format(native_id), "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
