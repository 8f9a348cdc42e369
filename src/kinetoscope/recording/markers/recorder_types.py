"""Types of the recorder: interned names, the records of a closed window, and the interface of its listeners."""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.spool.record import ThreadRecords

_log = logging.getLogger("kinetoscope")
MAX_NAMES = 1 << 16
"""Number of names that a recorder keeps unchanged. In further names digits become #, and only some more are kept."""
_MAX_SHARED_NAMES = 1 << 10
_NUMBER = re.compile(r"\d+")
_OVERFLOW_NAME = "(names beyond the limit)"

NO_NAME = 0xFFFF_FFFF
"""Name id of a span that was never recorded. `Span.intern` returns its id when it first is."""

ACTION_BITS: Mapping[ProfilerAction, int] = {action: 1 << bit for bit, action in enumerate(ProfilerAction)}
"""One bit per action. A span is recorded if its mask has the bit of the current action."""

INSTANT_ON_BEGIN, INSTANT_ON_END = 1, 2
"""Edges of a span at which it also records an instant."""


FRAME_OFFSET_NS = 10
"""Nanoseconds between the starts of a sampled frame and of its callee, so that viewers can nest them."""


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """Records of a window that has closed.

    Attributes:
        threads: moves the records out of the recorder and returns them, on the thread that calls it.
        release: deletes the files that kept the records until they were saved.
        window: the recorder's number of the window; 0 for a recorder that keeps no files.
        closed_ns: the monotonic time at which it closed, in nanoseconds.
        free_memory: reduces the memory of the records until they are saved.
        in_files: whether the records are in files.
        num_written: the number of records and track marks of this process in files.
        flush_to_disk: writes records that are in memory only to the spool folder, as far as the disk has space, and
            returns the number of records that remain in memory only.
    """

    threads: Callable[[], list[ThreadRecords]]
    release: Callable[[], object] = lambda: None
    window: int = 0
    closed_ns: int = 0
    free_memory: Callable[[], object] = lambda: None
    in_files: bool = False
    num_written: int | None = None
    flush_to_disk: Callable[[], int] = lambda: 0


PROFILER_CATEGORY = "kinetoscope"
"""Category of spans that show the profiler's own work."""


@dataclass(frozen=True, slots=True)
class SpanName:
    """Meaning of a name id. Every event with the name has ``args`` among its args."""

    name: str
    categories: tuple[str, ...] = ()
    args: tuple[tuple[str, str | int], ...] = ()


_Key = tuple[str, tuple[str, ...], tuple[tuple[str, str | int], ...]]


@dataclass(slots=True)
class NameTable:
    """Interned names: each name, with its categories and args, gets a small number that never changes.

    ``on_new`` is called after each new name. After `MAX_NAMES`, names that differ only in their digits share a number.
    """

    names: list[SpanName] = field(default_factory=list)
    on_new: Callable[[], None] | None = None
    _ids: dict[_Key, int] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    def reset_in_child(self) -> None:
        """Drop ``on_new`` in a forked child, and the lock, which a thread of the parent may have held."""
        self.on_new = None
        self._lock = threading.RLock()

    def subscribe(self, on_new: Callable[[], None]) -> None:
        """Call ``on_new`` after each new name from now on, and once now for the names so far."""
        with self._lock:
            self.on_new = on_new
            on_new()

    def intern(self, name: str, categories: tuple[str, ...] = (), args: tuple[tuple[str, str | int], ...] = ()) -> int:
        """Return the id of a name, the same each time."""
        key: tuple[Any, ...] = name, categories, args
        known_id = self._ids.get(key)
        if known_id is not None:
            return known_id
        with self._lock:
            if key not in self._ids and len(self.names) >= MAX_NAMES:
                key = self._make_shared_key(*key)
            if key not in self._ids:
                self._ids[key] = self._add(SpanName(*key))
                if self.on_new is not None:
                    self.on_new()
            return self._ids[key]

    def _add(self, name: SpanName) -> int:
        """Add a name and return its number. A finalizer or signal handler may add others right before and after it."""
        self.names.append(name)
        return next(number for number in reversed(range(len(self.names))) if self.names[number] is name)

    def _make_shared_key(self, name: str, categories: tuple[str, ...], args: tuple[tuple[str, str | int], ...]) -> _Key:
        """Return the key of a new name when no numbers are left for new names."""
        if len(self.names) == MAX_NAMES:
            _log.warning(
                "%d different names were recorded; %r is one more. From now on, digits in new names become #. Use one "
                "name, and put the changing part into a counter.",
                MAX_NAMES,
                name,
            )
        shared = _NUMBER.sub("#", name), categories, args
        is_kept = shared in self._ids or len(self.names) < MAX_NAMES + _MAX_SHARED_NAMES
        return shared if is_kept else (_OVERFLOW_NAME, (), ())


class SpanListener(Protocol):
    """Listener to each recorded span, instant and counter, called on the thread that records it."""

    def on_begin(self, name: int, begin_ns: int, entry: Any) -> None:
        """Handle the start of a span."""
        ...

    def on_end(self, name: int, end_ns: int, entry: Any) -> None:
        """Handle the end of a span."""
        ...

    def on_instant(self, name: int, now_ns: int) -> None:
        """Handle an instant."""
        ...

    def on_counter(self, name: int, now_ns: int, values: Mapping[str, int | float]) -> None:
        """Handle the values of a counter."""
        ...
