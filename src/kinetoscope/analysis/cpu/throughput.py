"""Samples and tokens per second, from the counts of the loop."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kinetoscope.frames.trace import Trace


class LoopCounts(NamedTuple):
    """Counts of a loop while it was recorded. Each rank counts for itself; Composer's loop counts all ranks'."""

    num_batches: int = 0
    num_samples: int = 0
    num_tokens: int = 0


def read_loop_counts(trace: Trace) -> LoopCounts:
    """Return the counts of all windows of a trace, also of a merged one, including those of warm-up batches.

    A window of a killed process has no counts: its end is missing.
    """
    return _sum_counts(_counts_between(begin, end) for begin, end in _window_bounds(trace.header))


def throughput(counts: Iterable[LoopCounts], step_ns: float | None) -> tuple[float | None, float | None]:
    """Return samples and tokens per second at a step time; None where the loop did not count them."""
    num_batches, num_samples, num_tokens = _sum_counts(counts)
    if not step_ns or not num_batches:
        return None, None
    per_s = 1e9 / step_ns / num_batches
    return num_samples * per_s if num_samples else None, num_tokens * per_s if num_tokens else None


def _sum_counts(counts: Iterable[LoopCounts]) -> LoopCounts:
    batches, samples, tokens = zip(LoopCounts(), *counts, strict=True)
    return LoopCounts(sum(batches), sum(samples), sum(tokens))


def _window_bounds(header: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the loop's counts at the start and at the end of each window of a trace."""
    fields = header.get("kinetoscope")
    if not isinstance(fields, dict) or header.get("recovered") is True:
        return
    files = fields.get("files")
    for file in files if isinstance(files, list) else ():
        inner = file.get("header") if isinstance(file, dict) else None
        yield from _window_bounds(inner) if isinstance(inner, dict) else ()
    begin, end = fields.get("begin"), fields.get("end")
    if isinstance(begin, dict) and isinstance(end, dict):
        yield begin, end


def _counts_between(begin: dict[str, Any], end: dict[str, Any]) -> LoopCounts:
    """Return the differences of the counts at two moments; zeros if one is missing, or if the counts were restarted."""
    counts: list[int] = []
    for name in ("batch", "sample", "token"):
        first, last = (moment.get(name) for moment in (begin, end))
        counts.append(last - first if isinstance(first, int) and isinstance(last, int) else -1)
    return LoopCounts(*counts) if min(counts) >= 0 else LoopCounts()
