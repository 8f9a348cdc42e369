"""Manifest ``{folder}/.manifest/rank{r}.jsonl`` of the traces that a rank has finished, for merging.

It has one JSON object per line, appended by the processes of one rank, so that no rank waits for another. Entries name
the start that wrote them; an entry without a name belongs to the last start.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.core.job.ranks import Attempt, Number, Ranks, Start
from kinetoscope.core.paths.attempt_folders import MANIFESTS, find_attempt_folders
from kinetoscope.core.paths.run_folder import RunFolder, is_name_inside
from kinetoscope.errors import KinetoscopeError, TraceFileError
from kinetoscope.formats.header import Count, Moment, describe_validation_error
from kinetoscope.formats.journal import append_line, journal_of_rank, journals_of_ranks, read_journal
from kinetoscope.formats.struct_json import encode_struct

_OF_ANOTHER_VERSION = "`$.type`"  # the end of the error for an entry of a kind that this version does not know


class RankStarted(msgspec.Struct, frozen=True, tag="started"):
    """An attempt of a rank begins to write into the folder."""

    ranks: Ranks
    attempt: Attempt

    @property
    def start(self) -> Start:
        """The name of the start, and of its spool folder."""
        return self.attempt.start


class ConcurrentRanks(msgspec.Struct, frozen=True, tag="beside"):
    """The starts of other ranks of the same launch and node that were alive when ``start`` began."""

    starts: list[Start]
    start: Start = ""


class AttemptAgreed(msgspec.Struct, frozen=True, tag="agreed"):
    """The ranks have agreed, through the run's store, on the id ``attempt``, which no other attempt has."""

    attempt: str
    start: Start = ""


class TraceFinished(msgspec.Struct, frozen=True, tag="finished"):
    """A trace is complete. ``path`` is relative to the folder, ``cycle`` counts from 0."""

    rank: Number
    path: str
    size_bytes: Count
    timestamp: Moment
    cycle: Number
    start: Start = ""


class TraceExpired(msgspec.Struct, frozen=True, tag="expired"):
    """The rank has more traces than it should keep: this one is deleted when it is merged, at once without merging."""

    path: str
    start: Start = ""


class RankClosed(msgspec.Struct, frozen=True, tag="closed"):
    """The rank writes nothing more in this attempt."""

    rank: Number
    start: Start = ""


class NothingRecorded(msgspec.Struct, frozen=True, tag="nothing"):
    """The run has ended and recorded nothing; ``why`` is a sentence with the reason and the remedy."""

    why: Annotated[str, msgspec.Meta(max_length=1000)]
    start: Start = ""


Entry = RankStarted | ConcurrentRanks | AttemptAgreed | TraceFinished | TraceExpired | RankClosed | NothingRecorded


@dataclass(slots=True)
class RankManifest:
    """The entries of one start of a rank: its traces, those that expired, and whether it has closed.

    ``agreed`` is the attempt's id, empty if unknown; ``concurrent_starts`` are starts of other ranks that were alive
    then. ``empty_reason`` is the reason for an empty recording, if that is known.
    """

    rank: int
    started: RankStarted | None = None
    closed: bool = False
    agreed: str = ""
    empty_reason: str = ""
    concurrent_starts: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    _traces: dict[str, TraceFinished] = field(default_factory=dict)

    @property
    def start(self) -> str:
        """The name of the start; empty if unknown."""
        return self.started.start if self.started is not None else ""

    @property
    def traces(self) -> list[TraceFinished]:
        """The traces, each once, in the order of finishing."""
        return list(self._traces.values())

    def add(self, entry: Entry) -> None:
        """Add the next entry of this start."""
        match entry:
            case RankStarted():
                self.started = entry
            case ConcurrentRanks():
                self.concurrent_starts.update(entry.starts)
            case AttemptAgreed():
                self.agreed = entry.attempt
            case TraceFinished():
                self._traces[entry.path] = entry
            case TraceExpired():
                self.expired.add(entry.path)
            case RankClosed():
                self.closed = True
            case NothingRecorded():
                self.empty_reason = entry.why

    def remove_trace(self, path: str) -> None:
        """Remove the trace at ``path``, because another start has replaced it."""
        self._traces.pop(path, None)
        self.expired.discard(path)

    @property
    def kept(self) -> list[TraceFinished]:
        """The traces that have not expired."""
        return [trace for trace in self.traces if trace.path not in self.expired]


def append_entry(folder: Path, rank: int, entry: Entry) -> None:
    """Append ``entry`` to the manifest of ``rank`` in one write, so that a reader sees a whole line or none.

    If a process died in the middle of a line, that line is ended first. Raises OSError when the disk is full.
    """
    traces = RunFolder(folder)
    traces.make_folder(MANIFESTS)
    append_line(traces, journal_of_rank(MANIFESTS, rank), encode_struct(entry))


def read_manifest(folder: Path) -> list[RankManifest]:
    """Return the last start of each rank that wrote into ``folder``, by rank.

    Torn lines are skipped, and so are lines that name a trace outside of the folder.
    """
    return [starts[-1] for starts in read_starts(folder)]


START_FILE = "started.json"
"""File in the folder of a run that `kinetoscope run` writes before it starts the command."""

UNSEEN_FILE = ".unseen"
"""File in the folder of a run with the reason, in a sentence, if `kinetoscope run` recorded nothing."""

_MAX_UNSEEN_BYTES = 4096
_NO_TRAINING = (
    "kinetoscope run started a command here, but no process below it has reached a step of a torch optimizer. Does it "
    "train with torch? A program that only evaluates has no such steps: record it with kinetoscope.profile in its "
    "loop. Python is not recorded if it runs with -I or -E, or in a container without this environment. If it cannot "
    "import kinetoscope, a line on stderr reports that."
)


def find_empty_reason(folder: Path) -> str:
    """Return why the last attempt of a run recorded nothing; "" as in `find_reason`.

    ``folder`` is that of the run or of its traces.
    """
    try:
        run = RunFolder(folder)
        folder_names = [".", *(name for name in run.names() if not name.startswith(".") and run.is_folder(name))]
        found = _last_attempt([run.path / folder_name for folder_name in folder_names])
        has_started = run.is_file(START_FILE)
    except (OSError, KinetoscopeError):
        return ""
    return find_reason(found) or (_read_unseen(run) if has_started and not found else "")


def _read_unseen(run: RunFolder) -> str:
    """Return why `kinetoscope run` recorded nothing, as a process below it reported if there was one."""
    try:
        text = run.read(UNSEEN_FILE, _MAX_UNSEEN_BYTES).decode()
    except (OSError, KinetoscopeError, UnicodeDecodeError):
        return _NO_TRAINING
    return f"kinetoscope run: {text}"


def find_reason(manifests: Sequence[RankManifest]) -> str:
    """Return why the run of these ranks recorded nothing; "" if unknown, or if a rank recorded something."""
    is_empty = not any(manifest.traces for manifest in manifests)
    return next((one.empty_reason for one in manifests if one.empty_reason and is_empty), "")


def _last_attempt(folder_names: Iterable[Path]) -> list[RankManifest]:
    """Return the manifests of the last attempt in any of the folders of a run's traces.

    torch's traces have a folder of their own.
    """
    by_folder = [find_attempt_folders(folder_name) for folder_name in folder_names]
    for number in sorted({number for folders in by_folder for number in folders}, reverse=True):
        of_attempt = [folders[number] for folders in by_folder if number in folders]
        if found := [manifest for traces in of_attempt for manifest in read_manifest(traces)]:
            return found
    return []


def read_starts(folder: Path, *, strict: bool = False) -> list[list[RankManifest]]:
    """Return all starts, in order, of each rank that wrote into ``folder``, by rank.

    It is like `read_manifest`, but if ``strict``, it raises `TraceFileError` for a line with an impossible value; else
    such a line is skipped, since a run that records must continue.
    """
    traces = RunFolder(folder)
    journals = journals_of_ranks(traces, MANIFESTS)
    return [_read_rank(traces, rank, name, strict) for rank, name in sorted(journals.items())]


def _read_rank(traces: RunFolder, rank: int, name: str, strict: bool) -> list[RankManifest]:
    starts = [RankManifest(rank)]
    by_name: dict[str, RankManifest] = {}
    writers: dict[str, RankManifest] = {}
    for entry in _entries(traces, name, strict):
        if isinstance(entry, RankStarted):
            starts.append(RankManifest(rank))
            by_name[entry.start] = starts[-1]
        manifest = by_name.get(entry.start, starts[-1])
        if isinstance(entry, (TraceFinished, TraceExpired)) and not is_name_inside(entry.path):
            continue
        if isinstance(entry, TraceFinished):
            writers.get(entry.path, manifest).remove_trace(entry.path)
            writers[entry.path] = manifest
        manifest.add(entry)
    return starts[1:] or starts


def _entries(traces: RunFolder, name: str, strict: bool) -> Iterator[Entry]:
    def check(number: int, error: Exception) -> None:
        is_of_another_version = str(error).endswith(_OF_ANOTHER_VERSION)
        if strict and isinstance(error, msgspec.ValidationError) and not is_of_another_version:
            raise TraceFileError(
                f"Cannot use the manifest {traces.path / name}: in line {number}, {describe_validation_error(error)}. "
                "Delete that line."
            ) from error

    try:
        yield from read_journal(traces, name, Entry, check)
    except OSError as error:
        reason = error.strerror or error
        raise TraceFileError(f"Cannot read the manifest {traces.path / name}: {reason}. Check who owns it.") from error
