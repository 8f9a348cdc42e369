"""Sampled stacks of one thread as nested spans, named as Kineto names Python frames."""

import threading
import time
from collections.abc import Callable
from types import CodeType

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.paths.source_files import format_frame, is_profiler_code, is_user_code
from kinetoscope.formats.trace_names import (
    LATE_LINE,
    SAMPLE,
    SAMPLE_OF_LIBRARY,
    SAMPLED_EVERY,
    SAMPLED_STATE,
    WAITS_PREFIX,
)
from kinetoscope.native import native
from kinetoscope.recording.markers.marker import RECORDING_ACTIONS
from kinetoscope.recording.markers.native_recorder import NativeRecorder, NativeSpan
from kinetoscope.recording.markers.recorder_types import ACTION_BITS

_MASK = sum(ACTION_BITS[action] for action in RECORDING_ACTIONS)
_GAP = "frames left out: of a stack, the 100 innermost and the 100 outermost are recorded"
_THREAD_CLOCK = 0b110  # Linux: CPU clock of a thread, as time.pthread_getcpuclockid returns it
_IDLE_S = 0.05  # interval between checks for an open window


class StackSpans(native.StackSamples):
    """Record stack samples of one thread into ``recorder``, on the track of the thread that calls `run`.

    A sample lasts from its request to the next one. The frames that consecutive samples share, from the outermost one,
    are one span. Intervals are irregular, so that no loop runs in step with them. Missed samples are left out.

    `run` samples while anything is recorded, and returns whether `stop` was called meanwhile.

    Args:
        recorder: Recorder of the spans.
        ident: Python's identifier of the sampled thread.
        interval_ms: Mean time between samples.
        outermost: Code of the frame at which stacks start; without it, they start at the thread's first frame.
        native_id: The system's number of the thread. With it, on Linux, the innermost span names what the thread waits
            for, such as ``waits: fsync``; a sample without such a span was running or runnable.
    """

    def __init__(
        self,
        recorder: NativeRecorder,
        ident: int,
        interval_ms: float,
        outermost: CodeType | None = None,
        native_id: int = 0,
    ) -> None:
        super().__init__(recorder, ident, round(interval_ms * 1e6), outermost, native_id)
        self._recorder = recorder
        self._native_id = native_id
        self._cpu_ns: dict[int, int] = {}
        self._interval_name = SAMPLED_EVERY.format(f"{interval_ms:g}")
        self._gap = self._new_span(_GAP, SAMPLE_OF_LIBRARY)
        self._spans: dict[str, NativeSpan] = {}

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Sample until `stop` is called, or ``is_over`` returns True, which is checked while nothing is recorded."""
        while not self.run() and not is_over() and not self.wait(_IDLE_S):
            pass

    def begin_window(self, has_states: bool) -> None:
        """Record the sampling interval, and whether the system reports thread states."""
        self._new_span(self._interval_name, SAMPLED_STATE if has_states else SAMPLE).instant()
        self._find_gil_holder()  # sets the baseline of the threads' CPU times

    def span_of_line(self, code: CodeType, line: int | None) -> NativeSpan | None:
        """Return the span of a line; None for Kinetoscope's code."""
        file = code.co_filename
        if is_profiler_code(file):
            return None
        name = format_frame(code, line)
        if name not in self._spans:
            self._spans[name] = self._new_span(name, SAMPLE if is_user_code(file) else SAMPLE_OF_LIBRARY)
        return self._spans[name]

    def span_of_state(self, state: str) -> NativeSpan:
        """Return the span that names what the thread waits for, or that its line was read ``late``."""
        name = LATE_LINE if state == "late" else WAITS_PREFIX + state
        if state == "GIL" and (holder := self._find_gil_holder()):
            name = f"{name}, {holder} ran"
        if name not in self._spans:
            self._spans[name] = self._new_span(name, SAMPLED_STATE)
        return self._spans[name]

    def _find_gil_holder(self) -> str | None:
        """Return the Python thread with most CPU time since the last call, other than the sampled one."""
        before, self._cpu_ns = self._cpu_ns, {}
        max_ns, holder = 0, None
        for thread in threading.enumerate():
            number = thread.native_id
            if number is None or number == self._native_id or isinstance(thread, BackgroundThread):
                continue
            self._cpu_ns[number] = now_ns = _read_cpu_ns(number)
            ran_ns = now_ns - before.get(number, 0)
            max_ns, holder = (ran_ns, thread.name) if ran_ns > max_ns else (max_ns, holder)
        return holder

    def span_of_gap(self) -> NativeSpan:
        """Return the span that replaces the middle frames of a deep stack."""
        return self._gap

    def _new_span(self, name: str, categories: str) -> NativeSpan:
        names = self._recorder.names
        return NativeSpan(self._recorder, names.intern(name, tuple(categories.split(","))), _MASK)


def _read_cpu_ns(native_id: int) -> int:
    """Return the CPU time of a thread of this process, which may have ended; 0 where the system does not report it."""
    try:
        return time.clock_gettime_ns(~native_id << 3 | _THREAD_CLOCK)
    except (OSError, OverflowError, AttributeError):  # not a clock on other systems
        return 0
