"""Stack samples of DataLoader workers, each taken by a thread in the worker's process."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.util import Finalize
from types import CodeType
from typing import Any

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.background.private_names import find_all
from kinetoscope.formats.trace_names import SAMPLES_TRACK
from kinetoscope.hooks.patching import ReplacedMethod
from kinetoscope.recording.markers import marker
from kinetoscope.recording.private_names import frames_of_threads
from kinetoscope.sources.private_names import worker_loop
from kinetoscope.sources.stack_spans import StackSpans

_log = logging.getLogger("kinetoscope")
_JOIN_S = 1.0


class WorkerSampling:
    """While installed, start a sampler in each new worker of torch's DataLoaders, with ``interval_ms`` milliseconds.

    `DataLoader.__iter__`, which starts workers, is replaced; during that call, sampling is started in front of the
    loader's ``worker_init_fn``. Without torch, nothing happens.
    """

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._patch: ReplacedMethod | None = None

    def install(self) -> None:
        """Replace `DataLoader.__iter__`, if torch's DataLoader is loaded."""
        kind: Any = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
        if kind is None or self._patch is not None:
            return
        if find_all(worker_loop, frames_of_threads) is not None:
            self._patch = ReplacedMethod(kind, "__iter__", self._iterate)

    def remove(self) -> None:
        """Restore `DataLoader.__iter__`; workers that run are sampled until their run ends."""
        if self._patch is not None:
            self._patch.restore()

    def _iterate(self, original: Callable[[Any], Any], loader: Any) -> Any:
        """Call `DataLoader.__iter__`, which starts the workers."""
        if not getattr(loader, "num_workers", 0):
            return original(loader)
        try:
            user_init = loader.worker_init_fn
            loader.worker_init_fn = SamplingInit(user_init, self._interval_ms, worker_loop.find())
        except Exception as error:  # a loader of another library
            _log.debug("Cannot sample the workers of %r: %r", type(loader), error)
            return original(loader)
        try:
            return original(loader)
        finally:
            loader.worker_init_fn = user_init


@dataclass(frozen=True)
class SamplingInit:
    """A ``worker_init_fn`` that starts to sample the worker, and then calls the user's function, if any.

    Attributes:
        loop: Function that the worker runs. Outside it, a forked worker has its parent's frames.
    """

    user_init: Callable[[int], object] | None
    interval_ms: float
    loop: Callable[..., object]

    def __call__(self, worker: int) -> None:
        """Start to sample this worker, then call the user's function."""
        try:
            _start_sampling(self.interval_ms, self.loop.__code__)
        except Exception as error:  # the worker must work without samples too
            _log.debug("Cannot sample worker %d: %r", worker, error)
        if self.user_init is not None:
            self.user_init(worker)


def _start_sampling(interval_ms: float, outermost: CodeType) -> None:
    """Sample the calling thread inside this code until the process, or the parent's run, ends."""
    recorder = marker.current_library_recorder()
    run_file = getattr(recorder, "followed_run_file", None)
    if run_file is not None:
        ident, native_id = threading.get_ident(), threading.get_native_id()
        spans = StackSpans(recorder, ident, interval_ms, outermost, native_id)
        thread = BackgroundThread(
            partial(_sample, spans, run_file), SAMPLES_TRACK.format(threading.current_thread().name)
        )
        thread.start()
        Finalize(None, _stop_sampling, (spans, thread), exitpriority=0)


def _stop_sampling(spans: StackSpans, thread: threading.Thread) -> None:
    """End the open spans of the worker's last sample."""
    spans.stop()
    thread.join(_JOIN_S)


def _sample(spans: StackSpans, run_file: str) -> None:
    try:
        spans.run_until(lambda: not os.path.exists(run_file))
    except Exception as error:  # such as a deleted folder; it must not reach the worker
        _log.debug("Sampling of a DataLoader worker stopped: %r", error)
