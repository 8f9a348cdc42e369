"""analysis: whether most events were taken out of a trace after it was recorded, as its own numbers of events show."""

import polars as pl

from kinetoscope.analysis.windows.window import ANNOTATIONS, OPERATORS, RankWindow

_MOST_KEPT = 0.1
_FEWEST = 100
_LOOKED_AT = 2_000
_CUTS = 0.02
"""So many of the gaps between numbers, the largest, are where a part of the time was cut out, not single events."""


def is_thinned(window: RankWindow) -> bool:
    """Whether most events were taken out of a trace of torch.profiler.

    CUPTI numbers the calls of the device's runtime, not all of which it records, and Kineto the events of the host
    (``Ev Idx``). Where few numbers are left of both, events are missing all over the trace. Either alone may be so in
    a trace that tells enough: calls that are not recorded, or stacks that were taken out.
    """
    return _are_few(window.runtime_calls["correlation"].drop_nulls()) and _are_few(_event_numbers(window))


def _are_few(numbers: pl.Series) -> bool:
    """Whether most of the numbers in between are missing, beside some large gaps. Of few numbers nobody knows."""
    gaps = numbers.unique().sort().diff().drop_nulls().sort()
    gaps = gaps.head(len(gaps) - int(len(gaps) * _CUTS))
    return len(gaps) >= _FEWEST and len(gaps) <= _MOST_KEPT * int(gaps.sum())


def _event_numbers(window: RankWindow) -> pl.Series:
    """Kineto's numbers of some operators and annotations, which follow each other in the file."""
    spans = window.trace.spans.filter(pl.col("category").is_in([*OPERATORS, *ANNOTATIONS])).head(_LOOKED_AT)
    number = pl.col("args").cast(pl.String).str.extract(r'"Ev Idx": ?(\d{1,15})\b').cast(pl.Int64)
    return spans.select(number=number).collect()["number"].drop_nulls()
