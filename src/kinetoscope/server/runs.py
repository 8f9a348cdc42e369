"""Finds the runs in a folder, with their traces and reports. Anybody may have filled the folder."""

import hashlib
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path, PurePosixPath

from kinetoscope.core.paths.attempt_folders import MANIFESTS, attempt_of_name
from kinetoscope.core.paths.run_folder import RunFolder, is_name_inside
from kinetoscope.core.paths.user_cache import own_code
from kinetoscope.errors import KinetoscopeError, TraceFileError
from kinetoscope.formats.manifest import STARTED, RankManifest, read_manifest, reason_of
from kinetoscope.formats.perfetto import SUFFIXES as PERFETTO_SUFFIXES
from kinetoscope.pulse.training_notes import describe_training_run
from kinetoscope.spool.folders import live_folder_of, live_folders, read_live_run
from kinetoscope.spool.owner_lock import Owner, owner_state
from kinetoscope.status.judging import GOING, RunState, RunStatus, look_at_run

MOST_ENTRIES = 100_000
"""No more files and folders are looked at, so that a page is there in seconds whatever the folder is."""

_COMPRESSIONS = ("", ".gz", ".zst")
_TRACES = tuple(suffix + packed for suffix in (".json", *PERFETTO_SUFFIXES) for packed in _COMPRESSIONS)
_REPORT = ".html"
_REPORT_MARK = b'<meta name="generator" content="kinetoscope '
_MARKED_BYTES = 4096
_LIVE = "live"
_NUMBERS = re.compile("([0-9]{1,15})")
_BY_LOCKS = (RunState.RECORDING, RunState.KILLED, RunState.UNKNOWN, RunState.FINISHED)
"""If the locks of processes and their manifests tell of several states, the first of these counts."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A trace or a report; ``name`` is relative to the folder that was searched. ``mark`` tells it from what it was: it
    has its size, its time and when its entry changed, which nobody can set."""

    name: str
    size_bytes: int
    changed_ns: int
    mark: str = ""


@dataclass(slots=True)
class FoundRun:
    """A run, or a folder with traces that belong to none; ``name`` is relative to the folder that was searched, which
    is ``.`` itself. ``ranks`` are those that wrote a manifest, on ``hosts``, and ``began_ns`` is when the first of them
    did, in unix nanoseconds. ``unsaved`` names the killed processes that have left records which are in no trace yet.
    ``why_nothing`` says why it recorded nothing, ``problem`` what could not be read. ``status`` is what its ranks do
    now, if they have pulses and it may still be going. ``training`` is its number among the training runs of its
    process, and what tells it from the others."""

    name: str
    state: RunState = RunState.UNKNOWN
    ranks: list[int] = field(default_factory=list)
    world_size: int | None = None
    hosts: list[str] = field(default_factory=list)
    began_ns: int | None = None
    unsaved: list[str] = field(default_factory=list)
    traces: list[FoundFile] = field(default_factory=list)
    reports: list[FoundFile] = field(default_factory=list)
    why_nothing: str = ""
    problem: str = ""
    status: RunStatus | None = None
    training: tuple[int, str] | None = None

    @property
    def changed_ns(self) -> int | None:
        """When a trace or report of it was last written; None if there is none."""
        return max((file.changed_ns for file in [*self.traces, *self.reports]), default=None)

    @property
    def when_ns(self) -> int | None:
        """When it began, or else when it was last written; None if neither is known."""
        return self.changed_ns if self.began_ns is None else self.began_ns

    @property
    def made_from(self) -> str:
        """The state of what an analysis of the run reads, and of our own code."""
        traces = sorted((within(file.name, self.name), file.mark) for file in self.traces)
        return hashlib.sha256(repr((_own_code(), traces, sorted(self.unsaved))).encode(errors="replace")).hexdigest()


def within(name: str, run: str) -> str:
    """The name of a file in the folder of a run."""
    return name if run == "." else name.removeprefix(f"{run}/")


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The runs in a folder, those that still run first, then the newest. ``is_complete`` is false if the folder holds
    more than `MOST_ENTRIES` files and folders."""

    runs: list[FoundRun]
    is_complete: bool


Manifests = tuple[tuple[str, int, int], ...]
"""The state of the files of a run's manifests: the place, the size and when the entry changed, of each."""


def find_runs(
    folder: RunFolder,
    most_entries: int | None = None,
    known: "dict[str, tuple[Manifests, FoundRun]] | None" = None,
) -> FoundRuns:
    """Searches a folder and those below it, without links and hidden names. Raises OSError if it cannot be read.

    Runs that have finished are noted in ``known``, for the next search: then their manifests need not be read again.
    """
    walk = _Walk(folder, MOST_ENTRIES if most_entries is None else most_entries)
    walk.run()
    manifests: dict[str, list[str]] = defaultdict(list)
    for manifest in walk.manifests:
        manifests[run_of_traces(manifest)].append(manifest)
    roots = {*manifests, *walk.alive}
    known = {} if known is None else known
    runs = {root: _described(folder.path, root, manifests.get(root, []), known) for root in roots - set(walk.alive)}
    runs |= {root: _described(folder.path, root, manifests.get(root, []), {}) for root in walk.alive}
    homes: dict[str, str] = {}
    for file in walk.files:
        home = file.name.rpartition("/")[0]
        if home not in homes:
            homes[home] = _run_of_file(file.name, roots)
        run = runs.setdefault(homes[home], FoundRun(homes[home]))
        (run.reports if file.name.endswith(_REPORT) else run.traces).append(file)
    for run in runs.values():
        if not _trained_several_times(run, runs):
            run.training = None
        run.traces.sort(key=_order)
        run.reports.sort(key=_order)
    order = sorted(runs.values(), key=lambda run: (run.state in GOING, run.when_ns or 0), reverse=True)
    return FoundRuns(order, walk.is_complete)


_own_code = cache(own_code)  # it looks at many files


def is_trace_name(name: str) -> bool:
    """Whether this can be the name of a trace in the folder: a visible one that ends as traces do."""
    return name.endswith(_TRACES) and _is_visible(name) and PurePosixPath(name).name != STARTED


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

    def __init__(self, folder: RunFolder, most_entries: int) -> None:
        self.files: list[FoundFile] = []
        self.manifests: list[str] = []
        self.alive: list[str] = []
        self.is_complete = True
        self._folder = folder
        self._num_entries, self._most_entries = 0, most_entries
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
                self.is_complete = self._num_entries <= self._most_entries
                if not self.is_complete:
                    return
                name = entry.name if place == "." else f"{place}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    self._note_folder(place, name, entry.name)
                elif entry.is_file(follow_symlinks=False) and self._is_served(name):
                    with suppress(OSError):  # it may be deleted by now
                        self._note_file(name, entry.stat(follow_symlinks=False))

    def _note_file(self, name: str, found: os.stat_result) -> None:
        mark = f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_ino}"
        self.files.append(FoundFile(name, found.st_size, found.st_mtime_ns, mark))

    def _note_folder(self, place: str, name: str, last: str) -> None:
        if last == MANIFESTS:
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


def run_of_traces(place: str) -> str:
    """The folder of the run whose manifest is in the folder ``place``: that of its traces, or of an attempt in it."""
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
    is_merged = file.name.rpartition("/")[2].startswith("merged_trace")
    return not is_merged, [int(part) if number % 2 else part for number, part in enumerate(parts)]


def _described(folder: Path, name: str, manifests: list[str], known: dict[str, tuple[Manifests, FoundRun]]) -> FoundRun:
    """The run in the folder ``name``, without its files: as it is ``known``, if it had finished and is unchanged."""
    marks = _marks(folder, manifests)
    if name in known and known[name][0] == marks:
        return replace(known[name][1], traces=[], reports=[])
    run = _read(folder, name, manifests)
    if run.state is RunState.FINISHED and not run.problem:
        known[name] = (marks, replace(run))
    return run


def _trained_several_times(run: FoundRun, runs: Mapping[str, FoundRun]) -> bool:
    """Return whether the process of this run has recorded others: they are in the folder of the first."""
    first = run.training is not None and run.training[0] == 1
    later = runs.get("2" if run.name == "." else f"{run.name}/2")
    return not first or (later is not None and later.training is not None)


def _marks(folder: Path, manifests: list[str]) -> Manifests:
    marks: list[tuple[str, int, int]] = []
    for place in manifests:
        with suppress(OSError), os.scandir(folder / place / MANIFESTS) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                marks.append((f"{place}/{entry.name}", status.st_size, status.st_ctime_ns))
    return tuple(sorted(marks))


def _read(folder: Path, name: str, manifests: list[str]) -> FoundRun:
    """What the manifests and live folders of a run say."""
    run, path = FoundRun(name), folder / name
    try:
        found = [manifest for place in _newest(manifests) for manifest in read_manifest(folder / place)]
        left = dict(_owners_of_live_folders(path))
        states = [_state(path, manifest) for manifest in found] or [_STATES[owner] for owner in left.values()]
    except (OSError, KinetoscopeError) as error:
        run.problem = str(error)
        return run
    started = [manifest.started for manifest in found if manifest.started is not None]
    run.ranks = sorted({manifest.rank for manifest in found})
    run.world_size = max((one.ranks.world_size for one in started), default=None)
    run.hosts = sorted({one.attempt.host for one in started if one.attempt.host})
    run.began_ns = min(filter(None, (_began_ns(one.start) for one in started)), default=None)
    run.state = next((state for state in _BY_LOCKS if state in states), RunState.UNKNOWN)
    if run.state in (RunState.RECORDING, RunState.UNKNOWN):
        run.status = look_at_run(path)
        run.state = run.status.state if run.status.ranks else run.state
    run.unsaved = [name for name, owner in left.items() if owner is Owner.DEAD]
    run.why_nothing = reason_of(found)
    run.training = describe_training_run(path)
    return run


def _began_ns(start: str) -> int | None:
    """When a process began, by the name of its start; None where that has no time."""
    with suppress(ValueError, OverflowError):
        return int(datetime.strptime(start.partition("-")[0] + "Z", "%Y%m%dT%H%M%S%z").timestamp()) * 10**9
    return None


def _newest(manifests: list[str]) -> list[str]:
    """The folders of the run's last attempt."""
    last = max(map(_attempt, manifests), default=0)
    return [place for place in manifests if _attempt(place) == last]


def _attempt(place: str) -> int:
    return attempt_of_name(PurePosixPath(place).name) or 0


_STATES = {Owner.ALIVE: RunState.RECORDING, Owner.DEAD: RunState.KILLED, Owner.UNKNOWN: RunState.UNKNOWN}


def _state(run: Path, manifest: RankManifest) -> RunState:
    """How the process is doing that wrote a manifest last."""
    if manifest.closed or manifest.started is None:
        return RunState.FINISHED if manifest.closed else RunState.UNKNOWN
    return _STATES[owner_state(live_folder_of(run, manifest.start), manifest.started.attempt)]


def _owners_of_live_folders(run: Path) -> Iterator[tuple[str, Owner]]:
    for folder in live_folders(run):
        with suppress(TraceFileError):
            yield folder.name, owner_state(folder, read_live_run(folder).attempt)
