"""analysis: calls in which the host waits for the device."""

from typing import TYPE_CHECKING

from kinetoscope.analysis.window import RankWindow
from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl


def synchronising_calls(window: RankWindow) -> "pl.DataFrame":
    """Calls named ``*Synchronize``, and calls of a copy that returned after their copy had ended on the device."""
    pl = import_polars()
    calls = window.runtime_calls
    copies = window.device.filter(pl.col("kind") == "copy").group_by("correlation").agg(copied=pl.col("end").max())
    joined = calls.join(copies, on="correlation", how="left", maintain_order="left")
    waits = pl.col("name").str.ends_with("Synchronize") | (pl.col("end") >= pl.col("copied")).fill_null(False)
    return joined.filter(waits).drop("copied")
