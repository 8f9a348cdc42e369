"""report: the tracks of a page's timeline: steps, markers, threads and streams of each rank, in order."""

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from kinetoscope.formats.own_names import SAMPLES_TRACK
from kinetoscope.frames.trace import Trace
from kinetoscope.report.page.rank_spans import ROLES

KINDS = ("steps", "markers", "thread", "samples", "stream")

_SAMPLES = re.compile(f"(?:.*: )?{SAMPLES_TRACK.format('.+')}", re.DOTALL)
_OUR_STREAM = re.compile(r"(GPU \d+) (stream .*)")


@dataclass(frozen=True, kw_only=True)
class TrackAbout:
    """A track without its spans. ``order`` is its place among tracks of its rank, kind and process."""

    rank: int | None
    kind: str
    process: str
    name: str
    order: int

    def sorted_by(self) -> tuple[Any, ...]:
        """What tracks are sorted by: those without a rank are the last ones."""
        return self.rank is None, self.rank or 0, KINDS.index(self.kind), self.process, self.order, self.name


class Tracks:
    """The tracks of all windows, each of which is known by its place in ``all``. A thread that was recorded in several
    windows is one track, and so are the samples of one, which each window's own thread took."""

    def __init__(self) -> None:
        self.all: list[TrackAbout] = []
        self._places: dict[tuple[Any, ...], int] = {}

    def steps(self, rank: int | None) -> int:
        """The place of the track of a rank's steps."""
        return self._place((rank,), TrackAbout(rank=rank, kind="steps", process="", name="Steps", order=0))

    def places(self, trace: Trace, rank: int | None, lanes: pl.Series) -> pl.Series:
        """The places of the tracks of a window's lanes (`read_spans`)."""
        distinct = lanes.unique().sort()
        rows = {row["track"]: row for row in trace.tracks.collect().iter_rows(named=True)}
        found = [self._of_lane(rows[lane // len(ROLES)], rank, ROLES[lane % len(ROLES)]) for lane in distinct]
        places = pl.DataFrame({"lane": distinct, "place": pl.Series(found, dtype=pl.UInt32)})
        return lanes.to_frame("lane").join(places, on="lane", how="left", maintain_order="left")["place"]

    def _of_lane(self, row: dict[str, Any], rank: int | None, role: str) -> int:
        about = _about(row, rank, role)
        thread = about.name if about.kind == "samples" else row["tid"]
        return self._place((rank, row["pid"], thread, role), about)

    def _place(self, key: tuple[Any, ...], about: TrackAbout) -> int:
        if key not in self._places:
            self._places[key] = len(self.all)
            self.all.append(about)
        return self._places[key]


def _about(row: dict[str, Any], rank: int | None, role: str) -> TrackAbout:
    name = row["thread"] or f"{row['kind']} {row['tid'] or ''}".rstrip()
    if row["kind"] == "stream" and role == "thread":
        ours = _OUR_STREAM.fullmatch(name)
        process, name = ours.groups() if ours else (_device(row), name)
        return TrackAbout(rank=rank, kind="stream", process=process, name=name, order=row["tid_number"] or 0)
    if role == "thread" and _SAMPLES.fullmatch(name):
        return TrackAbout(rank=rank, kind="samples", process="", name=name, order=0)
    kind = "markers" if role == "markers" else "thread"
    name = f"{name} ({role})" if role == "asynchronous" else name
    return TrackAbout(rank=rank, kind=kind, process="", name=name, order=-row["num_spans"])


def _device(row: dict[str, Any]) -> str:
    label = row["labels"] or ""
    return label if label.startswith("GPU") else f"GPU {row['pid']}"
