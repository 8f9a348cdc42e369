"""Progress line for people who wait while a run is saved."""

import time
from collections.abc import Callable
from typing import ParamSpec

from kinetoscope.core.text.wording import format_count
from kinetoscope.recording.messages.console import find_message_sink

P = ParamSpec("P")
_FIRST_LINE_AFTER_S = 5.0
_SAVING_S_PER_RECORD = 1e-6
"""Writing a span took 0.5 us of CPU on an idle machine (4 million spans), and its share of the search for findings the
same again."""
_SAVING_S_PER_STOP_S = 1.0
"""Time to save the results of a source, per second that its stop took. For Kineto it was 0.6 to 0.8 with 80,000 to 2.3
million operators, and 2 with 1,000."""
_MIN_STOP_S = 0.5  # a shorter stop gives no estimate
_MILLION = 1_000_000


class SavingProgress:
    """Report once that saving takes long, on the thread that calls `report`.

    ``num_records`` returns the number of records that are being saved, as far as it is known.
    """

    def __init__(self, num_records: Callable[[], int], *, is_quiet: bool) -> None:
        self._num_records, self._is_quiet = num_records, is_quiet
        self._started_s = self._estimated_end_s = time.monotonic()
        """Estimated time at which the results of all stopped sources are saved."""
        self._sources_closed_s: float | None = None
        self._has_results = False
        self._num_lines = 0
        self._is_over = False

    def start(self) -> None:
        """Mark the start of saving."""
        self._started_s = time.monotonic()

    def time_source_stop(self, stop: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Call ``stop``, in which sources end a window, and add its duration with `add_source_stop`."""
        started_s = time.monotonic()
        stop(*arguments, **options)
        self.add_source_stop(time.monotonic() - started_s)

    def add_source_stop(self, took_s: float) -> None:
        """Add a stop of the sources that took ``took_s`` seconds: saving their results takes about as long."""
        if took_s >= _MIN_STOP_S:
            self._estimated_end_s = max(self._estimated_end_s, time.monotonic()) + _SAVING_S_PER_STOP_S * took_s
            self._has_results = True

    def mark_sources_closed(self) -> None:
        """Mark the end of the last stop of the sources. From now on the rest of the close can be estimated."""
        self._sources_closed_s = time.monotonic()

    def end(self) -> None:
        """Mark the end of saving."""
        self._is_over = True

    def report(self) -> None:
        """Report slow saving: after 5 s, and once more if an estimate is possible only later."""
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
        if not num_records or self._has_results:  # Kineto has most events, and does not count them
            return "what was recorded"
        return (
            f"{num_records / _MILLION:,.1f} M events" if num_records >= _MILLION else format_count(num_records, "event")
        )

    def _seconds_left(self, now_s: float) -> float | None:
        """Return the estimated seconds left; None while the sources stop, and after the estimated end."""
        if self._sources_closed_s is None:
            return None
        left_s = max(self._estimated_end_s, self._sources_closed_s) + _SAVING_S_PER_RECORD * self._num_records() - now_s
        return left_s if left_s > 0 else None
