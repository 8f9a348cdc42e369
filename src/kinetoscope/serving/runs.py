"""Finds the runs in a folder, with their traces and reports. Anybody may have filled the folder."""

import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath

from kinetoscope.errors import KinetoscopeError, TraceFileError
from kinetoscope.formats.manifest import RankManifest, read_manifest
from kinetoscope.formats.perfetto import SUFFIXES as PERFETTO_SUFFIXES
from kinetoscope.live.folders import live_folder_of, live_folders, read_live_run
from kinetoscope.live.owner_lock import Owner, owner_state
from kinetoscope.training.attempt_folders import attempt_of_name
from kinetoscope.training.run_folder import RunFolder, is_name_inside

MOST_ENTRIES = 100_000
"""No more files and folders are looked at, so that a page is there in seconds whatever the folder is."""

_COMPRESSIONS = ("", ".gz", ".zst")
_TRACES = tuple(suffix + packed for suffix in (".json", *PERFETTO_SUFFIXES) for packed in _COMPRESSIONS)
_REPORT = ".html"
_REPORT_MARK = b'<meta name="generator" content="kinetoscope '
_MARKED_BYTES = 4096
_LIVE, _MANIFEST = "live", ".manifest"
_NUMBERS = re.compile("([0-9]{1,15})")


class RunState(Enum):
    """How a run is doing, as far as this machine can tell. If its processes differ, the first of these counts."""

    RUNNING = "running"
    KILLED = "killed"
    UNKNOWN = "unknown"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A trace or a report; ``name`` is relative to the folder that was searched."""

    name: str
    size_bytes: int
    changed_ns: int


@dataclass(slots=True)
class FoundRun:
    """A run, or a folder with traces that belong to none; ``name`` is relative to the folder that was searched, which
    is ``.`` itself. ``ranks`` are those that wrote a manifest. ``num_unsaved`` processes were killed and have left
    records that are in no trace yet. ``problem`` says what could not be read."""

    name: str
    state: RunState = RunState.UNKNOWN
    ranks: list[int] = field(default_factory=list)
    world_size: int | None = None
    num_unsaved: int = 0
    traces: list[FoundFile] = field(default_factory=list)
    reports: list[FoundFile] = field(default_factory=list)
    problem: str = ""

    @property
    def changed_ns(self) -> int | None:
        """When a trace or report of it was last written; None if there is none."""
        return max((file.changed_ns for file in [*self.traces, *self.reports]), default=None)


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The runs in a folder, those that still run first, then the newest. ``is_complete`` is false if the folder holds
    more than `MOST_ENTRIES` files and folders."""

    runs: list[FoundRun]
    is_complete: bool


def find_runs(folder: RunFolder) -> FoundRuns:
    """Searches a folder and those below it, without links and hidden names. Raises OSError if it cannot be read."""
    walk = _Walk(folder)
    walk.run()
    manifests: dict[str, list[str]] = defaultdict(list)
    for manifest in walk.manifests:
        manifests[_run_of_manifest(manifest)].append(manifest)
    roots = {*manifests, *walk.alive}
    runs = {root: _described(folder.path, root, manifests.get(root, [])) for root in roots}
    for file in walk.files:
        name = _run_of_file(file.name, roots)
        run = runs.setdefault(name, FoundRun(name))
        (run.reports if file.name.endswith(_REPORT) else run.traces).append(file)
    for run in runs.values():
        run.traces.sort(key=_order)
        run.reports.sort(key=_order)
    order = sorted(runs.values(), key=lambda run: (run.state is RunState.RUNNING, run.changed_ns or 0), reverse=True)
    return FoundRuns(order, walk.is_complete)


def is_trace_name(name: str) -> bool:
    """Whether this can be the name of a trace in the folder: a visible one that ends as traces do."""
    return name.endswith(_TRACES) and _is_visible(name)


def is_report(folder: RunFolder, name: str) -> bool:
    """Whether this is a page that ``kinetoscope report`` made. Raises OSError if it cannot be read."""
    if not name.endswith(_REPORT) or not _is_visible(name):
        return False
    with folder.open(name) as stream:
        return _REPORT_MARK in stream.read(_MARKED_BYTES)


def _is_visible(name: str) -> bool:
    return not any(part.startswith(".") for part in name.split("/"))


class _Walk:
    """A walk through a folder, level by level: what is high up is found even if the folder is huge."""

    def __init__(self, folder: RunFolder) -> None:
        self.files: list[FoundFile] = []
        self.manifests: list[str] = []
        self.alive: list[str] = []
        self.is_complete = True
        self._folder = folder
        self._num_entries = 0
        self._waiting = deque(["."])

    def run(self) -> None:
        """Finds the files, the folders with manifests, and those with live folders."""
        self._visit(self._waiting.popleft())
        while self._waiting and self.is_complete:
            try:
                self._visit(self._waiting.popleft())
            except OSError:
                continue  # it is gone, or not ours to read

    def _visit(self, place: str) -> None:
        with self._folder.open_folder(place) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                self._num_entries += 1
                self.is_complete = self._num_entries <= MOST_ENTRIES
                if not self.is_complete:
                    return
                name = str(PurePosixPath(place, entry.name))
                if entry.is_dir(follow_symlinks=False):
                    self._note_folder(place, name, entry.name)
                elif entry.is_file(follow_symlinks=False) and self._is_served(name):
                    found = entry.stat(follow_symlinks=False)
                    self.files.append(FoundFile(name, found.st_size, found.st_mtime_ns))

    def _note_folder(self, place: str, name: str, last: str) -> None:
        if last == _MANIFEST:
            self.manifests.append(place)
        elif last == _LIVE and _has_live_folder(self._folder.path / place):
            self.alive.append(place)
        elif not last.startswith(".") and is_name_inside(name):
            self._waiting.append(name)

    def _is_served(self, name: str) -> bool:
        if not is_name_inside(name):
            return False
        try:
            return is_trace_name(name) or is_report(self._folder, name)
        except OSError:
            return False


def _has_live_folder(run: Path) -> bool:
    try:
        return any(live_folders(run))
    except (OSError, KinetoscopeError):
        return False


def _run_of_manifest(place: str) -> str:
    """The run with a manifest in the folder ``place``, which is its folder of traces or of an attempt in there."""
    path = PurePosixPath(place)
    return str((path if attempt_of_name(path.name) is None else path.parent).parent)


def _run_of_file(name: str, runs: Iterable[str]) -> str:
    """The innermost of the ``runs`` around a file, else its folder, or the one around its folder of traces."""
    home = PurePosixPath(name).parent
    for folder in (home, *home.parents):
        if str(folder) in runs:
            return str(folder)
    while attempt_of_name(home.name) is not None or home.name in ("traces", "torch_traces"):
        home = home.parent
    return str(home)


def _order(file: FoundFile) -> tuple[bool, list[str | int]]:
    """Merged traces first, and then by name, with rank 2 before rank 10."""
    parts = _NUMBERS.split(file.name)
    is_merged = PurePosixPath(file.name).name.startswith("merged_trace")
    return not is_merged, [int(part) if number % 2 else part for number, part in enumerate(parts)]


def _described(folder: Path, name: str, manifests: list[str]) -> FoundRun:
    """The run in the folder ``name``, without its files."""
    run, path = FoundRun(name), folder / name
    try:
        found = [manifest for place in _newest(manifests) for manifest in read_manifest(folder / place)]
        left = list(_owners_of_live_folders(path))
        states = [_state(path, manifest) for manifest in found] or [_STATES[owner] for owner in left]
    except (OSError, KinetoscopeError) as error:
        run.problem = str(error)
        return run
    run.ranks = sorted({manifest.rank for manifest in found})
    run.world_size = max((one.started.ranks.world_size for one in found if one.started is not None), default=None)
    run.state = next((state for state in RunState if state in states), RunState.UNKNOWN)
    run.num_unsaved = left.count(Owner.DEAD)
    return run


def _newest(manifests: list[str]) -> list[str]:
    """The folders of the run's last attempt."""
    last = max(map(_attempt, manifests), default=0)
    return [place for place in manifests if _attempt(place) == last]


def _attempt(place: str) -> int:
    return attempt_of_name(PurePosixPath(place).name) or 0


_STATES = {Owner.ALIVE: RunState.RUNNING, Owner.DEAD: RunState.KILLED, Owner.UNKNOWN: RunState.UNKNOWN}


def _state(run: Path, manifest: RankManifest) -> RunState:
    """How the process is doing that wrote a manifest last."""
    if manifest.closed or manifest.started is None:
        return RunState.COMPLETE if manifest.closed else RunState.UNKNOWN
    return _STATES[owner_state(live_folder_of(run, manifest.start), manifest.started.attempt)]


def _owners_of_live_folders(run: Path) -> Iterator[Owner]:
    for folder in live_folders(run):
        with suppress(TraceFileError):
            yield owner_state(folder, read_live_run(folder).attempt)
