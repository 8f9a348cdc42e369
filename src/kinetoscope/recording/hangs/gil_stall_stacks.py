"""The stacks of all threads where the GIL is held, beside the pulse."""

import faulthandler
import os
import signal
from contextlib import suppress

from kinetoscope.pulse.own_pulse import OwnPulse
from kinetoscope.pulse.stuck_phases import STACKS_SUFFIX

_SIGNAL = getattr(signal, "SIGRTMAX", 0) - 7
"""One that nobody else is known to use; negative where a system has none to spare."""


class GilStallStacks:
    """Has faulthandler write all stacks if something holds the GIL: the pulse's thread in C sends itself a signal.

    Stacks must not be read while Python runs, so faulthandler's timer is no way: it also ends when a process that was
    stopped goes on, and was seen to end it with a segmentation fault then.
    """

    def __init__(self, pulse: OwnPulse) -> None:
        self._pulse = pulse
        self._file: int | None = None

    def start(self) -> None:
        """Begins, once the pulse is watched, unless other code uses the signal."""
        if _SIGNAL <= 0 or signal.getsignal(_SIGNAL) != signal.SIG_DFL:
            return
        with suppress(OSError):
            self._file = self._pulse.open_beside(STACKS_SUFFIX)
        if self._file is not None:
            faulthandler.register(_SIGNAL, self._file, all_threads=True)
            self._pulse.writer.signal_if_held(_SIGNAL)

    def stop(self) -> None:
        """Ends it; a file in which nothing was written is deleted."""
        file, self._file = self._file, None
        if file is None:
            return
        if (writer := self._pulse.writer) is not None:
            writer.signal_if_held(0)
        faulthandler.unregister(_SIGNAL)
        is_empty = os.fstat(file).st_size == 0
        os.close(file)
        if is_empty:
            with suppress(OSError):
                self._pulse.delete_beside(STACKS_SUFFIX)
