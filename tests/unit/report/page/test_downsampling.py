"""Which spans are left of too many for a page."""

import polars as pl

from kinetoscope.report.page.downsampling import MAX_PAGE_WIDTH_PX, select_spans

PIXEL_NS = 1000
SHORT_NS, LONG_NS = 100, 900


def many_short_spans():
    """Ten spans in each pixel of a row, all shorter than it: of these the seventh is the longest."""
    rows = [
        (place * PIXEL_NS + 90 * number, LONG_NS - 800 * (number != 6), place, number)
        for place in range(MAX_PAGE_WIDTH_PX)
        for number in range(10)
    ]
    begin, dur, cell, number = zip(*rows, strict=True)
    columns = {"begin": begin, "dur": dur, "cell": cell, "number": number}
    return pl.DataFrame(columns).with_columns(
        pl.lit(0).alias("track"),
        pl.lit(0).alias("row"),
        pl.lit(False).alias("is_named"),
        pl.int_range(pl.len()).alias("key"),
        pl.lit(None, pl.Int64).alias("launch"),
    )


def test_longest_span_of_a_pixel_is_shown():
    shown = select_spans(many_short_spans(), MAX_PAGE_WIDTH_PX)
    assert shown["dur"].unique().to_list() == [LONG_NS]
    assert shown["cell"].n_unique() >= 0.99 * MAX_PAGE_WIDTH_PX, "no stretch looks empty"
