"""sources: which lines of Python the training loop spends its time in, sampled on a thread of its own."""

import threading
import time
from functools import partial

from kinetoscope.errors import SettingsError
from kinetoscope.recording.contract import RunInside
from kinetoscope.recording.recorder_choice import ProcessRecorder
from kinetoscope.recording.schedule import ProfilerAction
from kinetoscope.sources.stack_spans import TRACK, StackSpans, sampling_times
from kinetoscope.training.event import Callback
from kinetoscope.training.state import RunState
from kinetoscope.writing.own_thread import OwnThread

_JOIN_S = 5.0
_NS = 1_000_000_000


class StackSampler(Callback):
    """Records about every ``interval_ms`` which line of Python the training loop is at, and who called it.

    The samples are nested spans of category ``stack_sample`` on a track of their own, ``samples of MainThread``, named
    as Kineto's frames are, with the line that was executing: ``train.py(41): loss``. Frames of ours are left out.
    Samples are taken while a window records, and never otherwise. They are estimates: what takes less than a few
    intervals in all may be missing. `docs/how-it-works.md` has what it costs.

    Raises `SettingsError` for an interval that is not positive.
    """

    def __init__(self, interval_ms: float = 10.0) -> None:
        if not interval_ms > 0:
            raise SettingsError(f"interval_ms must be above 0, but is {interval_ms}.")
        self.interval_ms = interval_ms
        self._recording = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def fit_start(self, state: RunState, logger: object) -> None:
        if self._thread is None:
            self._closing.clear()
            loop = threading.current_thread()
            job = partial(self._sample, state.profiler.run, threading.get_ident())
            self._thread = OwnThread(job, TRACK.format(loop.name))
            self._thread.start()
        self._follow(state)

    def epoch_start(self, state: RunState, logger: object) -> None:
        self._follow(state)

    def batch_start(self, state: RunState, logger: object) -> None:
        self._follow(state)

    def batch_end(self, state: RunState, logger: object) -> None:
        self._follow(state)

    def _follow(self, state: RunState) -> None:
        """Samples from now on, or no longer, as the action of the next batch says."""
        is_recording = state.profiler.get_action() is not ProfilerAction.SKIP
        if is_recording and not self._recording.is_set():
            self._recording.set()
        elif not is_recording and self._recording.is_set():
            self._recording.clear()

    def close(self, state: RunState, logger: object) -> None:
        self._closing.set()
        self._recording.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
            if self._thread.is_alive():
                state.profiler.run.report("Sampling the loop's stack does not end; its thread is left running.")
            self._thread = None
        self._recording.clear()

    def _sample(self, run: RunInside, ident: int) -> None:
        try:
            while not self._closing.is_set():
                self._recording.wait()
                self._sample_window(run.recorder, StackSpans(run.recorder, ident))
        except Exception as error:  # such as an audit hook that refuses; training must not hear of it
            run.report(f"The loop's stack is not sampled any more: {type(error).__name__}: {error}")

    def _sample_window(self, recorder: ProcessRecorder, spans: StackSpans) -> None:
        for asked_ns in sampling_times(round(self.interval_ms * 1e6)):
            self._closing.wait(max(0, asked_ns - time.monotonic_ns()) / _NS)
            if self._closing.is_set() or not self._recording.is_set():
                break
            if recorder.action:
                spans.sample(asked_ns)
            else:
                spans.end(asked_ns)
        spans.end(time.monotonic_ns())
