"""Background threads, which are kept out of recordings of Python frames.

When a recording has stacks, Python calls torch at every call and return on every thread. Background threads write what
is recorded, so the recording would record itself. `unprofile_background_threads` removes torch's function from them.
"""

import ctypes
import logging
import threading
from collections.abc import Callable
from typing import Any

from kinetoscope.core.background.fork_resets import reset_after_fork
from kinetoscope.core.background.private_names import find_set_profile

_log = logging.getLogger("kinetoscope")

_current_thread_state: Any = ctypes.pythonapi.PyThreadState_Get

_current_thread_state.restype = ctypes.c_void_p

_lock = threading.Lock()

_states: dict[int, int] = {}
"""The address of the interpreter state of each running thread of ours, by its ident."""


class BackgroundThread(threading.Thread):
    """A daemon thread that calls ``target``; a daemon that hangs cannot keep the process alive."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def try_start(self, consequence: str, log: Callable[[str], object] = _log.warning) -> bool:
        """Start the thread; return False if the system allows no more threads.

        Args:
            consequence: the sentence that is logged in that case. Training continues.
            log: the function that logs it.
        """
        try:
            self.start()
        except RuntimeError as error:
            log(f"{consequence}: {error}.")
            return False
        return True

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, if it was started."""
        if self.ident is not None:
            super().join(timeout)

    def run(self) -> None:
        """Run ``target``, while the thread is listed for `unprofile_background_threads`."""
        ident = threading.get_ident()
        with _lock:
            _states[ident] = _current_thread_state()
        try:
            super().run()
        finally:
            with _lock:  # the address, which becomes invalid, is only used under the lock
                _states.pop(ident, None)  # a child that this thread has forked has forgotten it


def unprofile_background_threads() -> None:
    """Remove the profile function, set by `sys.setprofile` or in C, from all background threads."""
    set_profile = find_set_profile()
    if set_profile is None:
        return
    with _lock:
        for state in _states.values():
            try:
                set_profile(state, None, None)
            except Exception as error:  # an audit hook may refuse: then our frames are recorded
                _log.debug("Our threads are recorded as well: %r", error)


@reset_after_fork
def _clear_threads() -> None:
    """Clear the list of threads. None of them runs in a forked child, and one may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _states.clear()
