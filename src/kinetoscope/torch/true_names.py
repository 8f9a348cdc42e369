"""torch: the names that Kineto's file has lost.

torch's own objects give them, an object per activity, which are read in slices so that the training gets its turns.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from kinetoscope.torch.event_columns import names_of

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


_SLICE = 2_000  # names that are read before other threads get their turn: about a millisecond's worth
_PAUSE_S = 0.0001
_FRAME_WITHOUT_FILE = "<"  # such as <method 'append' of 'list' objects>, whose apostrophes are its own

Span = tuple[int, int]
"""When something begins, in unix nanoseconds, and how many it lasts."""

NamesBySpan = dict[Span, list[str]]
"""The true names of the spans that begin at a unix nanosecond and last so many."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A name that Kineto wrote as ``raw``, of its activity ``number``."""

    number: int
    name: str
    raw: str


@dataclass(frozen=True, slots=True)
class TrueNames:
    """The names that Kineto does not write as they were: by when they are, and by the number of the activity.

    Versions of torch before 2.13 do not tell the order in which Kineto writes: then ``in_order`` is None.
    """

    by_span: NamesBySpan = field(default_factory=dict)
    in_order: list[Renamed] | None = field(default_factory=list)


def find_true_names(kineto_results: Any) -> TrueNames:
    """The true names of what Kineto's file calls otherwise."""
    if hasattr(kineto_results, "trace_activities"):
        names = _names_of_activities(kineto_results)
    else:
        by_span = _names_by_span(kineto_results.events())
        names = TrueNames(by_span, None) if by_span else TrueNames()
    for true_names in names.by_span.values():
        note_names(true_names)
    return names


def ways_to_write(name: str) -> tuple[str, ...]:
    """How Kineto may write a name, its usual way first.

    Older versions write what is not printable as well; in newer ones it may have no quotes, also if torch writes it.
    """
    written = name.replace("\\", "/").replace("\n", "")
    ways = (written, name) if written.isascii() and written.isprintable() else (UNKNOWN, written, name)
    return (*ways, *(way.replace('"', "'") for way in ways if '"' in way))


def _names_of_activities(kineto_results: Any) -> TrueNames:
    found = list(_read(kineto_results.trace_activities(), "timestamp", "duration", _may_be_odd))
    has_apostrophes = any("'" in name for _, name, _ in found)
    quoted = _quoted_names(kineto_results) if has_apostrophes else {}
    by_span: NamesBySpan = {}
    in_order: list[Renamed] = []
    for number, written, span in found:
        name = _with_quotes(written, quoted.get(span, ()) if quoted is not None else odd_names)
        if is_odd(name):
            by_span.setdefault(span, []).append(name)
            in_order.append(Renamed(number, name, ways_to_write(written)[0]))
    return TrueNames(by_span, sorted(in_order, key=attrgetter("number")))


def _may_be_odd(name: str) -> bool:
    return is_odd(name) or ("'" in name and not name.startswith(_FRAME_WITHOUT_FILE) and name not in plain_names)


def _quoted_names(kineto_results: Any) -> NamesBySpan | None:
    """The names that have quotes; None where there are no events to tell."""
    events = kineto_results.events()
    return _names_by_span(events, lambda name: '"' in name) if events else None


def _with_quotes(written: str, names: Iterable[str]) -> str:
    """The one of ``names`` that is ``written`` with apostrophes for its quotes; else that itself."""
    return next((name for name in names if '"' in name and name.replace('"', "'") == written), written)


def _names_by_span(events: list[Any], is_wanted: Callable[[str], bool] = is_odd) -> NamesBySpan:
    by_span: NamesBySpan = {}
    for _, name, span in _read(events, "start_ns", "duration_ns", is_wanted):
        by_span.setdefault(span, []).append(name)
    return by_span


def _read(
    events: list[Any], begin: str, duration: str, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[int, str, Span]]:
    """Number, name and span of the events whose names are wanted.

    Uses ``events`` up, from the last to the first, so that giving them back takes its time in slices as well.
    """
    # Through the class, since looking a method up on each object costs more than the call.
    read_name = type(events[0]).name if events else str
    known: set[str] = set()
    wanted: set[str] = set()
    while events:
        part = events[-_SLICE:]
        del events[-_SLICE:]
        names = names_of(part, read_name)
        new = set(names) - known
        known |= new
        wanted.update(filter(is_wanted, new))
        for place, name in enumerate(names) if not wanted.isdisjoint(names) else ():
            if name in wanted:
                yield len(events) + place, name, (getattr(part[place], begin)(), getattr(part[place], duration)())
        del part
        time.sleep(_PAUSE_S)
