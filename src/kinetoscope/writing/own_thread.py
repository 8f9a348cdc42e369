"""Our own threads, which are kept out of recordings of Python frames, and what happens in a forked child.

When a recording has stacks, Python calls torch at every call and return on every thread, ours too. Our threads write
what is recorded, so the recording would record itself. `spare_own_threads` removes torch's function from our threads.
"""

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("kinetoscope")

_api = ctypes.pythonapi

_state_of_this_thread: Any = _api.PyThreadState_Get

_state_of_this_thread.restype = ctypes.c_void_p

# What `sys.setprofile` and torch itself call, exported for CPython's own extension modules: in 3.11 to 3.14 at least.
_set_profile: Any = getattr(_api, "_PyEval_SetProfile", None)


if _set_profile is not None:
    _set_profile.argtypes = [ctypes.c_void_p] * 3

_lock = threading.Lock()

_states: dict[int, int] = {}
"""Of each of our threads that runs: its ident, and the address of what the interpreter knows of it."""


def after_fork_in_child(action: Callable[[], object]) -> None:
    """Calls ``action`` first thing in every process that is forked from now on, and in what that forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


class OwnThread(threading.Thread):
    """A daemon thread that calls ``target``: so that one which hangs cannot keep the process alive."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def run(self) -> None:
        ident = threading.get_ident()
        with _lock:
            _states[ident] = _state_of_this_thread()
        try:
            super().run()
        finally:
            with _lock:  # while it is held nobody uses the address, which soon is none
                del _states[ident]


def spare_own_threads() -> None:
    """Takes whatever function `sys.setprofile`, or its like in C, has set off all of our threads."""
    if _set_profile is None:
        return
    with _lock:
        for state in _states.values():
            try:
                _set_profile(state, None, None)
            except Exception as error:  # an audit hook of somebody's refuses: then our frames are recorded
                _log.debug("Our threads are recorded as well: %r", error)


def _forget_parent() -> None:
    """None of our threads is there any more, and one of them may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _states.clear()


after_fork_in_child(_forget_parent)
