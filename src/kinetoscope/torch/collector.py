"""torch: Python's garbage collector, at rest while much is built. Nothing flows through here."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keeps the collector from going through all objects, again and again, while many are made that will stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
