"""Our own threads, which are kept out of recordings of Python frames, and what happens in a forked child.

When a recording has stacks, Python calls torch at every call and return on every thread, ours too. Our threads write
what is recorded, so the recording would record itself. `spare_own_threads` removes torch's function from our threads.
"""

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("kinetoscope")

_api = ctypes.pythonapi

_state_of_this_thread: Any = _api.PyThreadState_Get

_state_of_this_thread.restype = ctypes.c_void_p

# The function that `sys.setprofile` and torch call. CPython exports it for its own extension modules and may change it
# in any version, so only versions with which it was tried call it. With others our threads are recorded as well.
_TRIED = range(11, 15)  # of CPython 3
_is_tried = sys.implementation.name == "cpython" and sys.version_info[0] == 3 and sys.version_info[1] in _TRIED
_set_profile: Any = getattr(_api, "_PyEval_SetProfile", None) if _is_tried else None

if _set_profile is not None:
    _set_profile.argtypes = [ctypes.c_void_p] * 3

_lock = threading.Lock()

_states: dict[int, int] = {}
"""Of each of our running threads: its ident, and the address of its interpreter state."""


def after_fork_in_child(action: Callable[[], object]) -> None:
    """Calls ``action`` first in every process that is forked from now on, and in that process's children."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


class OwnThread(threading.Thread):
    """A daemon thread that calls ``target``. A daemon that hangs cannot keep the process alive."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def run(self) -> None:
        ident = threading.get_ident()
        with _lock:
            _states[ident] = _state_of_this_thread()
        try:
            super().run()
        finally:
            with _lock:  # nobody uses the address, which becomes invalid, while the lock is held
                del _states[ident]


def spare_own_threads() -> None:
    """Removes the profile function, set by `sys.setprofile` or in C, from all of our threads."""
    if _set_profile is None:
        return
    with _lock:
        for state in _states.values():
            try:
                _set_profile(state, None, None)
            except Exception as error:  # an audit hook may refuse: then our frames are recorded
                _log.debug("Our threads are recorded as well: %r", error)


def _forget_parent() -> None:
    """In a forked child: none of our threads runs any more, and one of them may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _states.clear()


after_fork_in_child(_forget_parent)
