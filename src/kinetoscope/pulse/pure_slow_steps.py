"""Which steps of a pulse are slow, in Python, for machines without what does it in C (`src/native/pulse/slow.c`)."""

import os
import threading
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from kinetoscope.pulse.layout import Phase

_NUM_RECENT, _FEWEST_STEPS, _REFRESH_EVERY = 256, 64, 32
_MOST_SLOW, _MOST_STRETCHES, _MOST_MARKS, _MOST_WAITING = 12, 256, 256, 8
_LATE_NS, _SAMPLE_EVERY_NS, _LONGEST_WAIT_NS = 5_000_000, 10_000_000, 1_000_000_000
_LONGEST_SLEEP_NS = 50_000_000  # then another step may run, or be judged
_NEVER = 2**63 - 1

Times = tuple[int, tuple[int, ...], int | None]
"""How long a step took, in each phase, and without a processor, in nanoseconds; None where the system does not say."""

_Stretches = list[tuple[int, int, int]]
_Found = tuple[int, int, int, Times, Times, int, _Stretches, _Stretches, int]


class SlowSteps:
    """Compares each step with the 256 before it, as the `PulseWriter` tells of them that was given this.

    A step is slow if it takes longer than their median by more than eight times their median deviation and by more than
    a fifth of the median, and is a tenth longer than the 13th longest of them. Where more than 12 are so far beyond the
    median, these have a length of their own, or vary as much: then it has to be a third longer than the 13th. Nothing
    is slow before 64 steps: with fewer, a median deviation is off by a fifth and more, and the first steps of a
    training compile, allocate and read for the first time. ``schedstat`` is the file in which the system counts how
    long the training thread was without a processor.

    One thread calls `wait`, and then `take` and `late_step`. It samples a step every 10 ms once that is late: half of
    the way from the median to the limit, and at least 5 ms after the median.
    """

    def __init__(self, schedstat: str) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(schedstat, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._starved_ns: int | None = None
        self._is_on = self._is_comparable = False
        self._recent: list[Times] = []
        self._num_judged = 0
        self._usual_ns, self._limit_ns = 0, _NEVER
        self._stretches: list[tuple[int, int, int]] = []
        self._marks: list[tuple[int, int, int]] = []
        self._num_left_out_of_step = 0
        self._thread = threading.get_ident()
        self._found: list[_Found] = []
        self._num_left_out = 0
        self._stopped = threading.Event()
        self._began_ns, self._late_after_ns = 0, _NEVER
        self._sampled_step = self._sampled_at_ns = 0

    # -- on the training thread --

    def judge(self, is_on: bool) -> None:
        """Whether steps are compared from now on; not the one that runs, if this changes."""
        if bool(is_on) is self._is_on:
            return
        self._is_on, self._starved_ns = bool(is_on), None
        self._is_comparable = False  # a part of the step that runs was different
        self._late_after_ns = self._late_after()

    def begin_step(self, begin_ns: int) -> None:
        """The step that runs began then."""
        self._stretches, self._marks, self._num_left_out_of_step = [], [], 0
        self._began_ns = begin_ns

    def note_phase(self, phase: int, begin_ns: int, end_ns: int) -> None:
        """The training thread was in that phase for a while."""
        kept = self._stretches
        if kept and kept[-1][0] == phase and kept[-1][2] == begin_ns:
            kept[-1] = phase, kept[-1][1], end_ns
        elif begin_ns < end_ns and len(kept) < _MOST_STRETCHES:
            kept.append((phase, begin_ns, end_ns))
        else:
            self._num_left_out_of_step += begin_ns < end_ns

    def wants_marks(self) -> bool:
        """Whether steps are compared now, and the calling thread's: then spans are wanted, which nothing records."""
        return self._is_on and self._thread == threading.get_ident()

    def note_mark(self, name: int, begin_ns: int, end_ns: int) -> None:
        """A span of the step that runs. One that began in an earlier step is not of this one."""
        if not self.wants_marks() or begin_ns < self._began_ns or end_ns < begin_ns:
            return
        if len(self._marks) < _MOST_MARKS:
            self._marks.append((name, begin_ns, end_ns))
        else:
            self._num_left_out_of_step += 1

    def end_step(self, step: int, epoch: int, begin_ns: int, duration_ns: int, by_phase: list[int]) -> None:
        """The step that runs has ended, and the next one has begun."""
        if self._is_on:
            starved_ns = self._starved_since()
            if self._is_comparable:
                self._judge_step(step, epoch, begin_ns, (duration_ns, tuple(by_phase), starved_ns))
            self._is_comparable = True
        self._late_after_ns = self._late_after()
        self.begin_step(begin_ns + duration_ns)

    def _judge_step(self, step: int, epoch: int, begin_ns: int, times: Times) -> None:
        place = self._num_judged % _NUM_RECENT
        self._recent[place : place + 1] = [times]
        self._num_judged += 1
        duration_ns = times[0]
        is_slow = duration_ns > self._limit_ns
        if is_slow or self._num_judged % _REFRESH_EVERY == 0:
            self._refresh()
        if is_slow and duration_ns > self._limit_ns:
            kept = list(self._stretches), list(self._marks), self._num_left_out_of_step
            self._keep((step, epoch, begin_ns, times, self._usual(), self._limit_ns, *kept))

    def _keep(self, found: _Found) -> None:
        if len(self._found) < _MOST_WAITING:
            self._found.append(found)
        else:
            self._num_left_out += 1

    def _late_after(self) -> int:
        """Half of the way to what is slow: where steps vary much, few usual ones are sampled."""
        if not self._is_on or not self._is_comparable or self._limit_ns == _NEVER:
            return _NEVER
        return self._usual_ns + max(_LATE_NS, (self._limit_ns - self._usual_ns) // 2)

    def _starved_since(self) -> int | None:
        """How long the training thread was ready without a processor since this was asked last."""
        before_ns, self._starved_ns = self._starved_ns, None
        with suppress(OSError, ValueError, IndexError):
            if self._file is not None:
                self._starved_ns = int(os.pread(self._file, 127, 0).split()[1])
        now_ns = self._starved_ns
        return None if before_ns is None or now_ns is None or now_ns < before_ns else now_ns - before_ns

    # -- what is usual --

    def _refresh(self) -> None:
        """How long a usual step takes, and how long one may take."""
        values = sorted(times[0] for times in self._recent)
        if len(values) < _FEWEST_STEPS:
            return
        usual_ns, most_ns = values[len(values) // 2], values[-1 - _MOST_SLOW]
        limit_ns = usual_ns + max(8 * _median([abs(value - usual_ns) for value in values]), usual_ns // 5)
        is_of_own_length = most_ns > limit_ns
        self._usual_ns = usual_ns
        self._limit_ns = most_ns + most_ns // 3 if is_of_own_length else max(limit_ns, most_ns + most_ns // 10)

    def _usual(self) -> Times:
        by_phase = tuple(_median([times[1][phase] for times in self._recent]) for phase in range(len(Phase)))
        starved_ns = _median([-1 if times[2] is None else times[2] for times in self._recent])
        return self._usual_ns, by_phase, None if starved_ns == -1 else starved_ns

    # -- on our own thread --

    def wait(self) -> bool:
        """Waits at most a second, or until `stop`. Returns whether a step is late or was slow."""
        until_ns = monotonic_ns() + _LONGEST_WAIT_NS
        while (now_ns := monotonic_ns()) < until_ns:
            due_ns = self._due_at()
            if due_ns <= now_ns:
                return True
            if self._stopped.wait(min(due_ns - now_ns, _LONGEST_SLEEP_NS) / 1e9):
                return False
        return False

    def _due_at(self) -> int:
        began_ns, after_ns, sampled = self._began_ns, self._late_after_ns, self._sampled_step
        if self._found or (sampled and sampled != began_ns):
            return 0
        if after_ns == _NEVER:
            return _NEVER
        return max(began_ns + after_ns, self._sampled_at_ns + _SAMPLE_EVERY_NS if sampled else 0)

    def late_step(self) -> int:
        """When the step that runs began, if it is late, and is sampled now; else 0."""
        now_ns, began_ns, after_ns = monotonic_ns(), self._began_ns, self._late_after_ns
        is_late = after_ns != _NEVER and now_ns - began_ns >= after_ns
        self._sampled_step, self._sampled_at_ns = began_ns if is_late else 0, now_ns
        return self._sampled_step

    def began(self) -> int:
        """When the step that runs began."""
        return self._began_ns

    def take(self) -> Any:
        """The next slow step: its number, epoch and begin, its `Times`, the usual ones, the limit of its duration, its
        phases and the thread's spans with their begins and ends, and how many of these are left out. None if there is
        none."""
        return self._found.pop(0) if self._found else None

    def num_left_out(self) -> int:
        """How many slow steps there were beyond those that can wait to be taken."""
        return self._num_left_out

    def stop(self) -> None:
        """Ends `wait` on another thread."""
        self._stopped.set()

    def __del__(self) -> None:
        file, self._file = getattr(self, "_file", None), None
        if file is not None:
            os.close(file)


def _median(values: list[int]) -> int:
    """The middle value, of two the greater one."""
    return sorted(values)[len(values) // 2]
