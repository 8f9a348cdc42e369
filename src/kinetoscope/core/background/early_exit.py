"""An exit of the process that skips the exit handlers of C and C++, which would hang or crash.

Once Kineto has recorded, the destructors of torch's libraries wait for a thread that does not exist in a forked child,
and read what a thread that still records has freed. Python's own exit handlers run before, and the exit status stays.
"""

import ctypes
import logging
from typing import Any

from kinetoscope.core.background.fork_resets import reset_after_fork

_log = logging.getLogger("kinetoscope")


class EarlyExit:
    """Skips C exit handlers that were registered before a call of `skip_handlers`.

    It needs glibc's ``on_exit``, whose handlers get the exit status. Elsewhere it has no effect.
    """

    def __init__(self) -> None:
        self._functions: tuple[Any, ...] | None = None

    def prepare(self) -> None:
        """Look up the C functions, so that `skip_handlers` has nothing to import or load."""
        if self._functions is None:
            try:
                libc = ctypes.CDLL(None)
                self._functions = tuple(libc[name] for name in ("on_exit", "_exit", "__cxa_atexit", "fflush"))
            except (AttributeError, OSError) as error:
                self._functions = ()
                _log.debug("C exit handlers are not skipped in forked children: %r", error)

    def skip_handlers(self) -> None:
        """End the process at `exit` with its status, once stdio is flushed and what is registered later has run."""
        self.prepare()
        if self._functions:
            on_exit, end, at_exit, flush = self._functions
            on_exit(end, None)  # the last registered runs first
            at_exit(flush, None, None)


early_exit = EarlyExit()


def skip_handlers_in_forks() -> None:
    """Call `EarlyExit.skip_handlers` in every process that is forked from now on. More calls have no effect."""
    early_exit.prepare()
    reset_after_fork(early_exit.skip_handlers)
