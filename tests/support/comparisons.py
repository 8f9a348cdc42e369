"""Comparisons of two runs with chosen rows."""

from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from support.minimal_pages import RUN

MS = 1_000_000


def row(kind, name, verdict, change, interval=None):
    return ComparisonRow(
        kind=kind,
        name=name,
        before=10.0 * MS,
        after=10.0 * MS * (1 + change),
        unit="ns",
        change=change,
        interval=interval,
        verdict=verdict,
    )


def comparison(*rows, before=RUN, after=RUN):
    return Comparison(before=before, after=after, threshold=0.05, rows=list(rows), more_steps=None, notes=[])
