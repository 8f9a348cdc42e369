"""Original names of spans that Kineto's file misspells.

Kineto drops newlines, turns a backslash into a slash, and writes "unknown" for a name that is not printable ASCII. A
quote remains unescaped or, from torch 2.14 on, becomes an apostrophe. torch's objects have the original names, but
reading them needs the GIL for microseconds per event. So they are read only if a name may have been altered: if this
process has used one that Kineto alters, or the file has one that may stand for another.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from kinetoscope.torch.event_columns import TORCH_VERSION, read_names

UNKNOWN = "unknown"
"""Kineto's replacement for a name that is not printable; a span of this name may have another one."""
_ALTERED = re.compile(r"[^ !#-\[\]-~]")
_MAX_REGISTERED = 10_000
_NAMES_PER_SLICE = 2_000  # names read before the GIL is released: about a millisecond
_PAUSE_S = 0.0001
# Functions without a file, such as <method 'append' of 'list' objects>: their apostrophes do not replace quotes.
_BUILT_IN_FRAME = "<"

# Globals, because libraries use the same names in every window of the process.
unaltered_names: set[str] = set()
"""Names used in this process that Kineto writes unmodified."""
altered_names: set[str] = set()
"""Names used in this process that Kineto writes differently."""

Span = tuple[int, int]
"""A span's start in unix nanoseconds, and its duration in nanoseconds."""

NamesBySpan = dict[Span, list[str]]
"""Original names of the spans with this start and duration."""


@dataclass(frozen=True, slots=True)
class AlteredName:
    """A name that Kineto wrote as ``raw``; its span is the activity with this ``number``."""

    number: int
    name: str
    raw: str


@dataclass(frozen=True, slots=True)
class OriginalNames:
    """Names of a window that Kineto alters: by span, and in the order in which Kineto writes them.

    ``in_order`` is None before torch 2.13, which does not report the order.
    """

    by_span: NamesBySpan = field(default_factory=dict)
    in_order: list[AlteredName] | None = field(default_factory=list)


def is_altered(name: str) -> bool:
    """Return whether Kineto writes the name differently."""
    return _ALTERED.search(name) is not None


def register_name(name: str) -> None:
    """Register an original name; the unaltered ones are dropped when there are too many."""
    if name == UNKNOWN:
        return
    names = altered_names if is_altered(name) else unaltered_names
    if len(names) >= _MAX_REGISTERED:
        unaltered_names.clear()
    if len(names) < _MAX_REGISTERED:
        names.add(name)


def register_names(names: Iterable[str]) -> None:
    """Register original names."""
    for name in names:
        register_name(name)


def find_original_names(kineto_results: Any) -> OriginalNames:
    """Read the names of a window that Kineto alters from torch's objects."""
    if hasattr(kineto_results, "trace_activities"):
        names = _read_activity_names(kineto_results)
    else:
        by_span = _read_names_by_span(kineto_results.events())
        names = OriginalNames(by_span, None) if by_span else OriginalNames()
    for original_names in names.by_span.values():
        register_names(original_names)
    return names


def possible_spellings(name: str) -> tuple[str, ...]:
    """Return the ways in which versions of Kineto may write a name, the usual way first."""
    written = name.replace("\\", "/").replace("\n", "")
    spellings = (written, name) if written.isascii() and written.isprintable() else (UNKNOWN, written, name)
    return (*spellings, *(spelling.replace('"', "'") for spelling in spellings if '"' in spelling))


def _read_activity_names(kineto_results: Any) -> OriginalNames:
    """Return the altered names of a window from its activities, in the order of Kineto's text."""
    found = list(_iterate_events(kineto_results.trace_activities(), "timestamp", "duration", _may_be_altered))
    has_apostrophes = TORCH_VERSION >= (2, 14) and any("'" in name for _, name, _ in found)
    quoted = _read_quoted_names(kineto_results) if has_apostrophes else {}
    by_span: NamesBySpan = {}
    in_order: list[AlteredName] = []
    for number, written, span in found:
        name = _restore_quotes(written, quoted.get(span, ()) if quoted is not None else altered_names)
        if is_altered(name):
            by_span.setdefault(span, []).append(name)
            in_order.append(AlteredName(number, name, possible_spellings(written)[0]))
    return OriginalNames(by_span, sorted(in_order, key=attrgetter("number")))


def _may_be_altered(name: str) -> bool:
    return is_altered(name) or ("'" in name and not name.startswith(_BUILT_IN_FRAME) and name not in unaltered_names)


def _read_quoted_names(kineto_results: Any) -> NamesBySpan | None:
    """Return the names that contain quotes; None if only the trace was recorded, so that there are no events.

    From torch 2.14 on, activities have apostrophes for quotes as the file has; only events have the quotes.
    """
    events = kineto_results.events()
    return _read_names_by_span(events, lambda name: '"' in name) if events else None


def _restore_quotes(written: str, names: Iterable[str]) -> str:
    """Return the one of ``names`` that Kineto would write as ``written``, else ``written``."""
    return next((name for name in names if '"' in name and name.replace('"', "'") == written), written)


def _read_names_by_span(events: list[Any], is_wanted: Callable[[str], bool] = is_altered) -> NamesBySpan:
    """Return the wanted names of events by span."""
    by_span: NamesBySpan = {}
    for _, name, span in _iterate_events(events, "start_ns", "duration_ns", is_wanted):
        by_span.setdefault(span, []).append(name)
    return by_span


def _iterate_events(
    events: list[Any], begin: str, duration: str, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[int, str, Span]]:
    """Yield number, name and span of the events whose names are wanted; ``begin`` and ``duration`` name methods.

    The list is emptied, last events first, so that freeing torch's objects is spread over the slices too.
    """
    known: set[str] = set()
    wanted: set[str] = set()
    while events:
        part = events[-_NAMES_PER_SLICE:]
        del events[-_NAMES_PER_SLICE:]
        names = read_names(part)
        new = set(names) - known
        known |= new
        wanted.update(filter(is_wanted, new))
        for position, name in enumerate(names) if not wanted.isdisjoint(names) else ():
            if name in wanted:
                yield (
                    len(events) + position,
                    name,
                    (getattr(part[position], begin)(), getattr(part[position], duration)()),
                )
        del part
        time.sleep(_PAUSE_S)
