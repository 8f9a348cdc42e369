"""formats: the manifest, ``{folder}/.manifest/rank{r}.jsonl``. What a rank has finished flows in; who merges reads it.

One JSON object per line, appended by the one writer thread of the one rank: nobody waits for anybody.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.json_lines import append_line
from kinetoscope.training.run_folder import RunFolder, is_name_inside

_FOLDER = ".manifest"
_MANIFEST = re.compile(r"rank(0|[1-9][0-9]{0,8})\.jsonl")
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class RankStarted(msgspec.Struct, frozen=True, tag="started"):
    """An attempt of a rank begins to write into the folder. ``start`` is the name of its live folder."""

    rank: Number
    local_rank: Number
    node_rank: Number
    world_size: Number
    local_world_size: Number
    pid: Number
    host: str
    attempt: str
    start: str = ""


class TraceFinished(msgspec.Struct, frozen=True, tag="finished"):
    """A trace is complete under its name; ``path`` is relative to the folder, ``cycle`` counts from 0."""

    rank: Number
    path: str
    size_bytes: int
    timestamp: dict[str, float | int]
    cycle: Number


class TraceExpired(msgspec.Struct, frozen=True, tag="expired"):
    """A trace is one more than its rank was asked to keep: it goes once it is merged, or at once if nobody merges."""

    path: str


class RankClosed(msgspec.Struct, frozen=True, tag="closed"):
    """The rank writes nothing more in this attempt."""

    rank: Number


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
    expired: set[str] = field(default_factory=set)
    _traces: dict[str, TraceFinished] = field(default_factory=dict)

    @property
    def traces(self) -> list[TraceFinished]:
        """The traces, each once, in the order in which they were finished."""
        return list(self._traces.values())

    def add(self, entry: Entry) -> None:
        """Takes note of the manifest's next line."""
        match entry:
            case RankStarted():
                self.started, self.closed = entry, False
                self._traces = {}
                self.expired = set()
            case TraceFinished():
                self._traces.pop(entry.path, None)
                self._traces[entry.path] = entry
                self.expired.discard(entry.path)
            case TraceExpired():
                self.expired.add(entry.path)
            case RankClosed():
                self.closed = True

    @property
    def kept(self) -> list[TraceFinished]:
        """The traces that did not expire."""
        return [trace for trace in self.traces if trace.path not in self.expired]


def append_entry(folder: Path, rank: int, entry: Entry) -> None:
    """Appends ``entry`` to the manifest of ``rank`` in one write, so that a reader sees a whole line or none.

    Where a process died in mid-line, the line is ended first. Raises OSError when the disk is full.
    """
    traces = RunFolder(folder)
    traces.make_folder(_FOLDER)
    append_line(traces, f"{_FOLDER}/rank{rank}.jsonl", msgspec.json.encode(entry))


def read_manifest(folder: Path) -> list[RankManifest]:
    """The manifests of all ranks that wrote into ``folder``, by rank. A torn line is passed over, and so is one that
    names a trace outside of the folder."""
    traces = RunFolder(folder)
    found = (_MANIFEST.fullmatch(name) for name in traces.names(_FOLDER))
    return sorted((_read_rank(traces, int(it[1])) for it in found if it), key=lambda manifest: manifest.rank)


def _read_rank(traces: RunFolder, rank: int) -> RankManifest:
    manifest = RankManifest(rank)
    for entry in _entries(traces, f"{_FOLDER}/rank{rank}.jsonl"):
        if not isinstance(entry, (TraceFinished, TraceExpired)) or is_name_inside(entry.path):
            manifest.add(entry)
    return manifest


def _entries(traces: RunFolder, name: str) -> Iterator[Entry]:
    try:
        lines: Iterable[bytes] = traces.read(name).splitlines()
    except OSError as error:
        reason = error.strerror or error
        raise TraceFileError(f"Cannot read the manifest {traces.path / name}: {reason}. Check who owns it.") from error
    for line in lines:
        try:
            yield _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue  # torn: the rank died while it wrote it, and what it spoke of is not complete either
