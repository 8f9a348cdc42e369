"""Page with the memory of one device over time."""

from collections.abc import Sequence

from kinetoscope.pages.html_file import render_page
from kinetoscope.pages.page_data import Column, MemoryOverTime, PageData

_MAX_POINTS = 20_000
"""Many times the pixels of a screen; of more points, only the highest of neighbouring ones are kept."""


def render_memory_timeline(
    *,
    version: str,
    device: str,
    categories: Sequence[str],
    times_us: Sequence[int],
    sizes_bytes: Sequence[Sequence[int]],
) -> str:
    """Return the page; ``sizes_bytes`` has a row per time with a number per category."""
    kept = _downsample(sizes_bytes)
    start_us = times_us[0] if times_us else 0
    totals = [sum(sizes_bytes[at]) for at in kept]
    peak = max(range(len(kept)), key=totals.__getitem__, default=0)
    memory = MemoryOverTime(
        rank=None,
        device=device,
        categories=list(categories),
        times=Column.of((1000 * (times_us[at] - start_us) for at in kept), is_delta=True),
        sizes=[Column.of((sizes_bytes[at][index] for at in kept), is_delta=True) for index in range(len(categories))],
        totals=Column.of(totals, is_delta=True),
        peak=peak,
        peak_bytes=totals[peak] if totals else 0,
        alive_at_peak=[],
    )
    return render_page(
        PageData(version=version, title=f"Memory of {device}", origin_ns=str(1000 * start_us), memory=[memory])
    )


def _downsample(sizes_bytes: Sequence[Sequence[int]]) -> list[int]:
    """Return the rows to draw: of each group of neighbours the one with most memory, so that no peak is lost."""
    group_size = -(-len(sizes_bytes) // _MAX_POINTS) or 1
    starts = range(0, len(sizes_bytes), group_size)
    return [
        max(range(at, min(at + group_size, len(sizes_bytes))), key=lambda row: sum(sizes_bytes[row])) for at in starts
    ]
