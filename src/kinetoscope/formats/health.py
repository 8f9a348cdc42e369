"""Faults of trace files that every reader detects in the same way, and a sentence on each.

`check` shows them, `check -o` and `merge` leave such events out, `load` does too and has the sentences in ``repairs``,
from where they reach ``summary``, ``info`` and reports.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kinetoscope.core.text.wording import format_count
from kinetoscope.formats.header import read_object

_MIN_GAP_NS = 60 * 10**9
"""Events at time 0 have lost their time if no other event is within a minute of 0: profilers count from the start of
the machine, of a quarter or of 1970, or else from the first event of the trace."""

_MIN_OVERLAP_NS = 1000
"""Steps of one loop follow each other; profilers round their times to a microsecond."""

_HOW_TO_MERGE = "Give the file of each rank to kinetoscope merge instead."


@dataclass(slots=True)
class Health:
    """Numbers of malformed events in a trace file."""

    num_timeless: int = 0
    """Events whose time and duration are 0 although the trace does not begin there."""
    first_timeless: int = 0
    """The number of the first of them in the file, from 1."""
    num_negative: int = 0
    """Events with a negative duration."""
    num_not_finite: int = 0
    """Events with a number that JSON does not have, such as inf."""
    num_documents: int = 1
    """Documents in the file that were read as one trace: one after the other, or one between the events of another."""
    has_other_documents: bool = False
    """True if a document was not read, because it is of another rank or has another clock."""
    num_overlapping_steps: int = 0
    """Steps that begin on their thread before the step before them ends."""
    num_shared_launches: int = 0
    """Launches that have the correlation id of another launch."""
    num_overlapping: int = 0
    """Spans that begin within another span of their thread and end after it."""
    overlapping_ns: int = 0
    """Their time after the end of that span."""

    @property
    def left_out(self) -> list[str]:
        """Return sentences on events without a usable time, which are left out."""
        timeless = f"Events from number {self.first_timeless:,} on have lost their time, which is 0"
        sentences = {
            f"{timeless}: {self.num_timeless:,} were left out.": self.num_timeless,
            f"Events with a negative duration were left out: {self.num_negative:,}.": self.num_negative,
        }
        return [sentence for sentence, count in sentences.items() if count]

    @property
    def documents(self) -> list[str]:
        """Sentences on a file that holds several documents."""
        sentences = {
            f"The file holds {self.num_documents:,} documents, as two writers of one file leave them; they were read "
            "as one trace.": self.num_documents > 1,
            "The file has another document, of another rank or with another clock, which was not read. Split the "
            "file.": self.has_other_documents,
        }
        return [sentence for sentence, is_so in sentences.items() if is_so]

    @property
    def numbers(self) -> list[str]:
        """Return a sentence on numbers that JSON lacks."""
        if not self.num_not_finite:
            return []
        return [
            f"Numbers that JSON does not have, such as inf, were corrected or became null: {self.num_not_finite:,}."
        ]

    @property
    def mixed_ranks(self) -> list[str]:
        """Sentences on ranks that were pasted into one file."""
        pasted = f"Several ranks seem to be pasted into this file, so its analysis mixes them. {_HOW_TO_MERGE}"
        sentences = {
            f"Steps that begin before the one before them ends: {self.num_overlapping_steps:,}. {pasted}": (
                self.num_overlapping_steps
            ),
            f"Launches with the correlation id of another launch: {self.num_shared_launches:,}. {pasted}": (
                self.num_shared_launches
            ),
        }
        return [sentence for sentence, count in sentences.items() if count][:1]

    @property
    def overlaps(self) -> list[str]:
        """Return a sentence on spans that extend beyond the spans around them."""
        if not self.num_overlapping:
            return []
        return [
            f"Spans that begin within another span of their thread and end after it: {self.num_overlapping:,}. The "
            f"times of the spans around them lack {self.overlapping_ns / 1e6:,.3f} ms of theirs."
        ]

    @property
    def repairs(self) -> list[str]:
        """All sentences."""
        return [*self.documents, *self.numbers, *self.left_out, *self.overlaps, *self.mixed_ranks]


def describe_losses(kinetoscope_header: dict[str, Any]) -> list[str]:
    """Return sentences on records that are missing in Kinetoscope's traces, or in those merged into one."""
    files = kinetoscope_header.get("files")
    headers = (
        [read_object(file, "header", "kinetoscope") for file in files]
        if isinstance(files, list)
        else [kinetoscope_header]
    )
    dropped = sum(_count(header, "dropped") for header in headers)
    sentences = [f"{format_count(dropped, 'record')} were dropped because there was no space."] if dropped else []
    lost: dict[str, tuple[int, int]] = {}  # by start: each file of a start has the total so far
    for header in headers:
        start, now = str(header.get("start")), (_count(header, "lost_cycles"), _count(header, "lost_records"))
        lost[start] = max(lost.get(start, now), now)
    if num_cycles := sum(cycles for cycles, _ in lost.values()):
        records = format_count(sum(records for _, records in lost.values()), "record")
        sentences.append(f"{format_count(num_cycles, 'cycle')} with {records} could not be saved.")
    return sentences


def _count(header: dict[str, Any], name: str) -> int:
    count = header.get(name)
    return count if isinstance(count, int) else 0


def are_timeless(num_at_zero: int, earliest_of_others_ns: int | None) -> bool:
    """Return whether events whose time and duration are 0 have lost them.

    ``earliest_of_others_ns`` is the earliest time of the other events, counted as in the file.
    """
    return num_at_zero > 0 and earliest_of_others_ns is not None and earliest_of_others_ns >= _MIN_GAP_NS


def has_lost_time(event: dict[str, Any], base_ns: int = 0) -> bool:
    """Return whether the time of an event, in nanoseconds, and its duration are both 0 in the file."""
    return event.get("ts") == base_ns and not event.get("dur") and event.get("ph") != "M"


def count_overlapping(steps: Iterable[tuple[Any, int, int]]) -> int:
    """Count the steps (a key of their loop, begin, end) that begin before an earlier one of their loop ends."""
    latest: dict[Any, int] = {}
    num_overlapping = 0
    for key, begin_ns, end_ns in sorted(steps, key=lambda step: step[1]):
        num_overlapping += begin_ns < latest.get(key, begin_ns) - _MIN_OVERLAP_NS
        latest[key] = max(end_ns, latest.get(key, end_ns))
    return num_overlapping
