"""Stacks of all threads during a hang that holds the GIL, in a file next to the pulse."""

import faulthandler
import os
import signal
from contextlib import suppress

from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.pulse.stalls import STACKS_SUFFIX

_SIGNAL = getattr(signal, "SIGRTMAX", 0) - 7
"""Signal that no other code is known to use; negative where the system has none to spare."""


class GilStallStacks:
    """Let faulthandler write all stacks if a thread holds the GIL too long: the pulse's thread in C sends the signal.

    The stacks must not be read while Python runs, so faulthandler's timer does not work: it also fires when a suspended
    process resumes, and was seen to crash it with a segmentation fault then.
    """

    def __init__(self, pulse: PulseRecorder) -> None:
        self._pulse = pulse
        self._file: int | None = None

    def start(self) -> None:
        """Register the signal and open the file, unless other code uses the signal. The pulse must be watched."""
        if _SIGNAL <= 0 or signal.getsignal(_SIGNAL) != signal.SIG_DFL:
            return
        with suppress(OSError):
            self._file = self._pulse.open_sibling(STACKS_SUFFIX)
        if self._file is not None:
            faulthandler.register(_SIGNAL, self._file, all_threads=True)
            self._pulse.writer.signal_if_held(_SIGNAL)

    def stop(self) -> None:
        """Unregister the signal, and delete the file if nothing was written."""
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
                self._pulse.delete_sibling(STACKS_SUFFIX)
