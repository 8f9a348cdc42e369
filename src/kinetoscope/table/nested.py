"""table: which span lies in which. Spans flow in; what each has of its own time, its parent and its depth flow out.

Where spans of a track overlap and neither holds the other, both lie in the innermost span that holds them whole.
"""

import os
from typing import TYPE_CHECKING, Any

from kinetoscope.table.columns import import_polars

if TYPE_CHECKING:
    import polars as pl

try:
    from kinetoscope import _native
except ImportError:  # no compiler, when it was installed
    _native = None


def nest_spans(spans: "pl.DataFrame", *, clip: bool = False) -> "pl.DataFrame":
    """Of each row of ``ts``, ``dur`` and ``track``: ``self_ns``, ``parent`` (a row, or null) and ``depth``.

    ``self_ns`` is what of a span none of those directly in it covers. With ``clip``, a span that begins within another
    lies in it, and ends with it at the latest; ``dur`` is then what is left of each.
    """
    pl = import_polars()
    spans = spans.select(pl.col("ts", "dur").cast(pl.Int64), pl.col("track").cast(pl.UInt32))
    if _native is None or os.environ.get("KINETOSCOPE_PURE", "0") not in ("", "0"):
        schema = {"self_ns": pl.Int64, "parent": pl.UInt32, "depth": pl.UInt32} | ({"dur": pl.Int64} if clip else {})
        return pl.DataFrame(_Sweep(spans, clip).columns, schema=schema)
    columns = _native.nest_spans(spans.rechunk().__arrow_c_stream__(), clip)
    return pl.DataFrame([pl.Series(values=column).alias(column.name) for column in columns])


class _Sweep:
    """The same as `src/native/scan/nested.c` does, and its judge."""

    def __init__(self, spans: "pl.DataFrame", clip: bool) -> None:
        num_spans = len(spans)
        self._own_ns: list[int] = [0] * num_spans
        self._parents: list[int | None] = [None] * num_spans
        self._depths = [0] * num_spans
        self.columns: dict[str, list[Any]] = {"self_ns": self._own_ns, "parent": self._parents, "depth": self._depths}
        self._clipped_ns = [0] * num_spans if clip else None
        if self._clipped_ns is not None:
            self.columns["dur"] = self._clipped_ns
        self._open: list[tuple[int, int]] = []  # the end and the row of each span that is open
        self._covered_until: dict[int, int] = {}
        last_track = None
        for track, row, begin_ns, end_ns in _in_order(spans):
            if track != last_track:
                self._open.clear()
            last_track = track
            self._add(row, begin_ns, end_ns)

    def _add(self, row: int, begin_ns: int, end_ns: int) -> None:
        while self._open and self._is_over(self._open[-1][0], begin_ns, end_ns):
            self._covered_until.pop(self._open.pop()[1])
        if self._clipped_ns is not None:
            end_ns = min(end_ns, self._open[-1][0]) if self._open else end_ns
            self._clipped_ns[row] = end_ns - begin_ns
        self._own_ns[row], self._depths[row] = end_ns - begin_ns, len(self._open)
        if self._open:
            _, parent = self._open[-1]
            self._parents[row] = parent
            from_ns = max(begin_ns, self._covered_until[parent])
            self._own_ns[parent] -= max(0, end_ns - from_ns)
            self._covered_until[parent] = max(end_ns, from_ns)
        self._open.append((end_ns, row))
        self._covered_until[row] = begin_ns

    def _is_over(self, open_end_ns: int, begin_ns: int, end_ns: int) -> bool:
        # What ends before this one holds nothing any more that this one does not hold as well.
        return open_end_ns <= begin_ns or (self._clipped_ns is None and open_end_ns < end_ns)


def _in_order(spans: "pl.DataFrame") -> Any:
    """Track by track, track, row, begin and end of each span: what begins first, and of these what ends last."""
    pl = import_polars()
    ends = pl.col("ts") + pl.col("dur").clip(0)
    rows = spans.with_row_index("row").select("track", "row", "ts", end=ends)
    return rows.sort("track", "ts", "end", descending=[False, False, True], maintain_order=True).iter_rows()
