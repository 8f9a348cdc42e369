"""analysis: which line of the user's code was running, where Python's stacks were recorded."""

from typing import TYPE_CHECKING

from kinetoscope.analysis.window import RankWindow, innermost
from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl

_FRAME = r"^(.+\.(?:py|ipynb))\((\d+)\): "
_NOT_THE_USERS = r"^(torch|threading\.py|contextlib\.py|runpy\.py|importlib)\b|site-packages/|^<"


def source_lines(window: RankWindow, times: "pl.DataFrame") -> "pl.Series":
    """For each of ``times`` (``ts``, ``track``): ``file:line`` of the innermost of the user's functions on its track.

    Null where no stack was recorded. The line is the one with which the function begins.
    """
    pl = import_polars()
    frames = window.host.filter(pl.col("category") == "python_function")
    is_users = pl.col("name").str.contains(_FRAME) & ~pl.col("name").str.contains(_NOT_THE_USERS)
    frames = frames.filter(is_users)
    lines = frames["name"].gather(innermost(frames, times))
    return (
        lines.str.extract_groups(_FRAME)
        .struct.rename_fields(["file", "line"])
        .to_frame("at")
        .select(
            pl.concat_str(pl.col("at").struct.field("file"), pl.col("at").struct.field("line"), separator=":").alias(
                "line"
            )
        )["line"]
    )
