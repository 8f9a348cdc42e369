"""Stack samples of the training loop: lines of Python, running or waiting."""

import threading
from functools import partial
from typing import Any

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.formats.trace_names import SAMPLES_TRACK
from kinetoscope.recording.private_names import frames_of_threads
from kinetoscope.recording.run.plugin_api import ProfiledState, RunContext
from kinetoscope.recording.run.settings import check_number
from kinetoscope.sources.loop_clocks import LoopClocks
from kinetoscope.sources.stack_spans import StackSpans
from kinetoscope.sources.window_source import WindowSource
from kinetoscope.sources.worker_sampler import WorkerSampling

_JOIN_S = 5.0


class StackSampler(WindowSource):
    """Sample the training loop's Python stack about every ``interval_ms`` milliseconds.

    The samples are nested spans of category ``stack_sample`` on a track of their own, ``samples of MainThread``. They
    are named as Kineto's frames, with the executing line: ``train.py(41): loss``. Kinetoscope's frames are left out;
    library frames have the second category ``library``. Samples are taken only while a window is open. They are
    estimates: a function that takes less than a few intervals in total may be missing. On Linux, a span of category
    ``stack_sample,state`` below the lines names what the thread waits for.

    The counter ``loop thread`` and the instant ``processors`` of `SystemProfiler` are recorded too.

    With ``workers``, DataLoader workers that start during the run are sampled as well, each by its own thread; their
    tracks are called ``DataLoader worker 0: samples of MainThread``.

    Raises:
        SettingsError: The interval is below 0.01 ms or above a day.
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
        """Enable sampling in DataLoader workers that start from now on."""
        if self.workers and self._worker_sampling is None:
            self._worker_sampling = WorkerSampling(self.interval_ms)
            self._worker_sampling.install()

    def close(self, state: RunState, logger: Any) -> None:
        """Stop sampling, also in workers that start later."""
        super().close(state, logger)
        worker_sampling, self._worker_sampling = self._worker_sampling, None
        if worker_sampling is not None:
            worker_sampling.remove()

    def install(self, run: RunContext) -> None:
        """Start the sampling thread of a window."""
        self._clocks = LoopClocks.open(run)
        if frames_of_threads.find() is None:
            return
        native_id = threading.get_native_id()  # after `os.fork`, the attribute of the main thread is its parent's
        self._spans = StackSpans(run.recorder, threading.get_ident(), self.interval_ms, native_id=native_id)
        name = SAMPLES_TRACK.format(threading.current_thread().name)
        self._thread = BackgroundThread(partial(_sample, run, self._spans), name)
        self._thread.try_start("The loop's stack is not sampled", run.report)

    @skippable
    def batch_end(self, state: ProfiledState, logger: Any) -> None:
        """Record the loop thread's clocks."""
        if self._clocks is not None:
            self._clocks.read(state.profiler)

    def finish(self, run: RunContext) -> None:
        """Record the CPU use of the window."""
        if self._clocks is not None:
            self._clocks.record_cpu_use()

    def remove(self) -> None:
        """Stop the sampling thread and close the clocks."""
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
    except Exception as error:  # such as an audit hook that refuses; it must not reach training
        run.report(f"The loop's stack is no longer sampled: {type(error).__name__}: {error}")
