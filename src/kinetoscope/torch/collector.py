"""torch: Python's garbage collector, at rest while much is built. Nothing flows through here."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kinetoscope.writing.forked_child import after_fork_in_child

_SELDOM = 1_000_003  # new objects between two collections; nobody else takes this number, so it tells that it is ours
_lock = threading.RLock()
_num_inside = 0
_before = gc.get_threshold()


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keeps the collector from going through all objects, again and again, while many are made that will stay.

    Only its thresholds are changed, and put back unless somebody else has set them meanwhile. Whether it is on or off
    is the user's affair, who may switch it on another thread at any moment.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _num_inside, _before
    with _lock:
        _num_inside += 1
        thresholds = gc.get_threshold()
        if 0 < thresholds[0] < _SELDOM:  # at 0 it collects nothing anyway
            _before = thresholds
            gc.set_threshold(_SELDOM, *thresholds[1:])


def _leave() -> None:
    global _num_inside
    with _lock:
        _num_inside -= 1
        if _num_inside == 0 and gc.get_threshold()[0] == _SELDOM:
            gc.set_threshold(*_before)


def _forget_parent() -> None:
    """The threads that had it rest are the parent's."""
    global _lock, _num_inside
    _lock, _num_inside = threading.RLock(), 1
    _leave()


after_fork_in_child(_forget_parent)
