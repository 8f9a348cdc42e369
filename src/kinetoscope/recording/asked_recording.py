"""A recording that somebody has asked for from outside, by `kinetoscope record`."""

import time
from collections import deque

from kinetoscope.formats.record_request import RecordRequest
from kinetoscope.pulse.layout import Asked
from kinetoscope.pulse.own_pulse import OwnPulse
from kinetoscope.recording.schedule import ProfilerAction

_MOST_AN_HOUR, _HOUR_S = 20, 3600.0
_MOST_POSTPONED = 1000
_ACTIVE, _SAVE, _SKIP = ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE, ProfilerAction.SKIP


class AskedRecording:
    """Takes one request at a time, and says which of the run's steps it wants. The pulse tells what became of it.

    `take` is called on another thread than the rest.
    """

    def __init__(self, pulse: OwnPulse, rank: int) -> None:
        self._pulse, self._rank = pulse, rank
        self._taken = deque[float](maxlen=_MOST_AN_HOUR)
        self._is_warm = self._has_begun = False
        self._first_step = 0
        """The first step of the last one, later than was asked if the schedule has a window there."""
        self._last: RecordRequest | None = None
        """The last one that was taken or refused, of which the pulse tells."""
        self.request: RecordRequest | None = None
        """What is asked for and not over. While there is one, no step is only counted."""

    def take(self, request: RecordRequest) -> None:
        """Takes a request, unless it is of other ranks, or another one is not over, or there were 20 in an hour."""
        if self.request is not None or not request.is_for(self._rank):
            return
        now_s, self._last, self._first_step = time.monotonic(), request, request.first_step
        if len(self._taken) == _MOST_AN_HOUR and now_s - self._taken[0] < _HOUR_S:
            self._note(request, Asked.REFUSED)
            return
        self._taken.append(now_s)
        self._note(request, Asked.WAITS)
        self.request = request
        self._pulse.count_no_more()  # the last step that was to be counted only is the one that runs

    def action(self, batch: int, own: ProfilerAction) -> ProfilerAction:
        """The action of a batch, for which the run's own schedule says ``own``. A window of the schedule's that is open
        is left alone: then the first step is the second one after it."""
        request = self.request
        if request is None or batch < self._first_step - 1:
            return own
        if self._has_begun and batch >= self._first_step + request.num_steps:
            return own  # its window is about to close
        if not (self._is_warm or self._has_begun):
            if batch > self._first_step:
                return self._give_up(request, Asked.LATE, own)
            if own is not _SKIP:
                return self._postpone(request, batch, own)
        if batch < self._first_step:
            self._is_warm = True
            return ProfilerAction.WARMUP
        if not self._has_begun:
            self._has_begun = True
            self._note(request, Asked.RECORDS)
        return _ACTIVE if batch < self._first_step + request.num_steps - 1 else _SAVE

    def _postpone(self, request: RecordRequest, batch: int, own: ProfilerAction) -> ProfilerAction:
        """All ranks have the same schedule, and so come to the same first step."""
        if batch - request.first_step > _MOST_POSTPONED:
            return self._give_up(request, Asked.REFUSED, own)
        self._first_step = batch + 2
        self._note(request, Asked.WAITS)
        return own

    def closed(self) -> RecordRequest | None:
        """A window has closed: the request whose steps are in it, which is over; None if there is none."""
        if not self._has_begun:
            return None
        request, self.request = self.request, None
        self._is_warm = self._has_begun = False
        return request

    def saved(self, request: RecordRequest) -> None:
        """The trace with its steps is saved."""
        self._note(request, Asked.SAVED)

    def _give_up(self, request: RecordRequest, why: Asked, own: ProfilerAction) -> ProfilerAction:
        self.request, self._is_warm = None, False
        self._note(request, why)
        return own

    def _note(self, request: RecordRequest, asked: Asked) -> None:
        if request is self._last:
            self._pulse.note_asked(request.sequence, asked, self._first_step)
