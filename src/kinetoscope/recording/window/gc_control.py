"""Reduction of Python's garbage collections while many objects are created."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kinetoscope.core.background.fork_resets import reset_after_fork

_RARE_THRESHOLD = 1_000_003  # new objects between two collections; an unusual number, which identifies our setting
_lock = threading.RLock()
_num_inside = 0
_user_thresholds = gc.get_threshold()


@contextmanager
def pause_gc() -> Iterator[None]:
    """Make the garbage collector run rarely inside the block, which creates many objects that will stay.

    Only its thresholds are changed, and restored unless other code has set them meanwhile. The collector is not
    switched off and on, because the user may do that on another thread at any moment.
    """
    _raise_threshold()
    try:
        yield
    finally:
        _lower_threshold()


def _raise_threshold() -> None:
    global _num_inside, _user_thresholds
    with _lock:
        _num_inside += 1
        thresholds = gc.get_threshold()
        if 0 < thresholds[0] < _RARE_THRESHOLD:  # at 0 it never runs anyway
            _user_thresholds = thresholds
            gc.set_threshold(_RARE_THRESHOLD, *thresholds[1:])


def _lower_threshold() -> None:
    global _num_inside
    with _lock:
        _num_inside -= 1
        if _num_inside == 0 and gc.get_threshold()[0] == _RARE_THRESHOLD:
            gc.set_threshold(*_user_thresholds)


@reset_after_fork
def _restore_thresholds() -> None:
    """Restore the thresholds in a forked child, where the parent's other threads do not exist."""
    global _lock, _num_inside
    _lock, _num_inside = threading.RLock(), 1
    _lower_threshold()
