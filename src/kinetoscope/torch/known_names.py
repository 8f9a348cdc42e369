"""torch: names of spans that this process knows. Names flow in; whether Kineto changes them flows out.

To read the true names of a window takes Python's lock for microseconds per event, so it is done only where a name may
have been changed: one that Kineto is known to change was used, or one is in its file that it may have changed.
"""

import re
from collections.abc import Iterable

_CHANGED_BY_KINETO = re.compile(r"[^ !#-\[\]-~]")
UNKNOWN = "unknown"
"""What Kineto writes for a name that is not printable, so that it may always stand for another."""
_MOST = 10_000  # names that are kept

# Globals, because names are the process's: libraries use the same ones in each window.
plain_names: set[str] = set()
"""Names that Kineto is known to write as they are."""
odd_names: set[str] = set()
"""Names that it is known to write otherwise."""


def is_odd(name: str) -> bool:
    """Whether Kineto writes the name otherwise."""
    return _CHANGED_BY_KINETO.search(name) is not None


def note_name(name: str) -> None:
    """Remembers a true name; those that are plain are forgotten when there are too many."""
    if name == UNKNOWN:
        return
    names = odd_names if is_odd(name) else plain_names
    if len(names) >= _MOST:
        plain_names.clear()
    if len(names) < _MOST:
        names.add(name)


def note_names(names: Iterable[str]) -> None:
    """Remembers true names."""
    for name in names:
        note_name(name)
