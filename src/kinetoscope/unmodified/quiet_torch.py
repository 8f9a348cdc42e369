"""Records torch's operators without the lines that Kineto writes on stderr when it begins, pauses and ends."""

import re
from typing import Any

from kinetoscope.recording.schedule import ProfilerAction
from kinetoscope.sources.torch_profiler import TorchProfiler
from kinetoscope.training.event import unless_skipped
from kinetoscope.writing.standard_error import lines_left_out

_OF_KINETO = re.compile(
    rb"(USDT|INFO|WARNING|ERROR|STAGE):\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.(cpp|h):\d+\] "
    rb"|ERROR: External init callback must run in same thread as registerClient "
)
"""The last one is written where a loop on another thread than the one that imported torch begins to record."""

_OF_PAUSES = re.compile(rb"(\[rank\d+\]:)?\[W\d{4} \S+ profiler_kineto\.cpp:\d+\] Toggling ")
_RECORDING = ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE


class QuietTorchProfiler(TorchProfiler):
    """A `TorchProfiler` that leaves Kineto's lines out where it begins, pauses and ends to record."""

    _action: object = None

    @unless_skipped
    def batch_end(self, state: Any, logger: object) -> None:
        action, before = state.profiler.get_action(), self._action
        self._action = action
        if action is before:
            super().batch_end(state, logger)
        else:
            with lines_left_out(_OF_KINETO):
                super().batch_end(state, logger)

    def _toggle(self, state: Any, *, is_on: bool) -> None:
        if state.profiler.get_action() not in _RECORDING:
            return super()._toggle(state, is_on=is_on)
        with lines_left_out(_OF_PAUSES):
            return super()._toggle(state, is_on=is_on)

    def close(self, state: Any, logger: object) -> None:
        with lines_left_out(_OF_KINETO):
            super().close(state, logger)
