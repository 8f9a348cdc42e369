"""The line for people who wait while a run is saved."""

import time
from collections.abc import Callable
from typing import ParamSpec

from kinetoscope.core.text.wording import format_count
from kinetoscope.recording.messages.console import find_message_sink

P = ParamSpec("P")
_FIRST_LINE_AFTER_S = 5.0
_SAVING_S_PER_RECORD = 1e-6
"""Writing a span took 0.5 us of CPU on an idle machine (4 million spans), and its share of the search for findings as
much again."""
_SAVING_S_PER_STOP_S = 1.0
"""How long a source's results take to be saved, for each second that its stop took. For Kineto it was 0.6 to 0.8 with
80,000 to 2.3 million operators, and 2 with 1,000."""
_MIN_STOP_S = 0.5  # a shorter stop says nothing
_MILLION = 1_000_000


class SavingProgress:
    """Reports once that saving takes long, on the thread that calls `look`.

    ``num_records`` returns how many records are being saved, as far as is known.
    """

    def __init__(self, num_records: Callable[[], int], *, is_quiet: bool) -> None:
        self._num_records, self._is_quiet = num_records, is_quiet
        self._started_s = self._estimated_end_s = time.monotonic()
        """``_estimated_end_s``: when the results of all sources that have stopped are saved, by the estimate."""
        self._sources_closed_s: float | None = None
        self._has_results = False
        self._num_lines = 0
        self._is_over = False

    def start(self) -> None:
        """Note that saving begins."""
        self._started_s = time.monotonic()

    def time_source_stop(self, stop: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Call ``stop``, in which sources end a window: what they collected may still be saved when the run ends."""
        started_s = time.monotonic()
        stop(*arguments, **options)
        self.add_source_stop(time.monotonic() - started_s)

    def add_source_stop(self, took_s: float) -> None:
        """Add a stop of the sources at the end of a window: what they collected takes about as long to be saved."""
        if took_s >= _MIN_STOP_S:
            self._estimated_end_s = max(self._estimated_end_s, time.monotonic()) + _SAVING_S_PER_STOP_S * took_s
            self._has_results = True

    def mark_sources_closed(self) -> None:
        """Note that the last stop is over: from now on the rest of the close can be estimated."""
        self._sources_closed_s = time.monotonic()

    def end(self) -> None:
        """Note that all is saved."""
        self._is_over = True

    def report(self) -> None:
        """Report that saving takes long: after 5 s, and once more if only then an estimate is possible."""
        now_s = time.monotonic()
        seconds_left = self._seconds_left(now_s)
        num_due = 0 if now_s - self._started_s < _FIRST_LINE_AFTER_S else 1 if seconds_left is None else 2
        if self._is_quiet or self._is_over or self._num_lines >= num_due:
            return
        self._num_lines = num_due
        about = "" if seconds_left is None else f", about {max(1, round(seconds_left)):,} s left"
        find_message_sink([]).show(f"saving {self._describe_amount()}{about}.")

    def _describe_amount(self) -> str:
        num_records = self._num_records()
        if not num_records or self._has_results:  # Kineto has most of the events, and does not count them
            return "what was recorded"
        return (
            f"{num_records / _MILLION:,.1f} M events" if num_records >= _MILLION else format_count(num_records, "event")
        )

    def _seconds_left(self, now_s: float) -> float | None:
        """Return an estimate; None while the sources stop, and once it is over."""
        if self._sources_closed_s is None:
            return None
        left_s = max(self._estimated_end_s, self._sources_closed_s) + _SAVING_S_PER_RECORD * self._num_records() - now_s
        return left_s if left_s > 0 else None
