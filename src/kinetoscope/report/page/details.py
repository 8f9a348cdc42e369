"""Details of a span: its arguments, and the Python stack of its call."""

import json
import re
from typing import Any

import polars as pl

from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.tracks import nest_spans
from kinetoscope.report.page.call_paths import CallPaths
from kinetoscope.report.page.columns import StringTable
from kinetoscope.report.page.rank_spans import PYTHON, select_shown_events

_EVENT_ID_ARGUMENTS = (
    *("External id", "external id", "External Id", "Ev Idx", "Record function id", "correlation", "cbid"),
    *("Sequence number", "Fwd thread id", "Python id", "Python parent id", "Python module id", "Python thread"),
    *("Addr", "begin_ns", "Trace name", "Trace iteration"),
)
"""Arguments that only number an event. Without them, many events have the same arguments."""

_EVENT_IDS = rf'"(?:{"|".join(map(re.escape, _EVENT_ID_ARGUMENTS))})"\s*:\s*(?:-?[0-9.eE+]+|"[^"\\]*")\s*,?'
_EMPTY = (r"{}", r"")


class Details:
    """Arguments of spans, each stored once and identified by its index plus 1, 0 for none."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self._indices: dict[str, int] = {}

    def indices(self, trace: Trace, events: pl.Series) -> pl.Series:
        """Return the indices of the arguments of some of a trace's `select_shown_events`."""
        wanted = select_shown_events(trace).select("event", pl.col("args").cast(pl.String, strict=False))
        wanted = wanted.filter(pl.col("event").is_in(events.implode())).collect()
        text = pl.col("args").fill_null("").str.replace_all(_EVENT_IDS, "").str.replace(r",\s*\}$", "}")
        wanted = wanted.with_columns(text)
        distinct = wanted["args"].unique(maintain_order=True)
        indices = pl.Series([self._add_one(text) for text in distinct], dtype=pl.UInt32)
        found = wanted.select("event", index=indices.gather(wanted["args"].cast(pl.Enum(distinct)).to_physical()))
        return events.to_frame("event").join(found, on="event", how="left", maintain_order="left")["index"]

    def _add_one(self, text: str) -> int:
        """Return the index plus 1 of arguments, which are added if they are new."""
        if text in _EMPTY:
            return 0
        if text not in self._indices:
            self.all.append(_decode_arguments(text))
            self._indices[text] = len(self.all)
        return self._indices[text]


def _decode_arguments(text: str) -> dict[str, Any]:
    """Return the decoded arguments; empty if they are malformed."""
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def index_stacks(spans: pl.DataFrame, wanted: pl.DataFrame, texts: StringTable, paths: CallPaths) -> pl.Series:
    """Return the stack of each of ``wanted`` (``lane``, ``begin``): an index of ``paths`` plus 1, 0 for none.

    ``spans`` are all spans of the window.
    """
    frames = spans.filter(pl.col("category") == PYTHON).select("name", "begin", "lane", "dur")
    if not len(frames):
        return pl.zeros(len(wanted), pl.UInt32, eager=True)
    nested = nest_spans(frames.select("dur", ts="begin", track="lane"))
    indices = paths.indices(texts.indices(frames["name"]), nested["parent"], nested["depth"]) + 1
    around = find_innermost(
        frames.select("begin", end=pl.col("begin") + pl.col("dur"), track="lane"),
        wanted.select(ts="begin", track="lane"),
    )
    return indices.gather(around).fill_null(0)
