"""recording: samples of a thread's stack in pure Python, for machines without the recorder in C."""

import threading
import time
from collections import deque
from random import Random
from types import CodeType, FrameType
from typing import Any

from kinetoscope.recording.private_names import frame_of_thread
from kinetoscope.recording.recorder import FRAMES_APART_NS

_MOST_INNER = _MOST_OUTER = 100  # frames; of a deeper stack, those between these ends are left out
_MOST_LOOKED = 10_000  # frames beyond the inner ones, in search of the outermost
_MOST_PLACES = 10_000  # when there are more, all are forgotten, and with them their code
_NS = 1_000_000_000


class StackSamples:
    """Records which lines another thread is at; see `kinetoscope.sources.stack_spans.StackSpans`.

    It never knows the state of the thread, ``native_id``: Python code runs only once it has the GIL, and then it is too
    late to look.
    """

    def __init__(
        self, recorder: Any, ident: int, interval_ns: int, outermost: CodeType | None, native_id: int = 0
    ) -> None:
        del native_id
        self._recorder, self._ident, self._interval_ns, self._outermost = recorder, ident, interval_ns, outermost
        self._open: list[tuple[Any, Any]] = []
        self._window = self._asked_ns = 0
        self._is_outside = False
        """Whether the last look has not found the outermost frame: then there is no stack."""
        self._places: dict[tuple[int, int], tuple[CodeType, Any]] = {}
        self._random = Random(0)
        self._stopped = threading.Event()

    def span_of_line(self, code: CodeType, line: int | None) -> Any:
        """The span of a line; None if it is left out."""
        raise NotImplementedError("Samples need the spans of lines, which a subclass gives.")

    def span_of_gap(self) -> Any:
        """The span that stands for frames that are left out."""
        raise NotImplementedError("Deep stacks need a span for what is left out, which a subclass gives.")

    def begin_window(self, knows_states: bool) -> None:
        """Called before the first sample of each window; ``knows_states`` is whether the system says them."""

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
            self.begin_window(False)
        num_same = self._num_same(stack)
        self._end_inner(num_same, asked_ns)
        for depth, span in enumerate(stack[num_same:], num_same):
            self._open.append((span, span.begin_at(asked_ns + depth * FRAMES_APART_NS)))

    def end(self, end_ns: int) -> None:
        """Ends all open spans, and forgets the code of their lines."""
        self._end_inner(0, end_ns)
        self._places.clear()

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
        if len(self._places) > _MOST_PLACES:
            self._places.clear()
        frame, inner = frame_of_thread(self._ident), list[Any]()
        self._is_outside = False
        while frame is not None and len(inner) < _MOST_INNER:
            inner += self._spans_of(frame)
            frame = self._caller_of(frame)
        outer = self._outer(frame)
        return [] if self._is_outside else [*outer, *reversed(inner)]

    def _outer(self, frame: FrameType | None) -> list[Any]:
        """The spans of the outermost frames of those from ``frame`` on, and a gap behind them if there are more. Of an
        endless stack the outermost frames are not found."""
        last, num_frames = deque[FrameType](maxlen=_MOST_OUTER), 0
        while frame is not None and num_frames < _MOST_LOOKED:
            last.appendleft(frame)
            num_frames += 1
            frame = self._caller_of(frame)
        found = [span for one in last for span in self._spans_of(one)] if frame is None else []
        return found + [self.span_of_gap()] * (num_frames > _MOST_OUTER)

    def _caller_of(self, frame: FrameType) -> FrameType | None:
        if frame.f_code is self._outermost:
            return None
        self._is_outside |= frame.f_back is None and self._outermost is not None
        return frame.f_back

    def _spans_of(self, frame: FrameType) -> list[Any]:
        """The span of the line that the frame is at, unless that is left out."""
        code = frame.f_code
        place = id(code), frame.f_lasti
        if place not in self._places:
            self._places[place] = code, self.span_of_line(code, frame.f_lineno)
        span = self._places[place][1]
        return [] if span is None else [span]
