"""report: in which row of its track each span is drawn, so that no span lies on another one."""

import polars as pl

from kinetoscope.table.tracks import nest_spans


def rows_of(spans: pl.DataFrame) -> pl.Series:
    """The row of each span (``ts``, ``dur``, ``track``): below the spans that contain it, and beside no other one.

    Where spans overlap and neither contains the other, the later one goes to the next row that is free.
    """
    nested = spans.select("ts", pl.col("dur").clip(0), "track").with_row_index("place")
    nested = nested.with_columns(nest_spans(nested).rename({"depth": "row"}).get_columns())
    nested = nested.with_columns(end=pl.col("ts") + pl.col("dur"))
    overlapping = nested.filter(pl.col("track").is_in(_with_overlaps(nested).implode()))
    if len(overlapping):
        overlapping = overlapping.sort("track", "ts", "end", descending=[False, False, True], maintain_order=True)
        found = nested["row"].scatter(overlapping["place"], pl.Series(_free_rows(overlapping), dtype=pl.UInt32))
        return found.rename("row")
    return nested["row"]


def _with_overlaps(nested: pl.DataFrame) -> pl.Series:
    """The tracks in which nested spans of one row overlap."""
    in_rows = nested.sort("track", "row", "ts")
    before = pl.col("end").shift(1).over("track", "row")
    return in_rows.filter(pl.col("ts") < before)["track"].unique()


def _free_rows(spans: pl.DataFrame) -> list[int]:
    """The first free row of each span, below its parent; spans come by track, in the order of time."""
    rows: list[int] = []
    row_of: dict[int, int] = {}
    track, until = None, list[int]()
    for own_track, place, parent, begin, end in spans.select("track", "place", "parent", "ts", "end").iter_rows():
        if own_track != track:
            track, until = own_track, []
        row = 0 if parent is None else row_of[parent] + 1
        while row < len(until) and until[row] > begin:
            row += 1
        until.extend([0] * (row + 1 - len(until)))
        until[row], row_of[place] = end, row
        rows.append(row)
    return rows
