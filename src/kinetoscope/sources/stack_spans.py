"""sources: the sampled stacks of one thread as nested spans, named as Kineto names Python's frames."""

import threading
import time
from collections.abc import Callable
from types import CodeType

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.paths.source_files import format_frame, is_profiler_code, is_user_code
from kinetoscope.formats.own_names import LATE, SAMPLE, SAMPLE_OF_LIBRARY, SAMPLED_EVERY, SAMPLED_STATE, WAITS
from kinetoscope.native import native
from kinetoscope.recording.markers.marker import RECORDING_ACTIONS
from kinetoscope.recording.markers.native_recorder import NativeRecorder, NativeSpan
from kinetoscope.recording.markers.recorder_types import ACTION_BITS

_MASK = sum(ACTION_BITS[action] for action in RECORDING_ACTIONS)
_GAP = "frames left out: of a stack, the 100 innermost and the 100 outermost are recorded"
_THREAD_CLOCK = 0b110  # Linux: the clock of the thread with this number, as time.pthread_getcpuclockid gives it
_IDLE_S = 0.05  # how often to look whether recording goes on


class StackSpans(native.StackSamples):
    """Records the samples of the stack of one thread into ``recorder``, on the track of the thread that calls `run`.

    A sample counts from the moment it was asked for until the next one was. What equal samples in a row have in common,
    from the outermost frame on, is one span. ``outermost`` is the code of the frame with which stacks begin, if they do
    not begin with the thread's first one: outside of it a sample has no frames. Times are irregular, so that no loop
    keeps step with them, and samples that were missed are left out.

    With ``native_id``, the number by which the system knows the thread, what the thread waits for is the innermost
    span, such as ``waits: fsync``; a sample without one ran, or could have run. That needs Linux.

    `run` samples as long as anything is recorded, and returns whether `stop` was called meanwhile.
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
        """Samples until `stop` was called, or until it ``is_over``, which it asks now and then while nothing is
        recorded."""
        while not self.run() and not is_over() and not self.wait(_IDLE_S):
            pass

    def begin_window(self, knows_states: bool) -> None:
        """Records how often this window is sampled, and whether the system says the states of the thread."""
        self._new_span(self._interval_name, SAMPLED_STATE if knows_states else SAMPLE).instant()
        self._find_gil_holder()  # from now on it is known who ran

    def span_of_line(self, code: CodeType, line: int | None) -> NativeSpan | None:
        """The span of a line; None if it is ours."""
        file = code.co_filename
        if is_profiler_code(file):
            return None
        name = format_frame(code, line)
        if name not in self._spans:
            self._spans[name] = self._new_span(name, SAMPLE if is_user_code(file) else SAMPLE_OF_LIBRARY)
        return self._spans[name]

    def span_of_state(self, state: str) -> NativeSpan:
        """The span that says what the thread waits for, or that its line is read ``late``."""
        name = LATE if state == "late" else WAITS + state
        if state == "GIL" and (holder := self._find_gil_holder()):
            name = f"{name}, {holder} ran"
        if name not in self._spans:
            self._spans[name] = self._new_span(name, SAMPLED_STATE)
        return self._spans[name]

    def _find_gil_holder(self) -> str | None:
        """The thread of Python that ran most since the last time that this was asked, except the one that is sampled
        and our own."""
        before, self._cpu_ns = self._cpu_ns, {}
        most_ns, holder = 0, None
        for thread in threading.enumerate():
            number = thread.native_id
            if number is None or number == self._native_id or isinstance(thread, BackgroundThread):
                continue
            self._cpu_ns[number] = now_ns = _cpu_ns(number)
            ran_ns = now_ns - before.get(number, 0)
            most_ns, holder = (ran_ns, thread.name) if ran_ns > most_ns else (most_ns, holder)
        return holder

    def span_of_gap(self) -> NativeSpan:
        """The span that stands for the frames between the two ends of a deep stack."""
        return self._gap

    def _new_span(self, name: str, categories: str) -> NativeSpan:
        names = self._recorder.names
        return NativeSpan(self._recorder, names.intern(name, tuple(categories.split(","))), _MASK)


def _cpu_ns(native_id: int) -> int:
    """The processor time of a thread of this process, which may have ended; 0 where the system does not say."""
    try:
        return time.clock_gettime_ns(~native_id << 3 | _THREAD_CLOCK)
    except (OSError, OverflowError, AttributeError):  # outside of Linux such a number is no clock
        return 0
