"""Tracks of the timeline: steps, markers, threads and streams of each rank, in order."""

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from kinetoscope.formats.trace_names import SAMPLES_TRACK
from kinetoscope.frames.trace import Trace
from kinetoscope.report.page.rank_spans import ROLES

KINDS = ("steps", "stream", "markers", "modules", "thread", "samples")
"""Kinds of tracks in the order of the timeline: those of the GPU are above those of the CPU."""

_SAMPLES = re.compile(f"(?:.*: )?{SAMPLES_TRACK.format('.+')}", re.DOTALL)
_OUR_STREAM = re.compile(r"(GPU \d+) (stream .*)")


@dataclass(frozen=True, kw_only=True)
class TrackDescription:
    """A track without its spans. ``order`` is its index among tracks of its rank, kind and process."""

    rank: int | None
    kind: str
    process: str
    name: str
    order: int

    def build_sort_key(self) -> tuple[Any, ...]:
        """Return the sort key of a track; tracks without a rank come last."""
        return self.rank is None, self.rank or 0, KINDS.index(self.kind), self.process, self.order, self.name


class Tracks:
    """Tracks of all windows, each identified by its index in ``all``.

    A thread that was recorded in several windows has one track, and so have its samples, which a thread of each window
    took.
    """

    def __init__(self) -> None:
        self.all: list[TrackDescription] = []
        self._indices: dict[tuple[Any, ...], int] = {}

    def add_steps_track(self, rank: int | None) -> int:
        """Return the index of the track of a rank's steps, which is added if it is new."""
        return self._add_one((rank,), TrackDescription(rank=rank, kind="steps", process="", name="Steps", order=0))

    def add_lanes(self, trace: Trace, rank: int | None, lanes: pl.Series) -> pl.Series:
        """Return the indices of the tracks of a window's lanes (`read_spans`), which are added if they are new."""
        distinct = lanes.unique().sort()
        rows = {row["track"]: row for row in trace.tracks.collect().iter_rows(named=True)}
        found = [self._add_lane(rows[lane // len(ROLES)], rank, ROLES[lane % len(ROLES)]) for lane in distinct]
        track_numbers = pl.DataFrame({"lane": distinct, "track_number": pl.Series(found, dtype=pl.UInt32)})
        return lanes.to_frame("lane").join(track_numbers, on="lane", how="left", maintain_order="left")["track_number"]

    def _add_lane(self, row: dict[str, Any], rank: int | None, role: str) -> int:
        description = _describe_track(row, rank, role)
        thread = description.name if description.kind == "samples" else row["tid"]
        return self._add_one((rank, row["pid"], thread, role), description)

    def _add_one(self, key: tuple[Any, ...], description: TrackDescription) -> int:
        if key not in self._indices:
            self._indices[key] = len(self.all)
            self.all.append(description)
        return self._indices[key]


def _describe_track(row: dict[str, Any], rank: int | None, role: str) -> TrackDescription:
    name = row["thread"] or f"{row['kind']} {row['tid'] or ''}".rstrip()
    if row["kind"] == "stream" and role == "thread":
        match = _OUR_STREAM.fullmatch(name)
        process, name = match.groups() if match else (_label_device(row), name)
        return TrackDescription(rank=rank, kind="stream", process=process, name=name, order=row["tid_number"] or 0)
    if role == "thread" and _SAMPLES.fullmatch(name):
        return TrackDescription(rank=rank, kind="samples", process="", name=name, order=0)
    kind = role if role in ("markers", "modules") else "thread"
    name = f"{name} ({role})" if role == "asynchronous" else name
    return TrackDescription(rank=rank, kind=kind, process="", name=name, order=-row["num_spans"])


def _label_device(row: dict[str, Any]) -> str:
    label = row["labels"] or ""
    return label if label.startswith("GPU") else f"GPU {row['pid']}"
