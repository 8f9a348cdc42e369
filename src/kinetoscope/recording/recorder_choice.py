"""Chooses the recorder of this process when it is imported: the one in C, or the one in Python."""

import logging
import os
from typing import TYPE_CHECKING

from kinetoscope.native import is_pure_wanted, native_recorder_module, why_pure_recorder
from kinetoscope.recording.process import this_process

_log = logging.getLogger("kinetoscope")


_native = native_recorder_module()
IS_PURE = _native is None
"""Whether the recorder in Python is used."""

# The processor's time stamp counter is quicker to read.
if _native is not None and os.environ.get("KINETOSCOPE_CLOCK") == "tsc":
    try:
        _native.use_tsc()
    except OSError as error:
        _log.warning("%s CLOCK_MONOTONIC is used.", error)

if TYPE_CHECKING:
    from kinetoscope._native import StackSamples, ThreadClocks
    from kinetoscope.recording.native_recorder import NativeRecorder as ProcessRecorder
    from kinetoscope.recording.native_recorder import NativeSpan as ProcessSpan
elif IS_PURE:
    from kinetoscope.recording.pure_recorder import PureRecorder as ProcessRecorder
    from kinetoscope.recording.pure_recorder import PureSpan as ProcessSpan
    from kinetoscope.recording.pure_stack_samples import StackSamples
    from kinetoscope.recording.pure_thread_clocks import ThreadClocks
else:
    from kinetoscope._native import StackSamples, ThreadClocks
    from kinetoscope.recording.native_recorder import NativeRecorder as ProcessRecorder
    from kinetoscope.recording.native_recorder import NativeSpan as ProcessSpan

__all__ = ["IS_PURE", "SCHEDSTAT", "ProcessRecorder", "ProcessSpan", "StackSamples", "ThreadClocks", "warn_if_pure"]

SCHEDSTAT = "/proc/self/task/{}/schedstat"
"""Where Linux counts how long a thread was ready without a processor, for `ThreadClocks`."""


def warn_if_pure() -> None:
    """Logs once, when a run begins, that the recorder in Python is used."""
    if IS_PURE:
        this_process.once.warn(
            f"The recorder in Python is used: {why_pure_recorder()}. With it a span costs about nine times as much as "
            "with the one in C, and a kill loses unsaved records.",
            level=logging.INFO if is_pure_wanted() else logging.WARNING,
        )
