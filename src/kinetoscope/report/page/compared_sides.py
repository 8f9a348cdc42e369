"""Time breakdowns of two runs for bars with one scale."""

from collections.abc import Mapping
from typing import cast

from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.pages.page_data import ComparedPart, ComparedSide
from kinetoscope.report.labels import DEVICE_PART_LABELS, HOST_PART_LABELS, SIDE_LABELS

_MIN_SHOWN_SHARE = 0.005
"""Parts of less of the longer step in both runs have no entry; `kinetoscope.compare` leaves them out, too."""


def build_compared_sides(comparison: Comparison) -> list[ComparedSide]:
    """Return the CPU's and the GPU's breakdowns of both runs; a side that is unknown in one of them is left out."""
    runs = (comparison.before, comparison.after)
    sides: list[ComparedSide] = []
    for side, labels in (("host", HOST_PART_LABELS), ("device", DEVICE_PART_LABELS)):
        before, after = (cast("Mapping[str, float | None]", run["parts"] and run["parts"][side]) for run in runs)
        if before and after:
            sides.append(_build_side(side, labels, before, after, comparison))
    return sides


def _build_side(
    side: str,
    labels: Mapping[str, str],
    before: Mapping[str, float | None],
    after: Mapping[str, float | None],
    comparison: Comparison,
) -> ComparedSide:
    prefix = "device_" if side == "device" else ""
    rows = {row.name: row for row in comparison.rows if row.kind == "phase"}
    max_total_ns = max(sum(max(0.0, time_ns or 0.0) for time_ns in parts.values()) for parts in (before, after))
    parts: list[ComparedPart] = []
    for part, label in labels.items():
        row = rows.get(f"{prefix}{part.removesuffix('_ns')}")
        times = [before.get(part), after.get(part)]
        parts.append(
            ComparedPart(
                part=part,
                label=label,
                before_ns=times[0],
                after_ns=times[1],
                change=row and row.change,
                verdict=row and row.verdict,
                is_shown=any((time_ns or 0) >= _MIN_SHOWN_SHARE * max_total_ns > 0 for time_ns in times),
            )
        )
    return ComparedSide(label=SIDE_LABELS[side], max_total_ns=max_total_ns, parts=parts)
