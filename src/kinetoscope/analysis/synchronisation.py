"""analysis: calls in which the host waits for the device."""

import polars as pl

from kinetoscope.analysis.window import RankWindow


def synchronising_calls(window: RankWindow) -> pl.DataFrame:
    """Calls named ``*Synchronize``, and calls of a copy that returned after their copy had ended on the device."""
    calls = window.runtime_calls
    copies = window.device.filter(pl.col("kind") == "copy").group_by("correlation").agg(copied=pl.col("end").max())
    joined = calls.join(copies, on="correlation", how="left", maintain_order="left")
    waits = pl.col("name").str.ends_with("Synchronize") | (pl.col("end") >= pl.col("copied")).fill_null(False)
    return joined.filter(waits).drop("copied")
