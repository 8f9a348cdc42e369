"""Search for runs in a folder, with their traces and reports. The folder's content is untrusted."""

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

from kinetoscope.core.paths.attempt_folders import MANIFESTS, parse_attempt_name
from kinetoscope.core.paths.run_folder import RunFolder, is_name_inside
from kinetoscope.core.paths.user_cache import code_fingerprint
from kinetoscope.errors import KinetoscopeError, TraceFileError
from kinetoscope.formats.manifest import START_FILE, RankManifest, find_reason, read_manifest
from kinetoscope.formats.perfetto import SUFFIXES as PERFETTO_SUFFIXES
from kinetoscope.pulse.process_runs import describe_training_run
from kinetoscope.spool.folders import find_spool_folder, find_spool_folders, read_spool_owner
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state
from kinetoscope.status.health import ACTIVE_STATES, RunState, RunStatus, read_run_status

MAX_ENTRIES = 100_000
"""Limit of visited files and folders, so that a page loads within seconds whatever the folder is."""

_COMPRESSIONS = ("", ".gz", ".zst")
_TRACES = tuple(suffix + packed for suffix in (".json", *PERFETTO_SUFFIXES) for packed in _COMPRESSIONS)
_REPORT = ".html"
_REPORT_MARK = b'<meta name="generator" content="kinetoscope '
_HEAD_BYTES = 4096
_SPOOL = "live"
_NUMBERS = re.compile("([0-9]{1,15})")
_STATE_PRECEDENCE = (RunState.RECORDING, RunState.KILLED, RunState.UNKNOWN, RunState.FINISHED)
"""If locks and manifests give several states, the first of these counts."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A trace or a report; ``name`` is relative to the searched folder.

    ``version`` has its size, its time and the time at which its entry changed, which no process can set.
    """

    name: str
    size_bytes: int
    changed_ns: int
    version: str = ""


@dataclass(slots=True)
class FoundRun:
    """A run, or a folder with traces of no run; ``name`` is relative to the searched folder, which is ``.`` itself.

    ``ranks`` have a manifest, on ``hosts``; ``started_ns`` is the start of the first one, in unix nanoseconds.
    ``unsaved`` names the killed processes with unsaved records. ``no_data_reason`` is why nothing was recorded,
    ``problem`` an error of reading. ``status`` is that of its ranks, if they have pulses and may still be running.
    ``training_run`` is its number among the training runs of its process, with a description.
    """

    name: str
    state: RunState = RunState.UNKNOWN
    ranks: list[int] = field(default_factory=list)
    world_size: int | None = None
    hosts: list[str] = field(default_factory=list)
    started_ns: int | None = None
    unsaved: list[str] = field(default_factory=list)
    traces: list[FoundFile] = field(default_factory=list)
    reports: list[FoundFile] = field(default_factory=list)
    no_data_reason: str = ""
    problem: str = ""
    status: RunStatus | None = None
    training_run: tuple[int, str] | None = None

    @property
    def changed_ns(self) -> int | None:
        """Time of the last write to a trace or report, in unix nanoseconds; None without any."""
        return max((file.changed_ns for file in [*self.traces, *self.reports]), default=None)

    @property
    def when_ns(self) -> int | None:
        """Start of the run, or else its last write, in unix nanoseconds; None if both are unknown."""
        return self.changed_ns if self.started_ns is None else self.started_ns

    @property
    def content_hash(self) -> str:
        """Hash of the files that an analysis of the run reads, and of Kinetoscope's code."""
        traces = sorted((relative_to_run(file.name, self.name), file.version) for file in self.traces)
        return hashlib.sha256(
            repr((_code_fingerprint(), traces, sorted(self.unsaved))).encode(errors="replace")
        ).hexdigest()


def relative_to_run(name: str, run: str) -> str:
    """Return the name of a file relative to the folder of its run."""
    return name if run == "." else name.removeprefix(f"{run}/")


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The runs in a folder, active ones first, then the newest.

    ``is_complete`` is False if the folder contains more than `MAX_ENTRIES` files and folders.
    """

    runs: list[FoundRun]
    is_complete: bool


ManifestStats = tuple[tuple[str, int, int], ...]
"""State of the manifest files of a run: name, size and time of change of each."""


def find_runs(
    folder: RunFolder,
    max_entries: int | None = None,
    known: "dict[str, tuple[ManifestStats, FoundRun]] | None" = None,
) -> FoundRuns:
    """Search a folder and its subfolders for runs, without links and hidden names.

    ``known`` keeps finished runs for the next search, so that their manifests are not read again.

    Raises:
        OSError: the folder cannot be read.
    """
    walk = _FolderWalk(folder, MAX_ENTRIES if max_entries is None else max_entries)
    walk.run()
    manifests: dict[str, list[str]] = defaultdict(list)
    for manifest in walk.manifests:
        manifests[find_run_of_traces(manifest)].append(manifest)
    roots = {*manifests, *walk.spool_folders}
    known = {} if known is None else known
    runs = {
        root: _describe_run(folder.path, root, manifests.get(root, []), known)
        for root in roots - set(walk.spool_folders)
    }
    runs |= {root: _describe_run(folder.path, root, manifests.get(root, []), {}) for root in walk.spool_folders}
    homes: dict[str, str] = {}
    for file in walk.files:
        home = file.name.rpartition("/")[0]
        if home not in homes:
            homes[home] = _find_run_of_file(file.name, roots)
        run = runs.setdefault(homes[home], FoundRun(homes[home]))
        (run.reports if file.name.endswith(_REPORT) else run.traces).append(file)
    for run in runs.values():
        if not _has_other_training_runs(run, runs):
            run.training_run = None
        run.traces.sort(key=_build_sort_key)
        run.reports.sort(key=_build_sort_key)
    order = sorted(runs.values(), key=lambda run: (run.state in ACTIVE_STATES, run.when_ns or 0), reverse=True)
    return FoundRuns(order, walk.is_complete)


_code_fingerprint = cache(code_fingerprint)  # it reads many files


def is_trace_name(name: str) -> bool:
    """Return whether a name may be that of a trace: it is not hidden, and has a suffix of traces."""
    return name.endswith(_TRACES) and _is_visible(name) and PurePosixPath(name).name != START_FILE


def is_report(folder: RunFolder, name: str) -> bool:
    """Return whether a file is a page of ``kinetoscope report``.

    Raises:
        OSError: it cannot be read.
    """
    if not name.endswith(_REPORT) or not _is_visible(name):
        return False
    with folder.open(name) as stream:
        return _REPORT_MARK in stream.read(_HEAD_BYTES)


def _is_visible(name: str) -> bool:
    return not any(part.startswith(".") for part in name.split("/"))


class _FolderWalk:
    """Breadth-first walk through a folder: what is near the top is found even if the folder is huge."""

    def __init__(self, folder: RunFolder, max_entries: int) -> None:
        self.files: list[FoundFile] = []
        self.manifests: list[str] = []
        self.spool_folders: list[str] = []
        self.is_complete = True
        self._folder = folder
        self._num_entries, self._max_entries = 0, max_entries
        self._waiting = deque(["."])

    def run(self) -> None:
        """Find the files, the folders with manifests, and those with spools."""
        self._scan(self._waiting.popleft())
        while self._waiting and self.is_complete:
            try:
                self._scan(self._waiting.popleft())
            except OSError:
                continue  # deleted, or not readable

    def _scan(self, directory: str) -> None:
        """Add the entries of one folder."""
        with self._folder.open_folder(directory) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                self._num_entries += 1
                self.is_complete = self._num_entries <= self._max_entries
                if not self.is_complete:
                    return
                name = entry.name if directory == "." else f"{directory}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    self._add_folder(directory, name, entry.name)
                elif entry.is_file(follow_symlinks=False) and self._is_served(name):
                    with suppress(OSError):  # deleted meanwhile
                        self._add_file(name, entry.stat(follow_symlinks=False))

    def _add_file(self, name: str, found: os.stat_result) -> None:
        version = f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_ino}"
        self.files.append(FoundFile(name, found.st_size, found.st_mtime_ns, version))

    def _add_folder(self, directory: str, name: str, last: str) -> None:
        if last == MANIFESTS:
            self.manifests.append(directory)
        elif last == _SPOOL and _has_spool(self._folder.path / directory):
            self.spool_folders.append(directory)
        elif not last.startswith(".") and is_name_inside(name):
            self._waiting.append(name)

    def _is_served(self, name: str) -> bool:
        if not is_name_inside(name):
            return False
        try:
            return is_trace_name(name) or is_report(self._folder, name)
        except OSError:
            return False


def _has_spool(run: Path) -> bool:
    try:
        return any(find_spool_folders(run))
    except (OSError, KinetoscopeError):
        return False


def find_run_of_traces(directory: str) -> str:
    """Return the run folder of a folder with a manifest: its parent, or that of the restart attempt."""
    path = PurePosixPath(directory)
    return str((path if parse_attempt_name(path.name) is None else path.parent).parent)


def _find_run_of_file(name: str, runs: Iterable[str]) -> str:
    """Return the innermost of the ``runs`` that contains a file, else its folder without folders of traces."""
    home = PurePosixPath(name).parent
    for folder in (home, *home.parents):
        if str(folder) in runs:
            return str(folder)
    while parse_attempt_name(home.name) is not None or home.name in ("traces", "torch_traces"):
        home = home.parent
    return str(home)


def _build_sort_key(file: FoundFile) -> tuple[bool, list[str | int]]:
    """Return a sort key: merged traces first, then by name, with rank 2 before rank 10."""
    parts = _NUMBERS.split(file.name)
    is_merged = file.name.rpartition("/")[2].startswith("merged_trace")
    return not is_merged, [int(part) if number % 2 else part for number, part in enumerate(parts)]


def _describe_run(
    folder: Path, name: str, manifests: list[str], known: dict[str, tuple[ManifestStats, FoundRun]]
) -> FoundRun:
    """Return the run in the folder ``name`` without its files, from ``known`` if it is finished and unchanged."""
    stats = _stat_manifests(folder, manifests)
    if name in known and known[name][0] == stats:
        return replace(known[name][1], traces=[], reports=[])
    run = _read_run(folder, name, manifests)
    is_active = run.status is not None and run.status.is_active  # another rank has failed
    if run.state in (RunState.FINISHED, RunState.FAILED) and not is_active and not run.problem:
        known[name] = (stats, replace(run))
    return run


def _has_other_training_runs(run: FoundRun, runs: Mapping[str, FoundRun]) -> bool:
    """Return whether the process of this run has recorded others: they are in the folder of the first."""
    first = run.training_run is not None and run.training_run[0] == 1
    later = runs.get("2" if run.name == "." else f"{run.name}/2")
    return not first or (later is not None and later.training_run is not None)


def _stat_manifests(folder: Path, manifests: list[str]) -> ManifestStats:
    """Return the state of the manifest files."""
    stats: list[tuple[str, int, int]] = []
    for directory in manifests:
        with suppress(OSError), os.scandir(folder / directory / MANIFESTS) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                stats.append((f"{directory}/{entry.name}", status.st_size, status.st_ctime_ns))
    return tuple(sorted(stats))


def _read_run(folder: Path, name: str, manifests: list[str]) -> FoundRun:
    """Return a run from its manifests and spools."""
    run, path = FoundRun(name), folder / name
    try:
        found = [
            manifest for directory in _select_last_attempt(manifests) for manifest in read_manifest(folder / directory)
        ]
        left = dict(_read_owners(path))
        states = [_find_process_state(path, manifest) for manifest in found] or [
            _STATE_OF_OWNER[owner] for owner in left.values()
        ]
    except (OSError, KinetoscopeError) as error:
        run.problem = str(error)
        return run
    started = [manifest.started for manifest in found if manifest.started is not None]
    run.ranks = sorted({manifest.rank for manifest in found})
    run.world_size = max((one.ranks.world_size for one in started), default=None)
    run.hosts = sorted({one.attempt.host for one in started if one.attempt.host})
    run.started_ns = min(filter(None, (_parse_start_ns(one.start) for one in started)), default=None)
    run.state = next((state for state in _STATE_PRECEDENCE if state in states), RunState.UNKNOWN)
    if run.state is not RunState.KILLED and (status := read_run_status(path)).ranks:
        has_finished = run.state is RunState.FINISHED and status.state is not RunState.FAILED
        run.status = None if has_finished else status
        run.state = run.state if has_finished else status.state
    run.unsaved = [name for name, owner in left.items() if owner is OwnerState.DEAD]
    run.no_data_reason = find_reason(found)
    run.training_run = describe_training_run(path)
    return run


def _parse_start_ns(start: str) -> int | None:
    """Return the start of a process from its start name, in unix nanoseconds; None if that has no time."""
    with suppress(ValueError, OverflowError):
        return int(datetime.strptime(start.partition("-")[0] + "Z", "%Y%m%dT%H%M%S%z").timestamp()) * 10**9
    return None


def _select_last_attempt(manifests: list[str]) -> list[str]:
    """Return the folders of the run's last restart attempt."""
    last = max(map(_parse_attempt, manifests), default=0)
    return [directory for directory in manifests if _parse_attempt(directory) == last]


def _parse_attempt(directory: str) -> int:
    """Return the restart attempt of a folder."""
    return parse_attempt_name(PurePosixPath(directory).name) or 0


_STATE_OF_OWNER = {
    OwnerState.ALIVE: RunState.RECORDING,
    OwnerState.DEAD: RunState.KILLED,
    OwnerState.UNKNOWN: RunState.UNKNOWN,
}


def _find_process_state(run: Path, manifest: RankManifest) -> RunState:
    """Return the state of the process that wrote a manifest last."""
    if manifest.closed or manifest.started is None:
        return RunState.FINISHED if manifest.closed else RunState.UNKNOWN
    return _STATE_OF_OWNER[read_owner_state(find_spool_folder(run, manifest.start), manifest.started.attempt)]


def _read_owners(run: Path) -> Iterator[tuple[str, OwnerState]]:
    """Yield the name and the owner's state of each spool."""
    for folder in find_spool_folders(run):
        with suppress(TraceFileError):
            yield folder.name, read_owner_state(folder, read_spool_owner(folder).attempt)
