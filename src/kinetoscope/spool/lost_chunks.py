"""Lost chunks, which a process has written to its spool folder and which are missing, as after a power cut.

The kernel writes mapped files back in any order. A file may be gone, empty, shorter, or have zeros where records were;
zeros are also what follows the last record.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from kinetoscope.core.text.wording import format_count
from kinetoscope.spool.window_log import LoggedWindow


class ChunkSummary(NamedTuple):
    """A chunk of a process: the first and last track that wrote to it, and its records, at most ``capacity``."""

    sequence: int
    window: int
    first_track: int
    last_track: int
    num_records: int
    capacity: int


def describe_losses(chunks: Iterable[ChunkSummary], log: Sequence[LoggedWindow]) -> list[str]:
    """Return a sentence on each window with detectably missing records.

    The log has the number of records of a window that has closed. Of a window that was still open, what is missing at
    the end is unknown: only chunks between others, and chunks that a thread has left before they were full.
    """
    in_order = sorted(chunks)
    found = Counter[int]()
    for chunk in in_order:
        found[chunk.window] += chunk.num_records
    expected = {window.number: window.num_records for window in log if window.num_records is not None}
    saved = {window.number for window in log if window.is_saved}
    is_open = {chunk.window for chunk in in_order} - expected.keys() - saved
    gaps, short = Counter(_gaps(in_order)), Counter[int]()
    for chunk in _list_partial_chunks(in_order):
        short[chunk.window] += chunk.capacity - chunk.num_records
    sentences = [
        f"Window {number}: {expected[number] - found[number]:,} of {expected[number]:,} records are missing."
        for number in sorted(expected.keys() - saved)
        if found[number] < expected[number]
    ]
    for number in sorted(is_open):
        if gaps[number]:
            sentences.append(f"Window {number}: {format_count(gaps[number], 'file')} with records missing.")
        if short[number]:
            sentences.append(f"Window {number}: {format_count(short[number], 'record')} missing at the end of files.")
    return sentences


def _gaps(chunks: Sequence[ChunkSummary]) -> Iterator[int]:
    """Yield the window of each chunk that is missing between others: of the one before it."""
    if chunks and chunks[0].window == 1:  # no window was saved before
        for _ in range(1, chunks[0].sequence):
            yield 1
    for chunk, following in pairwise(chunks):
        if following.window - chunk.window <= 1:
            for _ in range(chunk.sequence + 1, following.sequence):
                yield chunk.window


def _list_partial_chunks(chunks: Sequence[ChunkSummary]) -> Iterator[ChunkSummary]:
    """Yield the chunks that are not full although their last thread has begun another one in the same window."""
    began_later = set[tuple[int, int]]()
    for chunk in reversed(chunks):
        if chunk.num_records < chunk.capacity and (chunk.window, chunk.last_track) in began_later:
            yield chunk
        began_later.add((chunk.window, chunk.first_track))
