"""formats: the manifest, ``{folder}/.manifest/rank{r}.jsonl``. What a rank has finished flows in; who merges reads it.

One JSON object per line, appended by the one writer thread of the one rank: nobody waits for anybody.
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


class TraceFinished(msgspec.Struct, frozen=True, tag="finished"):
    """A trace is complete under its name; ``path`` is relative to the folder, ``cycle`` counts from 0."""

    rank: int
    path: str
    size_bytes: int
    timestamp: dict[str, float | int]
    cycle: int


class TraceExpired(msgspec.Struct, frozen=True, tag="expired"):
    """A trace is one more than its rank was asked to keep: it goes once it is merged, or at once if nobody merges."""

    path: str


class RankClosed(msgspec.Struct, frozen=True, tag="closed"):
    """The rank writes nothing more in this attempt."""

    rank: int


Entry = RankStarted | TraceFinished | TraceExpired | RankClosed

_DECODER = msgspec.json.Decoder(Entry)


@dataclass(slots=True)
class RankManifest:
    """What one rank has told: its last start, whether it closed since, its traces and those of them that expired.

    Only the last start counts: an earlier run in the same folder is none of this one's business.
    """

    rank: int
    started: RankStarted | None = None
    closed: bool = False
    traces: list[TraceFinished] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)

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
    """The manifests of all ranks that wrote into ``folder``, by rank; a torn line is passed over."""
    paths = (folder / ".manifest").glob("rank*.jsonl")
    manifests = (_read_rank(path) for path in paths if path.stem.removeprefix("rank").isdigit())
    return sorted(manifests, key=lambda manifest: manifest.rank)


def _path(folder: Path, rank: int) -> Path:
    return folder / ".manifest" / f"rank{rank}.jsonl"


def _read_rank(path: Path) -> RankManifest:
    manifest = RankManifest(int(path.stem.removeprefix("rank")))
    for entry in _entries(path):
        _apply(manifest, entry)
    return manifest


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


def _apply(manifest: RankManifest, entry: Entry) -> None:
    match entry:
        case RankStarted():
            manifest.started, manifest.closed = entry, False
            manifest.traces = []
            manifest.expired = set()
        case TraceFinished():
            manifest.traces = [trace for trace in manifest.traces if trace.path != entry.path] + [entry]
            manifest.expired.discard(entry.path)
        case TraceExpired():
            manifest.expired.add(entry.path)
        case RankClosed():
            manifest.closed = True
