"""sources: the sampled stacks of one thread as nested spans, named as Kineto names Python's frames."""

import sys
import time
from collections.abc import Callable, Iterator
from random import Random
from threading import Lock
from types import CodeType
from typing import Any

from kinetoscope.recording.marker import RECORDING_ACTIONS
from kinetoscope.recording.recorder import ACTION_BITS
from kinetoscope.recording.recorder_choice import ProcessRecorder, ProcessSpan
from kinetoscope.training.source_files import is_of_user, is_ours, source_name

TRACK = "samples of {}"
"""The name of the track with the samples of a thread, which has the name of that thread."""

_SAMPLE, _LIBRARY = "stack_sample", "library"
_MASK = sum(ACTION_BITS[action] for action in RECORDING_ACTIONS)
_MOST_FRAMES = 200
_NS = 1_000_000_000
_IDLE_S = 0.05  # how often to look whether recording goes on
_APART_NS = 10  # between the begins of a frame and of the one that it calls, so that viewers can tell which is outside


class StackSpans:
    """Records the samples of the stack of one thread into ``recorder``, on the track of the thread that calls it.

    A sample counts from the moment it was asked for until the next one was. What equal samples in a row have in common,
    from the outermost frame on, is one span. ``outermost`` is the code of the frame with which stacks begin, if they do
    not begin with the thread's first one.
    """

    def __init__(
        self, recorder: ProcessRecorder, ident: int | None, interval_ms: float, outermost: CodeType | None = None
    ) -> None:
        self._recorder, self._ident, self._interval_ms, self._outermost = recorder, ident, interval_ms, outermost
        self._interval = self._new_span(f"sampled every {interval_ms:g} ms", (_SAMPLE,))
        self._open: list[tuple[ProcessSpan, Any]] = []
        self._window = 0
        self._places: dict[tuple[int, int], tuple[CodeType, ProcessSpan | None]] = {}
        self._spans: dict[str, ProcessSpan] = {}

    def sample_while(self, running: Lock, is_over: Callable[[], bool] = lambda: False) -> None:
        """Samples while ``running`` is locked, as long as anything is recorded. Meanwhile it asks now and then whether
        it ``is_over``."""
        for asked_ns in sampling_times(round(self._interval_ms * 1e6)):
            is_recording = bool(self._recorder.action)
            wait_s = max(0, asked_ns - time.monotonic_ns()) / _NS if is_recording else _IDLE_S
            if running.acquire(timeout=wait_s):
                break
            if is_recording and self._recorder.action:
                self.sample(asked_ns)
            else:
                self.end(time.monotonic_ns())
                if is_over():
                    break
        self.end(time.monotonic_ns())

    def sample(self, asked_ns: int) -> None:
        """Records what the thread is doing, which was asked for at ``asked_ns`` on the monotonic clock."""
        stack, window = self._stack(), self._recorder.window
        if self._window != window:
            # What is open was cut when its window closed, and before this window there was no sample.
            self.end(time.monotonic_ns())
            self._window, asked_ns = window, time.monotonic_ns()
            self._interval.instant()
        num_same = _num_same(self._open, stack)
        self.end(asked_ns, num_same)
        for place, span in enumerate(stack[num_same:], num_same):
            self._open.append((span, span.begin_at(asked_ns + place * _APART_NS)))

    def end(self, end_ns: int, num_kept: int = 0) -> None:
        """Ends all open spans but the outermost ``num_kept``."""
        while len(self._open) > num_kept:
            span, token = self._open.pop()
            span.end_at(token, end_ns)

    def _stack(self) -> list[ProcessSpan]:
        """The spans of the thread's frames, outermost first. No frame is kept, as its tensors would be, too."""
        frame = sys._current_frames().get(self._ident or 0)
        places, outermost = self._places, self._outermost
        stack: list[ProcessSpan] = []
        while frame is not None and len(stack) < _MOST_FRAMES:
            code = frame.f_code
            place = id(code), frame.f_lasti
            if place not in places:
                places[place] = code, self._span_of_line(code, frame.f_lineno)
            if (span := places[place][1]) is not None:
                stack.append(span)
            frame = None if code is outermost else frame.f_back
        stack.reverse()
        return stack

    def _span_of_line(self, code: CodeType, line: int | None) -> ProcessSpan | None:
        """The span of a line; None if it is ours."""
        file = code.co_filename
        if is_ours(file):
            return None
        name = f"{source_name(file)}({line or code.co_firstlineno}): {code.co_name}"
        if name not in self._spans:
            self._spans[name] = self._new_span(name, (_SAMPLE,) if is_of_user(file) else (_SAMPLE, _LIBRARY))
        return self._spans[name]

    def _new_span(self, name: str, categories: tuple[str, ...]) -> ProcessSpan:
        return ProcessSpan(self._recorder, self._recorder.names.intern(name, categories), _MASK)


def _num_same(open_spans: list[tuple[ProcessSpan, Any]], stack: list[ProcessSpan]) -> int:
    """How many outermost frames two samples have in common."""
    for place, ((span, _), other) in enumerate(zip(open_spans, stack, strict=False)):
        if span is not other:
            return place
    return min(len(open_spans), len(stack))


def sampling_times(interval_ns: int, now: Callable[[], int] = time.monotonic_ns) -> Iterator[int]:
    """When to sample: about every ``interval_ns``, never in the past. Each time is asked for when the last is over.

    Times are irregular, so that no loop keeps step with them. After a delay, samples that were missed are left out.
    """
    random = Random(0)
    asked = 0
    while True:
        if asked < now():
            asked = now() + round(interval_ns * random.random())
        yield asked
        asked += round(interval_ns * random.uniform(0.75, 1.25))
