"""On-demand recordings, which `kinetoscope record` requests from another process."""

import time
from collections import deque
from functools import partial

from kinetoscope.formats.record_request import RecordRequest
from kinetoscope.pulse.layout import RequestState
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.window.triggered_window import Progress, TriggeredWindow

_MAX_PER_HOUR, _HOUR_S = 20, 3600.0
_IN_PULSE = {
    Progress.WAITING: RequestState.WAITS,
    Progress.RECORDING: RequestState.RECORDS,
    Progress.LATE: RequestState.LATE,
    Progress.BLOCKED: RequestState.REFUSED,
}


class OnDemandRecording:
    """Accept one request at a time, and open a `TriggeredWindow` for it. The pulse has its progress.

    `accept` is called on another thread than the rest.
    """

    def __init__(self, pulse: PulseRecorder, rank: int) -> None:
        self._pulse, self._rank = pulse, rank
        self._accepted = deque[float](maxlen=_MAX_PER_HOUR)
        self._last: RecordRequest | None = None
        """Last request that was accepted or refused, which the pulse reports."""
        self._first_step = 0
        self._window: TriggeredWindow | None = None
        self.request: RecordRequest | None = None
        """Request that is not complete. While there is one, steps are not only counted."""

    def accept(self, request: RecordRequest) -> None:
        """Accept a request, unless it is for other ranks, another one is not complete, or there were 20 in an hour."""
        if self.request is not None or not request.is_for(self._rank):
            return
        now_s, self._last, self._first_step = time.monotonic(), request, request.first_step
        if len(self._accepted) == _MAX_PER_HOUR and now_s - self._accepted[0] < _HOUR_S:
            self._report(request, RequestState.REFUSED)
            return
        self._accepted.append(now_s)
        self._report(request, RequestState.WAITS)
        self._window = TriggeredWindow(
            request.first_step, lambda: request.num_steps, partial(self._report_progress, request)
        )
        self.request = request
        self._pulse.stop_counting()  # the last step that was to be counted only is the one that runs

    def action(self, step: int, planned: ProfilerAction) -> ProfilerAction:
        """Return the action of a step whose ``planned`` action is that of the run's schedule."""
        window = self._window
        return planned if self.request is None or window is None else window.action(step, planned)

    def close_window(self) -> RecordRequest | None:
        """Return the request that is complete with the window which has closed; None if there is none."""
        if self.request is None or self._window is None or not self._window.has_recorded:
            return None
        request, self.request, self._window = self.request, None, None
        return request

    def report_saved(self, request: RecordRequest) -> None:
        """Report that the trace with the steps of a request is saved."""
        self._report(request, RequestState.SAVED)

    def _report_progress(self, request: RecordRequest, window: TriggeredWindow) -> None:
        if window.is_given_up:
            self.request = self._window = None
        self._first_step = window.first_step
        self._report(request, _IN_PULSE[window.progress])

    def _report(self, request: RecordRequest, state: RequestState) -> None:
        if request is self._last:
            self._pulse.record_request_state(request.sequence, state, self._first_step)
