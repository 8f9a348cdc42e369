"""Tests of the frame that blocks of events are joined to."""

import polars as pl

from kinetoscope.formats.chrome_scan import TEXTS
from kinetoscope.frames.events import build_events


def _block(**columns: object) -> pl.DataFrame:
    frame = pl.DataFrame({"phase": [ord("X")] * 2, "ts": [1, 2], "dur": [3, 3], "name": [0, 0]} | columns)
    return frame.cast({"phase": pl.UInt8, "name": pl.UInt32})


def test_blocks_with_different_columns_are_joined_without_a_copy_of_the_whole_frame() -> None:
    texts = {name: [b""] for name in TEXTS}
    blocks = [_block(stream=[7, None]), _block(), _block(batch=[None, 5], stream=[8, 9])]

    frame = build_events(blocks, texts, {}, [], "trace.json").frame

    assert frame["stream"].to_list() == [7, None, None, None, 8, 9]
    assert frame["batch"].to_list() == [None, None, None, None, None, 5]
    assert [frame[name].n_chunks() for name in ("ts", "stream", "batch")] == [3, 3, 3]
