"""Source lines of the user's code, where Python stacks were recorded."""

import polars as pl

from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.analysis.windows.window import RankWindow

FRAME = r"^(.+\.(?:py|ipynb))\((\d+)\): .*$"
"""The name of a frame; its groups are the file and the line."""

_LIBRARY_FRAME = r"^torch/|site-packages/|(^|/)(contextlib|copy|functools|runpy|threading)\.py\("


def source_lines(window: RankWindow, times: pl.DataFrame) -> pl.Series:
    """Return ``file:line`` of the innermost of the user's functions around each time, null where no stack was recorded.

    The line is the first one of the function. ``times`` has ``ts`` (ns) and ``track``.
    """
    frames = window.cpu.python_functions
    if not len(frames):
        return pl.Series("line", [None], dtype=pl.String).new_from_index(0, len(times))
    names = frames["name"].unique()
    names = names.filter(names.str.contains(FRAME) & ~names.str.contains(_LIBRARY_FRAME))
    frames = frames.filter(pl.col("name").is_in(names.implode()))
    return frames["name"][find_innermost(frames, times)].str.replace(FRAME, "${1}:${2}").alias("line")
