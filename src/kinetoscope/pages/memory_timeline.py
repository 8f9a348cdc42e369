"""pages: the memory timeline, a stacked area of memory over time, as one HTML file that needs nothing else."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files

_MOST_POINTS = 20_000
"""Many times the pixels of a screen. If there are more points, only the highest of neighbouring ones is kept."""


def render_memory_timeline(
    *, device: str, categories: Sequence[str], times_us: Sequence[int], sizes_bytes: Sequence[Sequence[int]]
) -> str:
    """The page; ``sizes_bytes`` has a row for each time with a number for each category."""
    kept = _kept(sizes_bytes)
    start_us = times_us[0] if times_us else 0
    data = {
        "categories": list(categories),
        "times_ms": [(times_us[at] - start_us) / 1000 for at in kept],
        "sizes": [list(sizes_bytes[at]) for at in kept],
    }
    page = files("kinetoscope.pages").joinpath("memory_timeline.html").read_text(encoding="utf-8")
    # "</" would end the script.
    return page.replace("{{device}}", html.escape(device)).replace("{{data}}", json.dumps(data).replace("</", "<\\/"))


def _kept(sizes_bytes: Sequence[Sequence[int]]) -> list[int]:
    """The rows to draw. Of each group of neighbours it is the one with the most memory, so that no peak is lost."""
    stretch = -(-len(sizes_bytes) // _MOST_POINTS) or 1
    starts = range(0, len(sizes_bytes), stretch)
    return [max(range(at, min(at + stretch, len(sizes_bytes))), key=lambda row: sum(sizes_bytes[row])) for at in starts]
