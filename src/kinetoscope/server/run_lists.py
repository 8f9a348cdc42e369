"""Data of the pages that list runs. Names come from untrusted files."""

import os
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from threading import Lock
from urllib.parse import quote

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.paths.run_groups import RunGroup, find_run_group, number_groups
from kinetoscope.core.text.wording import format_count, sanitize_sentence
from kinetoscope.formats.run_row import RunRow, read_row
from kinetoscope.pages.run_list import ListData, ListedFile, ListedRun, RunFiles
from kinetoscope.server.row_filler import RowFiller
from kinetoscope.server.run_search import (
    MAX_ENTRIES,
    FoundFile,
    FoundRun,
    FoundRuns,
    ManifestStats,
    find_runs,
    relative_to_run,
)
from kinetoscope.status.health import ACTIVE_STATES, ENDED_STATES, RunState, RunStatus, read_run_status
from kinetoscope.status.live_steps import read_live_steps
from kinetoscope.status.status_screen import build_status_screen

MAX_ROWS = 1000
"""Limit of runs, and of files of one run, in a page."""

MAX_TREND = 20
"""Limit of runs in the trend of a step time."""

_ACTIVE_REFRESH_MS, _IDLE_REFRESH_MS = 2_000, 10_000
_SEARCH_TTL_S = 1.0
_UNKNOWN_ROW = RunRow(content_hash="")


class RunLists:
    """Data of the pages on the runs in ``folder``; traces open in the Perfetto at ``perfetto_url``.

    ``filler`` computes missing rows, if given. Requests of the same second share a search.
    """

    def __init__(self, folder: RunFolder, perfetto_url: str, filler: RowFiller | None = None) -> None:
        self.folder, self.perfetto_url = folder, perfetto_url
        self._filler = filler
        self._rows: dict[str, RunRow] = {}
        self._queued: set[str] = set()
        self._groups: dict[str, RunGroup] = {}
        self._known: dict[str, tuple[ManifestStats, FoundRun]] = {}
        self._found, self._found_at = FoundRuns([], is_complete=True), -_SEARCH_TTL_S
        self._lock = Lock()

    def find(self) -> FoundRuns:
        """Return the runs as they are now."""
        with self._lock:
            if time.monotonic() - self._found_at >= _SEARCH_TTL_S:
                self._found = find_runs(self.folder, known=self._known)
                self._read_rows(self._found.runs)
                self._found_at = time.monotonic()
            return self._found

    def find_run(self, name: str) -> FoundRun:
        """Return the run of this name.

        Raises:
            FileNotFoundError: there is none.
        """
        return _find_by_name(self.find(), name)

    def all(self) -> ListData:
        """Return the list of all runs; if there is only one, its page."""
        found = self.find()
        if len(found.runs) == 1 and found.is_complete:
            return self.one(found.runs[0].name)
        runs = self._build_rows(found.runs)[:MAX_ROWS]
        notes = [] if found.is_complete else [f"Only the first {MAX_ENTRIES:,} files and folders were looked at."]
        if len(found.runs) > MAX_ROWS:
            notes.append(f"And {len(found.runs) - MAX_ROWS:,} more runs: view a folder further down to see them.")
        return self._build_data(f"Runs in {self.folder_name}", runs, notes=notes)

    def one(self, name: str) -> ListData:
        """Return the page of one run with its files."""
        found = self.find()
        run = _find_by_name(found, name)
        rows = {one.key: one for one in self._build_rows(found.runs)}
        listed = rows[quote_name(name)]
        status = self._read_status(run)
        is_followed = run.state is not RunState.FINISHED
        trend = _find_trend(listed, rows)
        files = RunFiles(
            run=listed,
            trend=trend,
            max_step_ns=max((one.step_ns or 0.0 for one in trend), default=0.0),
            live_status=build_status_screen(status) if status is not None and is_followed else None,
            live_steps=None if status is None else read_live_steps(Path(self.path_of(name)), status),
            overview=self._rows.get(name, _UNKNOWN_ROW).overview,
            path=shlex.quote(sanitize_sentence(self.path_of(name))),
            is_only=len(found.runs) == 1 and found.is_complete,
            reports=[_build_file("report", file, run.name) for file in run.reports[:MAX_ROWS]],
            traces=[_build_file("trace", file, run.name) for file in run.traces[:MAX_ROWS]],
            num_left_out=max(0, len(run.traces) - MAX_ROWS),
        )
        return self._build_data(listed.title, [listed], files=files)

    def _read_status(self, run: FoundRun) -> RunStatus | None:
        """Return the last status of the ranks; None without a pulse."""
        status = run.status
        if status is None and run.state in ENDED_STATES:
            status = read_run_status(Path(self.path_of(run.name)))
        return status if status is not None and status.ranks else None

    @property
    def folder_name(self) -> str:
        """Name of the folder on pages."""
        return sanitize_sentence(self.folder.path.name or str(self.folder.path))

    def run_title(self, name: str) -> str:
        """Return the name of a run on pages."""
        return self.folder_name if name == "." else sanitize_sentence(name)

    def path_of(self, name: str) -> str:
        """Return the path of a run."""
        return os.path.normpath(self.folder.path / name)

    def _build_data(
        self, title: str, runs: list[ListedRun], *, notes: Sequence[str] = (), files: RunFiles | None = None
    ) -> ListData:
        changes = any(run.is_queued or run.is_active for run in runs)
        has_ended = files is not None and _may_stop(files)
        return ListData(
            title=title,
            folder=sanitize_sentence(str(self.folder.path)),
            notes=[*notes],
            runs=runs,
            files=files,
            perfetto_url=self.perfetto_url,
            refresh_ms=_ACTIVE_REFRESH_MS if changes else 0 if has_ended else _IDLE_REFRESH_MS,
        )

    def _read_rows(self, runs: Sequence[FoundRun]) -> None:
        """Read the cached rows of the present states of runs, and request the missing ones.

        A row that is computed meanwhile, or before the next search, is missing: its run counts as queued until then.
        """
        queued, rows = self._find_queued(runs), dict[str, RunRow]()
        for run in runs:
            content_hash, row = run.content_hash, self._rows.get(run.name)
            if row is None or row.content_hash != content_hash:
                row = read_row(Path(self.path_of(run.name)), content_hash)
            if row is not None:
                rows[run.name] = row
        self._rows = rows  # replaced at once: other threads read it meanwhile
        if self._filler is not None:
            unknown = (run for run in runs if run.name not in rows)
            self._filler.request_rows([run for run in unknown if run.traces or run.unsaved])
        self._queued = queued | self._find_queued(runs)

    def _find_queued(self, runs: Sequence[FoundRun]) -> set[str]:
        return {run.name for run in runs if self._filler is not None and self._filler.is_pending(run.name)}

    def _build_rows(self, runs: Sequence[FoundRun]) -> list[ListedRun]:
        """Return the list entries of runs."""
        rows = self._rows
        before = _find_predecessors(runs, rows, self._read_group)
        by_time = sorted(runs, key=_get_when_ns)
        numbers = number_groups(self._read_group(run.name) for run in by_time)
        groups = dict(zip((run.name for run in by_time), numbers, strict=True))
        return [self._build_row(run, rows, before.get(run.name), groups[run.name]) for run in runs]

    def _read_group(self, name: str) -> RunGroup:
        """Return the group of a run, read once: its command does not change."""
        if name not in self._groups:
            self._groups[name] = find_run_group(self.path_of(name))
        return self._groups[name]

    def _build_row(self, run: FoundRun, rows: Mapping[str, RunRow], before: str | None, group: int) -> ListedRun:
        """Return the list entry of a run of a group; ``before`` is the name of the run to compare it with."""
        row = rows.get(run.name, _UNKNOWN_ROW)
        step_before_ns = rows[before].step_ns if before is not None else None
        report = (
            _build_address("report", max(run.reports, key=_get_changed_ns).name)
            if run.reports
            else f"/generated/?run={quote_name(run.name)}"
        )
        return ListedRun(
            key=quote_name(run.name),
            title=self.run_title(run.name),
            address=_build_address("run", run.name),
            group=group,
            state=None if run.state is RunState.UNKNOWN and not run.ranks else run.state.value,
            is_active=run.state in ACTIVE_STATES if run.status is None else run.status.is_active,
            when_ms=_to_ms(run.when_ns),
            has_start_time=run.started_ns is not None,
            changed_ms=_to_ms(run.changed_ns),
            hosts=[sanitize_sentence(host) for host in run.hosts or row.hosts],
            devices=[sanitize_sentence(name) for name in row.devices],
            num_ranks=len(run.ranks or row.ranks) or None,
            world_size=run.world_size,
            num_steps=row.num_steps,
            step_ns=row.step_ns,
            change=row.step_ns / step_before_ns - 1 if row.step_ns is not None and step_before_ns else None,
            before_key=None if before is None else quote_name(before),
            before_title=None if before is None else self.run_title(before),
            finding=None if row.finding is None else sanitize_sentence(row.finding),
            saving=sanitize_sentence(row.saving),
            mfu=row.mfu,
            peak_bytes=row.peak_bytes,
            peak_is_of_cpu=row.peak_is_of_cpu,
            report=report if run.traces or run.reports or run.unsaved else None,
            has_report=bool(run.reports),
            num_traces=len(run.traces),
            traces_bytes=sum(trace.size_bytes for trace in run.traces),
            notes=self._build_notes(run),
            why_unknown=sanitize_sentence(row.why_unknown),
            is_queued=run.name in self._queued,
        )

    def _build_notes(self, run: FoundRun) -> list[str]:
        """Return warnings on a run."""
        notes = [sanitize_sentence(note) for note in (run.no_data_reason, run.problem) if note]
        if run.training_run is not None:
            number, description = run.training_run
            notes.insert(0, f"Training run {number} of its process: {description}.")
        if run.unsaved:
            command = f"kinetoscope recover {shlex.quote(sanitize_sentence(self.path_of(run.name)))}"
            notes.append(
                f"{format_count(len(run.unsaved), 'killed rank')} left unsaved records. To make traces: {command}"
            )
        return notes


def _find_by_name(found: FoundRuns, name: str) -> FoundRun:
    """Return the run of a name; raise FileNotFoundError if there is none."""
    run = next((run for run in found.runs if run.name == name), None)
    if run is None:
        raise FileNotFoundError(name)
    return run


def _find_predecessors(
    runs: Iterable[FoundRun], rows: Mapping[str, RunRow], group_of_run: Callable[[str], RunGroup]
) -> dict[str, str]:
    """Return, by name, the run before each run with a step time: of the same folder and group, ranks and devices."""
    earlier: defaultdict[object, list[tuple[RunGroup, str]]] = defaultdict(list)
    found: dict[str, str] = {}
    for run in sorted(runs, key=_get_when_ns):
        row = rows.get(run.name)
        if row is None or row.step_ns is None or run.when_ns is None:
            continue
        like = earlier[str(PurePosixPath(run.name).parent), len(row.ranks), tuple(row.devices)]
        group = group_of_run(run.name)
        before = next((name for other, name in reversed(like) if group.has(other)), None)
        if before is not None:
            found[run.name] = before
        like.append((group, run.name))
    return found


def _find_trend(run: ListedRun, rows: Mapping[str, ListedRun]) -> list[ListedRun]:
    """Return a run with those before and after it that it compares with; empty without any."""
    after = {row.before_key: row for row in rows.values() if row.before_key is not None}
    trend = [run]
    while len(trend) < MAX_TREND and (key := trend[0].before_key) is not None:
        trend.insert(0, rows[key])
    while trend[-1].key in after:
        trend.append(after[trend[-1].key])
    first = max(0, min(trend.index(run), len(trend) - MAX_TREND))
    return trend[first : first + MAX_TREND] if len(trend) > 1 else []


def _may_stop(files: RunFiles) -> bool:
    """Return whether the page of a run without activity stays as it is.

    The only run in a folder of runs may get company, which its page at ``/`` shows.
    """
    has_ended = files.run.state is None or files.run.state in {state.value for state in ENDED_STATES}
    return has_ended and (not files.is_only or files.run.key == ".")


def quote_name(name: str) -> str:
    """Return the name of a run or file as a part of an address, safe in HTML."""
    return quote(os.fsencode(name))


def _build_address(kind: str, name: str) -> str:
    """Return the address of a run or file."""
    return f"/{kind}/{'' if name == '.' else quote_name(name)}"


def _build_file(kind: str, file: FoundFile, run: str) -> ListedFile:
    return ListedFile(
        name=sanitize_sentence(relative_to_run(file.name, run)),
        address=_build_address(kind, file.name),
        size_bytes=file.size_bytes,
        changed_ms=file.changed_ns / 1e6,
        opens_in_perfetto=kind == "trace" and not file.name.endswith(".zst"),
    )


def _get_when_ns(run: FoundRun) -> int:
    return run.when_ns or 0


def _get_changed_ns(file: FoundFile) -> int:
    return file.changed_ns


def _to_ms(moment_ns: int | None) -> float | None:
    return None if moment_ns is None else moment_ns / 1e6
