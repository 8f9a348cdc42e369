"""recording: how long a thread ran, was blocked, or had no processor, for machines without the recorder in C."""

import contextlib
import os
import threading
import time


class ThreadClocks:
    """The clocks of the thread that makes it. ``schedstat`` is the path of the file in which Linux counts how long that
    thread was ready without a processor; where it cannot be read, that is not known."""

    _file: int | None = None

    def __init__(self, schedstat: str, /) -> None:
        self._thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            self._file = os.open(schedstat, os.O_RDONLY)
        self._last = self._times()

    def read(self) -> dict[str, int] | None:
        """The nanoseconds since the last reading: ``running_ns``, ``starved_ns`` (ready, but without a processor) and
        ``blocked_ns`` (all other time); ``waiting_ns`` instead of the last two where they are not told apart. None on
        another thread, in a forked child, and after `close`."""
        if threading.get_native_id() != self._thread:
            return None
        (last_now_ns, last_ran_ns, last_delay_ns), self._last = self._last, self._times()
        now_ns, ran_ns, delay_ns = self._last
        running_ns = ran_ns - last_ran_ns
        rest_ns = max(0, now_ns - last_now_ns - running_ns)
        if delay_ns is None or last_delay_ns is None:
            return {"running_ns": running_ns, "waiting_ns": rest_ns}
        starved_ns = min(rest_ns, max(0, delay_ns - last_delay_ns))
        return {"running_ns": running_ns, "starved_ns": starved_ns, "blocked_ns": rest_ns - starved_ns}

    def close(self) -> None:
        """Closes the file."""
        self._thread = 0
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __del__(self) -> None:
        self.close()

    def _times(self) -> tuple[int, int, int | None]:
        return time.monotonic_ns(), time.thread_time_ns(), self._delay_ns()

    def _delay_ns(self) -> int | None:
        if self._file is None:
            return None
        try:
            second = os.pread(self._file, 127, 0).split(b" ", 2)[1]
        except (OSError, IndexError):
            return None
        return int(second) if second.isdigit() else None
