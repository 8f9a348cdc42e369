"""Sample of the ranks of a large run for replays and findings. Rows of a report are of all ranks."""

from collections.abc import Sequence

from kinetoscope.analysis.run_report import RunReport
from kinetoscope.formats.header import rank_in_name
from kinetoscope.frames.trace import Trace

MAX_REPLAYED = 128
"""Largest number of replayed ranks. It limits memory: replays keep the graphs of all their ranks."""

_MAX_STRAGGLERS = 16
"""Largest number of stragglers in the sample."""


def is_large(sources: Sequence[str | Trace]) -> bool:
    """Return whether there are more ranks than are replayed, as far as is known before the traces are read."""
    ranks = [source.rank if isinstance(source, Trace) else rank_in_name(source) for source in sources]
    named = {rank for rank in ranks if rank is not None}
    return len(named) + ranks.count(None) > MAX_REPLAYED


def ranks_to_replay(report: RunReport) -> set[int]:
    """Return the stragglers, the rank whose memory grows most, and the first ranks: neighbours share groups."""
    late = [row.rank for row in report.stragglers[:_MAX_STRAGGLERS]]
    growth = {row.rank: row.growth_bytes_per_step or 0 for row in report.memory if row.rank is not None}
    most = sorted(growth, key=lambda rank: -growth[rank])[:1]
    return set(list(dict.fromkeys([*late, *most, *report.run["ranks"]]))[:MAX_REPLAYED])


def build_sample_notes(report: RunReport) -> list[str]:
    """Return a sentence on the sample if not all ranks are replayed."""
    num_ranks = len(report.run["ranks"])
    if num_ranks <= MAX_REPLAYED:
        return []
    return [
        f"Findings and replays are of {MAX_REPLAYED} of the {num_ranks:,} ranks: those that are late, and the first "
        "ones. All other rows are of all ranks; --ranks chooses others."
    ]
