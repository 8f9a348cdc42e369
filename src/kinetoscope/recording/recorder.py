"""recording: what a recorder is. The pure one in `pure_recorder` and its native twin both have this interface."""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kinetoscope.live.record import ThreadRecords
from kinetoscope.recording.schedule import ProfilerAction

_log = logging.getLogger("kinetoscope")
MOST_NAMES = 1 << 16
"""How many names a recorder keeps as they are; in further ones digits become #, for which there is some more space."""
_MORE_NAMES = 1 << 10
_NUMBER = re.compile(r"\d+")
_ANY_OTHER = "(names beyond the most that are kept)"

NO_NAME = 0xFFFF_FFFF
"""The name id of a span that has not been recorded: it asks for one with `Span.intern` when it is."""

ACTION_BITS: Mapping[ProfilerAction, int] = {action: 1 << bit for bit, action in enumerate(ProfilerAction)}
"""One bit per action. A span is recorded when its mask has the bit of the current action."""

INSTANT_ON_BEGIN, INSTANT_ON_END = 1, 2
"""The edges of a span at which it records an instant as well."""


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """What was recorded in a window that has closed: ``threads`` takes it out of the recorder, on whichever thread
    calls it; ``release`` deletes the files that kept it safe until it was saved. ``window`` is the recorder's number
    for it, and ``closed_ns`` when it closed on the monotonic clock; both are 0 for a recorder that keeps no files.
    ``set_aside`` has it take less space until it is saved; ``in_files`` says whether files keep it safe."""

    threads: Callable[[], list[ThreadRecords]]
    release: Callable[[], object] = lambda: None
    window: int = 0
    closed_ns: int = 0
    set_aside: Callable[[], object] = lambda: None
    in_files: bool = False


@dataclass(frozen=True, slots=True)
class SpanName:
    """What a name id stands for. Every event of the name has ``args`` among its own."""

    name: str
    categories: tuple[str, ...] = ()
    args: tuple[tuple[str, int], ...] = ()


_Key = tuple[str, tuple[str, ...], tuple[tuple[str, int], ...]]


@dataclass(slots=True)
class NameTable:
    """Interned names: each pair of name and categories has one small number for as long as the recorder lives.

    ``on_new`` is told of each new name, in the order of their ids. After `MOST_NAMES`, names that differ only in their
    digits share a number.
    """

    names: list[SpanName] = field(default_factory=list)
    on_new: Callable[[SpanName], None] | None = None
    _ids: dict[_Key, int] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    def forget_parent(self) -> None:
        """In a forked child: nobody is told, and no thread of the parent holds the lock."""
        self.on_new = None
        self._lock = threading.RLock()

    def intern(self, name: str, categories: tuple[str, ...] = (), args: tuple[tuple[str, int], ...] = ()) -> int:
        """The id of a name, the same one every time."""
        key: tuple[Any, ...] = name, categories, args
        known = self._ids.get(key)
        if known is not None:
            return known
        with self._lock:
            if key not in self._ids and len(self.names) >= MOST_NAMES:
                key = self._shared_key(*key)
            if key not in self._ids:
                self.names.append(SpanName(*key))
                self._ids[key] = len(self.names) - 1
                if self.on_new is not None:
                    self.on_new(self.names[-1])
            return self._ids[key]

    def _shared_key(self, name: str, categories: tuple[str, ...], args: tuple[tuple[str, int], ...]) -> _Key:
        """What stands for a name for which there is no number any more."""
        if len(self.names) == MOST_NAMES:
            _log.warning(
                "%d different names were recorded; %r is one more. From here on the digits of new names become #. Use "
                "one name, and put what changes into a counter.",
                MOST_NAMES,
                name,
            )
        shared = _NUMBER.sub("#", name), categories, args
        is_kept = shared in self._ids or len(self.names) < MOST_NAMES + _MORE_NAMES
        return shared if is_kept else (_ANY_OTHER, (), ())


class SpanListener(Protocol):
    """Is told of every recorded span, instant and counter at once, on the thread that records it."""

    def on_begin(self, name: int, begin_ns: int, entry: Any) -> None: ...
    def on_end(self, name: int, end_ns: int, entry: Any) -> None: ...
    def on_instant(self, name: int, now_ns: int) -> None: ...
    def on_counter(self, name: int, now_ns: int, values: Mapping[str, int | float]) -> None: ...


class Recorder(Protocol):
    """Records spans, instants and counters of all threads of this process while a window is open.

    The profiler sets ``action`` (a bit of `ACTION_BITS`, 0 for nothing at all) and ``batch`` once per batch;
    spans read them. ``listener`` is None unless somebody wants to be told at once.
    """

    action: int
    batch: int
    listener: SpanListener | None
    names: NameTable
    keeps_files: bool
    """Whether it can keep what is recorded in files, and so has `NativeRecorder.open_folder`."""

    def open_window(self) -> None:
        """Begins to keep what is recorded."""
        ...

    def close_window(self) -> WindowRecords:
        """Stops keeping, at this nanosecond: spans still open are cut here. Cheap."""
        ...


class Span(Protocol):
    """A reusable span: one object per name, entered as often as one likes, on any thread, recursively too."""

    def attach(self, recorder: Any, name_id: int) -> None:
        """Makes the span record into ``recorder`` from now on."""
        ...

    def intern(self) -> int:
        """For subclasses that begin with `NO_NAME`: the id of the name, which is about to be recorded."""
        ...

    def begin(self) -> Any:
        """Begins a span and returns the token that ends it, on any thread; None if it is not recorded."""
        ...

    def end(self, token: Any) -> None:
        """Ends the span that ``begin`` began; does nothing for None or a token ended before."""
        ...

    def abandon(self, token: Any) -> None:
        """Forgets a span that was begun: it turned out to be none."""
        ...

    def __enter__(self) -> Any: ...
    def __exit__(self, *exception: object) -> None: ...

    def instant(self) -> None:
        """Records this moment."""
        ...

    def counter(self, values: Any) -> None:
        """Records values at this moment: a mapping of names to numbers, or one number."""
        ...

    def plain_values(self, values: Any) -> dict[str, int | float]:
        """For subclasses: what `counter` records for values that are no dict of strings, ints and floats."""
        ...
