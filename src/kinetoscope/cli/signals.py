"""Waiting until Ctrl-C, or a signal to end."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from queue import Empty, SimpleQueue

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_POLL_S = 0.1


@contextmanager
def catch_signals() -> "Iterator[SimpleQueue[int]]":
    """Yield a queue of received signals: Ctrl-C and signals to end. Later ones do not disturb the shutdown."""
    received: SimpleQueue[int] = SimpleQueue()  # its put() is safe in a signal handler
    numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: received.put(number)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_signal(received: "SimpleQueue[int]", timeout_s: float = inf) -> bool:
    """Wait until the queue has a signal; return False after a timeout.

    It polls: a signal that comes just before a wait does not end that wait.
    """
    until = time.monotonic() + timeout_s
    while (left_s := until - time.monotonic()) > 0:
        with suppress(Empty):
            received.get(timeout=min(_POLL_S, left_s))
            return True
    return not received.empty()
