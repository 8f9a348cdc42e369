"""State of a run: finished, killed or recording, from its files beside the traces."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from kinetoscope.errors import KinetoscopeError
from kinetoscope.formats.manifest import RankManifest, read_starts
from kinetoscope.spool.folders import find_spool_folder, is_spool_folder, read_spool_owner
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state

RunState = Literal["finished", "killed", "recording"]

_STATE_OF_OWNER: dict[OwnerState, RunState | None] = {
    OwnerState.ALIVE: "recording",
    OwnerState.DEAD: "killed",
    OwnerState.UNKNOWN: None,
}


class WrittenTrace(NamedTuple):
    """A trace and its processes.

    ``name`` is its file, or spool; ``starts`` names the starts of the processes that recorded it; ``is_recovered`` is
    true if `recover` made it.
    """

    name: str
    starts: Collection[str]
    is_recovered: bool


def run_state(traces: Iterable[WrittenTrace]) -> RunState | None:
    """Return the state of the run of these traces; None if unknown, as of a trace outside of its run's folder.

    A run was killed if one of its processes was, and has finished when all have.
    """
    starts: dict[Path, set[str]] = {}
    states: list[RunState | None] = []
    for trace in traces:
        path = Path(trace.name)
        if trace.is_recovered or is_spool_folder(path):
            states.append("killed" if trace.is_recovered else _spool_state(path))
        elif trace.starts or path.is_file():  # else its spool folder is gone, since its process has saved all
            starts.setdefault(path.parent, set()).update(trace.starts)
    for folder, names in starts.items():
        states.extend(_folder_states(folder, names))
    return _combine_states(states)


def _combine_states(states: Collection[RunState | None]) -> RunState | None:
    if "killed" in states:
        return "killed"
    if "recording" in states:
        return "recording"
    return "finished" if states and None not in states else None


def _folder_states(folder: Path, starts: Collection[str]) -> list[RunState | None]:
    """Return the states of the processes whose traces are in a folder."""
    with suppress(OSError, ValueError, KinetoscopeError):
        return [_process_state(folder, manifest) for manifest in _read_manifests(folder, starts)] or [None]
    return [None]


def _read_manifests(folder: Path, starts: Collection[str]) -> Iterator[RankManifest]:
    """Yield the manifests of these starts, and the last one of each other rank of their launch."""
    ranks = read_starts(folder)
    selected = [
        manifest for manifests in ranks for manifest in manifests if manifest.start and manifest.start in starts
    ]
    yield from selected
    launches = {manifest.started.attempt.name for manifest in selected if manifest.started is not None}
    known = {manifest.rank for manifest in selected}
    for last in (manifests[-1] for manifests in ranks if manifests[-1].rank not in known):
        if last.started is not None and last.started.attempt.name in launches:
            yield last


def _process_state(folder: Path, manifest: RankManifest) -> RunState | None:
    if manifest.closed or manifest.started is None:
        return "finished" if manifest.closed else None
    run_folders = (folder.parent, folder, folder.parent.parent)
    lives = (find_spool_folder(run_folder, manifest.start) for run_folder in run_folders)
    live = next((found for found in lives if found is not None), None)
    return _STATE_OF_OWNER[read_owner_state(live, manifest.started.attempt)]


def _spool_state(folder: Path) -> RunState | None:
    """Return the state of the process of a spool. A clean exit deletes it."""
    with suppress(OSError, ValueError, KinetoscopeError):
        run = read_spool_owner(folder)
        return _STATE_OF_OWNER[read_owner_state(folder, run.attempt)]
    return None
