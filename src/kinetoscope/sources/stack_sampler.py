"""sources: which lines of Python the training loop spends its time in, and whether it runs or waits there."""

import threading
from functools import partial
from typing import Any

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.formats.own_names import SAMPLES_TRACK
from kinetoscope.recording.private_names import frames_of_threads
from kinetoscope.recording.run.plugin_api import ProfiledState, RunContext
from kinetoscope.recording.run.settings import check_number
from kinetoscope.sources.loop_clocks import LoopClocks
from kinetoscope.sources.stack_spans import StackSpans
from kinetoscope.sources.window_source import WindowSource
from kinetoscope.sources.worker_sampler import WorkerSampling

_JOIN_S = 5.0


class StackSampler(WindowSource):
    """Records about every ``interval_ms`` which line of Python the training loop is at, and who called it.

    The samples are nested spans of category ``stack_sample`` on a track of their own, ``samples of MainThread``, named
    as Kineto's frames are, with the line that was executing: ``train.py(41): loss``. Frames of ours are left out, and
    those of libraries have the second category ``library``. Samples are taken while a window is open, and never
    otherwise. They are estimates: what takes less than a few intervals in all may be missing. On Linux,
    a span of category ``stack_sample,state`` below the lines says what the thread waits for.

    The counter ``loop thread`` and the instant ``processors`` of `SystemProfiler` are recorded too.

    With ``workers``, workers of torch's DataLoaders that are started during the run are sampled as well, by a thread in
    each; their tracks are called ``DataLoader worker 0: samples of MainThread``.

    Raises `SettingsError` for an interval below 0.01 ms or above a day.
    """

    def __init__(self, interval_ms: float = 10.0, workers: bool = True) -> None:
        super().__init__()
        check_number(interval_ms, "interval_ms", "milliseconds", min_value=0.01, max_value=86_400_000)
        self.interval_ms: float = interval_ms
        self.workers: bool = workers
        self._worker_sampling: WorkerSampling | None = None
        self._thread: BackgroundThread | None = None
        self._spans: StackSpans | None = None
        self._clocks: LoopClocks | None = None

    def fit_start(self, state: RunState, logger: Any) -> None:
        if self.workers and self._worker_sampling is None:
            self._worker_sampling = WorkerSampling(self.interval_ms)
            self._worker_sampling.install()

    def close(self, state: RunState, logger: Any) -> None:
        super().close(state, logger)
        worker_sampling, self._worker_sampling = self._worker_sampling, None
        if worker_sampling is not None:
            worker_sampling.remove()

    def install(self, run: RunContext) -> None:
        self._clocks = LoopClocks.open(run)
        if frames_of_threads.find() is None:
            return
        native_id = threading.get_native_id()  # after `os.fork`, the main thread's attribute is still its parent's
        self._spans = StackSpans(run.recorder, threading.get_ident(), self.interval_ms, native_id=native_id)
        name = SAMPLES_TRACK.format(threading.current_thread().name)
        self._thread = BackgroundThread(partial(_sample, run, self._spans), name)
        self._thread.try_start("The loop's stack is not sampled", run.report)

    @skippable
    def batch_end(self, state: ProfiledState, logger: Any) -> None:
        if self._clocks is not None:
            self._clocks.read(state.profiler)

    def finish(self, run: RunContext) -> None:
        if self._clocks is not None:
            self._clocks.record_cpu_use()

    def remove(self) -> None:
        clocks, self._clocks = self._clocks, None
        if clocks is not None:
            clocks.close()
        thread, self._thread = self._thread, None
        spans, self._spans = self._spans, None
        if thread is not None and spans is not None:
            spans.stop()
            thread.join(_JOIN_S)


def _sample(run: RunContext, spans: StackSpans) -> None:
    try:
        spans.run_until(lambda: False)
    except Exception as error:  # such as an audit hook that refuses; training must not hear of it
        run.report(f"The loop's stack is not sampled any more: {type(error).__name__}: {error}")
