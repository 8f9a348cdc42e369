"""A page with many spans on 64 tracks: two threads and two streams per rank, nested like operators."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import polars as pl

from kinetoscope.pages.page_data import Flows, PageData, Spans, Stacks, Timeline, Track
from kinetoscope.report.page.columns import encode_deltas, encode_numbers

NUM_TRACKS = 64

_TRACKS = (("thread", "main"), ("thread", "autograd"), ("stream", "stream 7"), ("stream", "stream 20"))
_DEPTHS = (4, 3, 2, 1)
_CHILDREN = 4  # of each span that is not a leaf
_NUM_NAMES = 3000
_NUM_KEPT = 1000
_SHORT_NS, _GAP_NS = 9_000.0, 3_000.0


@dataclass
class _TrackSpans:
    """One track's spans, row by row."""

    rows: list[tuple[np.ndarray, np.ndarray]]

    @property
    def sizes(self) -> list[int]:
        return [len(begins) for begins, _ in self.rows]


def make_page_data(num_spans: int) -> PageData:
    """Return the data of a page; about that many spans."""
    random = np.random.default_rng(0)
    made = [_make_track_spans(random, num_spans // NUM_TRACKS, _DEPTHS[at % len(_DEPTHS)]) for at in range(NUM_TRACKS)]
    begins, durations = (np.concatenate([row[at] for track in made for row in track.rows]) for at in (0, 1))
    firsts = [0, *accumulate(sum(track.sizes) for track in made)]
    timeline = Timeline(
        texts=[f"aten::operator_{at}<float, {at % 97}>(at::Tensor const&, long)" for at in range(_NUM_NAMES)],
        tracks=[_make_track(at, track, firsts[at]) for at, track in enumerate(made)],
        spans=_encode_columns(random, begins, durations, _assign_launches(made, firsts), firsts),
        flows=Flows(sources=_encode_empty(), targets=_encode_empty(), names=_encode_empty()),
        counters=[],
        details=[{"shapes": [[at, 128], [128, at]], "External id": at} for at in range(_NUM_KEPT)],
        stacks=Stacks(
            lines=_encode_column(np.arange(_NUM_KEPT) % _NUM_NAMES), callers=_encode_column(np.arange(_NUM_KEPT) // 2)
        ),
        notes=[],
    )
    return PageData(version="0", title=f"{len(begins):,} spans", timeline=timeline)


def _make_track_spans(random: np.random.Generator, num_spans: int, depth: int) -> _TrackSpans:
    """Return leaves one after the other, and enclosing spans up to the outermost."""
    num_leaves = int(num_spans / sum(_CHILDREN**-level for level in range(depth)))
    durations = random.lognormal(np.log(_SHORT_NS), 1, num_leaves).astype(np.int64)
    begins = np.cumsum(durations + random.exponential(_GAP_NS, num_leaves).astype(np.int64)) - durations
    rows = [(begins, durations)]
    for _ in range(depth - 1):
        firsts = np.arange(0, len(begins), _CHILDREN)
        lasts = np.minimum(firsts + _CHILDREN, len(begins)) - 1
        begins, durations = begins[firsts], begins[lasts] + durations[lasts] - begins[firsts]
        rows.insert(0, (begins, durations))
    return _TrackSpans(rows)


def _make_track(at: int, made: _TrackSpans, first: int) -> Track:
    kind, name = _TRACKS[at % len(_TRACKS)]
    row_begins = list(accumulate(made.sizes, initial=first))
    return Track(rank=at // len(_TRACKS), kind=kind, name=name, process="", row_begins=row_begins)


def _assign_launches(made: list[_TrackSpans], firsts: list[int]) -> np.ndarray:
    """Return the launching span of each stream span, as index plus 1: leaves of the rank's main thread, in order."""
    launches = np.zeros(firsts[-1], dtype=np.int64)
    for at, (first, end) in enumerate(pairwise(firsts)):
        if _TRACKS[at % len(_TRACKS)][0] != "stream":
            continue
        main = at - at % len(_TRACKS)
        leaves = made[main].sizes[-1]
        launches[first:end] = firsts[main + 1] - leaves + np.arange(end - first) % leaves + 1
    return launches


def _encode_columns(
    random: np.random.Generator, begins: np.ndarray, durations: np.ndarray, launches: np.ndarray, firsts: list[int]
) -> Spans:
    kept = np.zeros(len(begins), dtype=np.int64)
    for first, end in pairwise(firsts):
        kept[first : min(end, first + _NUM_KEPT)] = np.arange(1, min(end - first, _NUM_KEPT) + 1)
    return Spans(
        begins=encode_deltas(pl.Series(begins)),
        durations=_encode_column(durations),
        names=_encode_column(np.minimum(random.zipf(1.3, len(begins)), _NUM_NAMES) - 1),
        categories=_encode_column(np.zeros(len(begins), dtype=np.int64)),
        details=_encode_column(kept),
        stacks=_encode_column(kept),
        launches=encode_deltas(pl.Series(launches)),
    )


def _encode_column(values: np.ndarray):
    return encode_numbers(pl.Series(values.astype(np.uint64)))


def _encode_empty():
    return encode_numbers(pl.Series([], dtype=pl.UInt32))
