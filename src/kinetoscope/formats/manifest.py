"""formats: the manifest, ``{folder}/.manifest/rank{r}.jsonl``. What a rank has finished flows in; who merges reads it.

One JSON object per line, appended by the processes of the one rank: nobody waits for anybody. Entries but the first
say of which start they are; without that they are the last one's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.json_lines import append_line


class RankStarted(msgspec.Struct, frozen=True, tag="started"):
    """An attempt of a rank begins to write into the folder. ``start`` is the name of its live folder."""

    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    local_world_size: int
    pid: int
    host: str
    attempt: str
    start: str = ""


class RanksBeside(msgspec.Struct, frozen=True, tag="beside"):
    """The starts of other ranks of this launch and node that were alive when ``start`` began."""

    starts: list[str]
    start: str = ""


class AttemptAgreed(msgspec.Struct, frozen=True, tag="agreed"):
    """The ranks have agreed, through the run's store, on ``attempt``, which no other attempt is called."""

    attempt: str
    start: str = ""


class TraceFinished(msgspec.Struct, frozen=True, tag="finished"):
    """A trace is complete under its name; ``path`` is relative to the folder, ``cycle`` counts from 0."""

    rank: int
    path: str
    size_bytes: int
    timestamp: dict[str, float | int]
    cycle: int
    start: str = ""


class TraceExpired(msgspec.Struct, frozen=True, tag="expired"):
    """A trace is one more than its rank was asked to keep: it goes once it is merged, or at once if nobody merges."""

    path: str
    start: str = ""


class RankClosed(msgspec.Struct, frozen=True, tag="closed"):
    """The rank writes nothing more in this attempt."""

    rank: int
    start: str = ""


Entry = RankStarted | RanksBeside | AttemptAgreed | TraceFinished | TraceExpired | RankClosed

_DECODER = msgspec.json.Decoder(Entry)


@dataclass(slots=True)
class RankManifest:
    """What one rank has told in one of its starts: whether it closed since, its traces and those of them that expired.

    ``agreed`` is the attempt's id, empty where none is known; ``beside`` names starts of other ranks.
    """

    rank: int
    started: RankStarted | None = None
    closed: bool = False
    agreed: str = ""
    beside: set[str] = field(default_factory=set)
    traces: list[TraceFinished] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)

    @property
    def start(self) -> str:
        """The name of the start; empty if it is not known."""
        return self.started.start if self.started is not None else ""

    @property
    def kept(self) -> list[TraceFinished]:
        """The traces that did not expire."""
        return [trace for trace in self.traces if trace.path not in self.expired]


def append_entry(folder: Path, rank: int, entry: Entry) -> None:
    """Appends ``entry`` to the manifest of ``rank`` in one write, so that a reader sees a whole line or none.

    Where a process died in mid-line, the line is ended first. Raises OSError when the disk is full.
    """
    path = _path(folder, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    append_line(path, msgspec.json.encode(entry))


def read_manifest(folder: Path) -> list[RankManifest]:
    """The last start of each rank that wrote into ``folder``, by rank; a torn line is passed over."""
    return [starts[-1] for starts in read_starts(folder)]


def read_starts(folder: Path) -> list[list[RankManifest]]:
    """For each rank that wrote into ``folder``, by rank, all its starts, the last one last."""
    paths = (folder / ".manifest").glob("rank*.jsonl")
    ranks = (_read_rank(path) for path in paths if path.stem.removeprefix("rank").isdigit())
    return sorted(ranks, key=lambda starts: starts[0].rank)


def _path(folder: Path, rank: int) -> Path:
    return folder / ".manifest" / f"rank{rank}.jsonl"


def _read_rank(path: Path) -> list[RankManifest]:
    rank = int(path.stem.removeprefix("rank"))
    starts: list[RankManifest] = []
    for entry in _entries(path):
        if isinstance(entry, RankStarted) or not starts:
            starts.append(RankManifest(rank))
        _apply(starts, entry)
    return starts or [RankManifest(rank)]


def _entries(path: Path) -> Iterator[Entry]:
    try:
        lines: Iterable[bytes] = path.read_bytes().splitlines()
    except OSError as error:
        raise TraceFileError(f"Cannot read the manifest {path}: {error.strerror}. Check who owns it.") from error
    for line in lines:
        try:
            yield _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # torn: the rank died while it wrote it, and what it spoke of is not complete either


def _apply(starts: list[RankManifest], entry: Entry) -> None:
    manifest = next((it for it in reversed(starts) if it.start == entry.start), starts[-1])
    match entry:
        case RankStarted():
            starts[-1].started = entry
        case RanksBeside():
            manifest.beside.update(entry.starts)
        case AttemptAgreed():
            manifest.agreed = entry.attempt
        case TraceFinished():
            for other in starts:  # whichever wrote it before
                other.traces = [trace for trace in other.traces if trace.path != entry.path]
                other.expired.discard(entry.path)
            manifest.traces.append(entry)
        case TraceExpired():
            manifest.expired.add(entry.path)
        case RankClosed():
            manifest.closed = True
