"""merge: what the manifests list. The ranks of one node flow in as they finish; their merged trace flows out."""

import os
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path

from kinetoscope.formats.manifest import RankManifest, read_manifest
from kinetoscope.merge.merge_traces import MergeReport, Progress, merge_traces

_POLL_S = 0.1


def merge_manifest(
    folder: str | os.PathLike[str],
    output_file: str | os.PathLike[str],
    wait_s: float = 0.0,
    ranks: Collection[int] | None = None,
    *,
    node_rank: int = 0,
    align_on: str | None = None,
    on_progress: Progress | None = None,
) -> MergeReport | None:
    """Merges the traces that the ranks of node ``node_rank`` have listed in ``folder``; None if there is none yet.

    Waits up to ``wait_s`` seconds until every local rank has closed its manifest; a rank whose process on this host
    is dead is not waited for. ``ranks`` merges, and waits for, those ranks only. Traces that were deleted since are
    left out, and the header says so.
    """
    folder = Path(folder)
    manifests = _wait(lambda: _chosen(folder, node_rank, ranks), ranks, wait_s)
    paths, notes = _existing_traces(folder, manifests)
    if not paths:
        return None
    return merge_traces(output_file, *paths, align_on=align_on, notes=notes, on_progress=on_progress)


def _chosen(folder: Path, node_rank: int, ranks: Collection[int] | None) -> list[RankManifest]:
    return [
        manifest
        for manifest in read_manifest(folder)
        if manifest.started is not None
        and manifest.started.node_rank == node_rank
        and (ranks is None or manifest.rank in ranks)
    ]


def _wait(read: Callable[[], list[RankManifest]], ranks: Collection[int] | None, wait_s: float) -> list[RankManifest]:
    """The manifests once every rank is done, or once ``wait_s`` is over."""
    deadline = time.monotonic() + wait_s
    manifests = read()
    while not _all_done(manifests, ranks) and time.monotonic() < deadline:
        time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
        manifests = read()
    return manifests


def _all_done(manifests: list[RankManifest], ranks: Collection[int] | None) -> bool:
    num_expected = len(set(ranks)) if ranks is not None else _num_local_ranks(manifests)
    return len(manifests) >= num_expected and all(_is_done(manifest) for manifest in manifests)


def _num_local_ranks(manifests: list[RankManifest]) -> int:
    """How many ranks this node has, as the one that started says; at least one is expected."""
    return max((manifest.started.local_world_size for manifest in manifests if manifest.started), default=1)


def _is_done(manifest: RankManifest) -> bool:
    started = manifest.started
    if manifest.closed or started is None:
        return manifest.closed
    return started.host == socket.gethostname() and not _is_alive(started.pid)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _existing_traces(folder: Path, manifests: list[RankManifest]) -> tuple[list[Path], list[str]]:
    paths: list[Path] = []
    notes: list[str] = []
    for manifest in manifests:
        for trace in manifest.traces:
            path = folder / trace.path
            if path.exists():
                paths.append(path)
            else:
                notes.append(f"{trace.path} of rank {manifest.rank} is not in this trace: it was deleted before.")
    return paths, notes
