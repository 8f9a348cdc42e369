"""recording: SIGTERM. What was recorded is saved, and then the process ends as it would have."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class TerminationHandler:
    """Saves on SIGTERM, then lets the signal do what it does. Installed only where nobody else handles it.

    ``save()`` answers False when a save is going on already: then the signal waits until `remove`.

    Python runs signal handlers on the main thread, between two instructions: a process stuck in native code (a
    collective, say) saves nothing this way.
    """

    def __init__(self, save: Callable[[], bool]) -> None:
        self._save = save
        self._installed = False
        self._pending: int | None = None
        self._pid = os.getpid()

    def install(self) -> None:
        """Installs the handler, over the default one only and on the main thread only."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        if on_main_thread and _is_nobodys(signal.getsignal(signal.SIGTERM)):
            signal.signal(signal.SIGTERM, self._on_signal)
            self._installed = True

    def remove(self) -> None:
        """Puts the default handler back, unless somebody has replaced ours in the meantime."""
        if self._installed and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._installed = False
        if self._pending is not None:
            os.kill(os.getpid(), self._pending)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        # A DataLoader worker inherits this handler by fork, and is ended with SIGTERM all the time.
        if os.getpid() == self._pid and not self._save():
            self._pending = number
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _is_nobodys(handler: Any) -> bool:
    """Whether SIGTERM does what it always does: there is no handler, or ours of the process that this one was forked
    from."""
    owner = getattr(handler, "__self__", None)
    is_inherited = isinstance(owner, TerminationHandler) and owner._pid != os.getpid()
    return handler is signal.SIG_DFL or is_inherited
