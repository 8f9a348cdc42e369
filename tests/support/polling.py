"""Waits in tests for what another thread or process does, instead of for a time."""

import time
from collections.abc import Callable
from typing import Any

MAX_WAIT_S = 120


def wait_for(
    what: Callable[[], Any],
    describe: Callable[[], object] = lambda: "It did not happen in time.",
    *,
    timeout_s: float = MAX_WAIT_S,
    every_s: float = 0.01,
) -> Any:
    """Call ``what`` until its result is true, and return that; fail after ``timeout_s`` with ``describe()``."""
    until = time.monotonic() + timeout_s
    while not (answer := what()):
        assert time.monotonic() < until, describe()
        time.sleep(every_s)
    return answer
