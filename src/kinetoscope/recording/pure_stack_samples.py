"""recording: samples of a thread's stack in pure Python, for machines without the recorder in C."""

import sys
import threading
import time
from random import Random
from types import CodeType
from typing import Any

_MOST_FRAMES = 200
_APART_NS = 10  # between the begins of a frame and of the one that it calls, so that viewers can tell which is outside
_NS = 1_000_000_000


class StackSamples:
    """Records which lines another thread is at; see `kinetoscope.sources.stack_spans.StackSpans`."""

    def __init__(self, recorder: Any, ident: int, interval_ns: int, outermost: CodeType | None) -> None:
        self._recorder, self._ident, self._interval_ns, self._outermost = recorder, ident, interval_ns, outermost
        self._open: list[tuple[Any, Any]] = []
        self._window = self._asked_ns = 0
        self._places: dict[tuple[int, int], tuple[CodeType, Any]] = {}
        self._random = Random(0)
        self._stopped = threading.Event()

    def span_of_line(self, code: CodeType, line: int | None) -> Any:
        """The span of a line; None if it is left out."""
        raise NotImplementedError("Samples need the spans of lines, which a subclass gives.")

    def begin_window(self) -> None:
        """Called before the first sample of each window."""

    def run(self) -> bool:
        """Samples as long as anything is recorded, or until `stop`; returns whether that was called."""
        while self._recorder.action and not self._stopped.is_set():
            now_ns = time.monotonic_ns()
            asked_ns = self.next_time(now_ns)
            if not self.wait((asked_ns - now_ns) / _NS) and self._recorder.action:
                self.sample(asked_ns)
        self.end(self._recorder.now())
        return self._stopped.is_set()

    def wait(self, seconds: float) -> bool:
        """Waits, or until `stop`; returns whether that was called."""
        return self._stopped.wait(seconds)

    def stop(self) -> None:
        """Ends `run` and `wait` on another thread."""
        self._stopped.set()

    def next_time(self, now_ns: int) -> int:
        """When to sample next: about an interval after the last time, and never before ``now_ns``."""
        self._asked_ns += round(self._interval_ns * self._random.uniform(0.75, 1.25))
        if self._asked_ns < now_ns:
            self._asked_ns = now_ns + round(self._interval_ns * self._random.random())
        return self._asked_ns

    def sample(self, asked_ns: int) -> None:
        """Records what the thread is doing, which was asked for at ``asked_ns``."""
        stack, window = self._stack(), self._recorder.window
        if self._window != window:  # before this window there was no sample, and what is open was cut when it closed
            asked_ns = self._recorder.now()
            self.end(asked_ns)
            self._window = window
            self.begin_window()
        num_same = self._num_same(stack)
        self._end_inner(num_same, asked_ns)
        for depth, span in enumerate(stack[num_same:], num_same):
            self._open.append((span, span.begin_at(asked_ns + depth * _APART_NS)))

    def end(self, end_ns: int) -> None:
        """Ends all open spans."""
        self._end_inner(0, end_ns)

    def _end_inner(self, num_kept: int, end_ns: int) -> None:
        """Ends all open spans but the outermost ``num_kept``."""
        while len(self._open) > num_kept:
            span, token = self._open.pop()
            span.end_at(token, end_ns)

    def _num_same(self, stack: list[Any]) -> int:
        """How many outermost frames are the same as in the sample before."""
        for depth, ((span, _), other) in enumerate(zip(self._open, stack, strict=False)):
            if span is not other:
                return depth
        return min(len(self._open), len(stack))

    def _stack(self) -> list[Any]:
        """The spans of the thread's frames, outermost first. No frame is kept, as its tensors would be, too."""
        frame = sys._current_frames().get(self._ident)
        places, stack = self._places, list[Any]()
        while frame is not None and len(stack) < _MOST_FRAMES:
            code = frame.f_code
            place = id(code), frame.f_lasti
            if place not in places:
                places[place] = code, self.span_of_line(code, frame.f_lineno)
            if (span := places[place][1]) is not None:
                stack.append(span)
            frame = None if code is self._outermost else frame.f_back
        stack.reverse()
        return stack
