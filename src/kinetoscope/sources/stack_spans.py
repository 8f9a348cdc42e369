"""sources: the sampled stacks of one thread as nested spans, named as Kineto names Python's frames."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

import kinetoscope
from kinetoscope.recording.marker import RECORDING_ACTIONS
from kinetoscope.recording.recorder import ACTION_BITS
from kinetoscope.recording.recorder_choice import ProcessRecorder, ProcessSpan
from kinetoscope.training.short_paths import shorten_paths

CATEGORY = "stack_sample"
TRACK = "samples of {}"
"""The name of the track with the samples of a thread, which has the name of that thread."""

_MASK = sum(ACTION_BITS[action] for action in RECORDING_ACTIONS)
_OURS = str(Path(kinetoscope.__file__).parent) + os.sep
_MOST_FRAMES = 200


class StackSpans:
    """Records the samples of the stack of one thread into ``recorder``, on the track of the thread that calls it.

    A sample counts from the moment it was asked for until the next one was. What equal samples in a row have in common,
    from the outermost frame on, is one span.
    """

    def __init__(self, recorder: ProcessRecorder, ident: int) -> None:
        self._recorder, self._ident = recorder, ident
        self._open: list[tuple[ProcessSpan, Any]] = []
        self._window = 0
        self._places: dict[tuple[int, int], tuple[CodeType, ProcessSpan | None]] = {}
        self._spans: dict[str, ProcessSpan] = {}

    def sample(self, asked_ns: int) -> None:
        """Records what the thread is doing, which was asked for at ``asked_ns`` on the monotonic clock."""
        stack, window = self._stack(), self._recorder.window
        if self._window != window:
            # What was open was cut when its window closed, and before this window there was no sample.
            self.abandon()
            self._window, asked_ns = window, time.monotonic_ns()
        num_same = _num_same(self._open, stack)
        self.end(asked_ns, num_same)
        self._open += [(span, span.begin_at(asked_ns)) for span in stack[num_same:]]

    def end(self, end_ns: int, num_kept: int = 0) -> None:
        """Ends all open spans but the outermost ``num_kept``."""
        while len(self._open) > num_kept:
            span, token = self._open.pop()
            span.end_at(token, end_ns)

    def abandon(self) -> None:
        """Forgets all open spans."""
        while self._open:
            span, token = self._open.pop()
            span.abandon(token)

    def _stack(self) -> list[ProcessSpan]:
        """The spans of the thread's frames, outermost first. No frame is kept, as its tensors would be, too."""
        frame = sys._current_frames().get(self._ident)
        stack: list[ProcessSpan] = []
        while frame is not None and len(stack) < _MOST_FRAMES:
            if (span := self._span(frame)) is not None:
                stack.append(span)
            frame = frame.f_back
        del frame
        stack.reverse()
        return stack

    def _span(self, frame: FrameType) -> ProcessSpan | None:
        """The span of a frame's line; None for a frame of ours."""
        code = frame.f_code
        place = id(code), frame.f_lasti
        if (known := self._places.get(place)) is None:
            known = self._places[place] = code, self._new_span(code, frame.f_lineno)
        return known[1]

    def _new_span(self, code: CodeType, line: int | None) -> ProcessSpan | None:
        if code.co_filename.startswith(_OURS):
            return None
        name = f"{shown_path(code.co_filename)}({line or code.co_firstlineno}): {code.co_name}"
        if name not in self._spans:
            number = self._recorder.names.intern(name, (CATEGORY,))
            self._spans[name] = ProcessSpan(self._recorder, number, _MASK)
        return self._spans[name]


def _num_same(open_spans: list[tuple[ProcessSpan, Any]], stack: list[ProcessSpan]) -> int:
    """How many outermost frames two samples have in common."""
    for place, ((span, _), other) in enumerate(zip(open_spans, stack, strict=False)):
        if span is not other:
            return place
    return min(len(open_spans), len(stack))


def shown_path(path: str) -> str:
    """The path of a source file as traces show it: below the folder from which Python imports it, as Kineto has it."""
    folders = [folder.rstrip(os.sep) + os.sep for folder in (*sys.path, os.getcwd()) if folder]
    inside = [folder for folder in folders if path.startswith(folder)]
    return path[len(max(inside, key=len)) :] if inside else shorten_paths(path)


def sampling_times(interval_ns: int, now: Callable[[], int] = time.monotonic_ns) -> Iterator[int]:
    """When to sample: about every ``interval_ns``, never in the past. Each time is asked for when the last is over.

    Times are irregular, so that no loop keeps step with them. After a delay, samples that were missed are left out.
    """
    random = Random(0)
    asked = now()
    while True:
        yield asked
        asked += round(interval_ns * random.uniform(0.75, 1.25))
        if asked < now():
            asked = now() + round(interval_ns * random.random())
