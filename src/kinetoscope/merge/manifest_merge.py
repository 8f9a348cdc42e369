"""merge: what the manifests list. The ranks of one node flow in as they finish; their merged trace flows out."""

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import read_header
from kinetoscope.formats.live_run import live_folder_of
from kinetoscope.formats.manifest import RankManifest, read_manifest
from kinetoscope.formats.owner_lock import Owner, owner_state
from kinetoscope.merge.input_file import own_header
from kinetoscope.merge.merge_traces import MergeReport, Progress, merge_traces
from kinetoscope.training.run_folder import RunFolder

_POLL_S = 0.1


def merge_manifest(
    folder: str | os.PathLike[str],
    output_file: str | os.PathLike[str],
    wait_s: float = 0.0,
    ranks: Collection[int] | None = None,
    *,
    node_rank: int = 0,
    attempt: str | None = None,
    align_on: str | None = None,
    on_progress: Progress | None = None,
    as_list: bool = False,
    num_cycles: int | None = None,
    run_folder: Path | None = None,
    delete: Callable[[Path], object] | None = None,
) -> MergeReport | None:
    """Merges the traces that the ranks of node ``node_rank`` have listed in ``folder``; None if there is none yet.

    Waits up to ``wait_s`` seconds until every local rank has closed its manifest, or has ``num_cycles`` traces in it; a
    rank whose process is dead, as its live folder in ``run_folder`` (``folder``'s parent unless given) shows, is not
    waited for. ``ranks`` merges, and waits for, those ranks only; ``attempt`` only those of that attempt, where the
    folder holds manifests of an earlier run. Traces that have expired are deleted (by ``delete``, if given) once they
    are in the merged file, and stay in it when it is merged again. A manifest can name nothing outside of ``folder``.
    """
    folder, output = Path(folder), Path(output_file)
    traces = RunFolder(folder)
    waiting = _Waiting(run_folder or folder.parent, ranks, num_cycles)
    manifests = waiting.wait(lambda: _chosen(folder, node_rank, ranks, attempt), wait_s)
    listed = [trace.path for manifest in manifests for trace in manifest.traces]
    merged_before = _sources_of(output, traces) & set(listed)
    gone = {path for path in listed if not traces.is_file(path)}
    # What was deleted lives on in the merged file only: then that one is merged again with what is new.
    kept_in_output = merged_before if merged_before & gone else set()
    paths = [folder / path for path in listed if path not in gone | kept_in_output]
    if kept_in_output:
        paths.insert(0, output)
    if not paths:
        return None
    notes = [
        f"{path} is not in this trace: it is no file there, or was deleted before."
        for path in sorted(gone - kept_in_output)
    ]
    sources = [path for path in listed if path not in gone - kept_in_output]
    report = merge_traces(
        output, *paths, align_on=align_on, notes=notes, sources=sources, on_progress=on_progress, as_list=as_list
    )
    for manifest in manifests:
        for path in manifest.expired & set(sources):
            delete(folder / path) if delete is not None else traces.delete(path)
    return report


def _chosen(folder: Path, node_rank: int, ranks: Collection[int] | None, attempt: str | None) -> list[RankManifest]:
    return [
        manifest
        for manifest in read_manifest(folder)
        if manifest.started is not None
        and manifest.started.node_rank == node_rank
        and (ranks is None or manifest.rank in ranks)
        and (attempt is None or manifest.started.attempt == attempt)
    ]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """For whom a merge waits: the ``ranks``, or all of the node, but for those that have ended or saved enough."""

    run_folder: Path
    ranks: Collection[int] | None
    num_cycles: int | None

    def wait(self, read: Callable[[], list[RankManifest]], wait_s: float) -> list[RankManifest]:
        """The manifests once every rank is done, or once ``wait_s`` is over."""
        deadline = time.monotonic() + wait_s
        manifests = read()
        while not self._all_done(manifests) and time.monotonic() < deadline:
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
            manifests = read()
        return manifests

    def _all_done(self, manifests: list[RankManifest]) -> bool:
        num_expected = len(set(self.ranks)) if self.ranks is not None else _num_local_ranks(manifests)
        return len(manifests) >= num_expected and all(map(self._is_done, manifests))

    def _is_done(self, manifest: RankManifest) -> bool:
        started = manifest.started
        if manifest.closed or started is None:
            return manifest.closed
        if self.num_cycles is not None and len(manifest.traces) >= self.num_cycles:
            return True
        live_folder = live_folder_of(self.run_folder, started.start)
        return owner_state(live_folder, started.host, started.pid) is Owner.DEAD


def _num_local_ranks(manifests: list[RankManifest]) -> int:
    """How many ranks this node has, as the one that started says; at least one is expected."""
    return max((manifest.started.local_world_size for manifest in manifests if manifest.started), default=1)


def _sources_of(output: Path, traces: RunFolder) -> set[str]:
    """The names of the traces that an earlier merge has put into ``output``; none if there is no such file.

    Raises `UnsafePathError` if it is in the folder of the traces, and is a link or a pipe to elsewhere.
    """
    if Path(os.path.realpath(output.parent)) == traces.path and traces.status(output.name) is not None:
        traces.open(output.name).close()
    try:
        sources = own_header(read_header(output)).get("sources")
    except TraceFileError:
        return set()
    return {name for name in sources if isinstance(name, str)} if isinstance(sources, list) else set()
