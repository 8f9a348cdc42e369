"""Merges the traces that the ranks of one node have listed in their manifests during one attempt."""

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import read_header
from kinetoscope.formats.manifest import RankManifest, read_starts
from kinetoscope.live.folders import live_folder_of
from kinetoscope.live.owner_lock import Owner, owner_state
from kinetoscope.merge.input_file import own_header
from kinetoscope.merge.merge_traces import MergeReport, Progress, merge_traces
from kinetoscope.training.run_folder import RunFolder

_log = logging.getLogger("kinetoscope")

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ListedAttempt:
    """What the ranks of a node have listed of one attempt. ``others`` are the last starts of its other ranks."""

    members: list[RankManifest]
    others: list[RankManifest]
    is_latest: bool
    """Whether none of its ranks has begun again in the folder."""

    @property
    def starts(self) -> set[str]:
        """The names of the starts that belong to it."""
        return {manifest.start for manifest in self.members}

    def own_name(self, name: str) -> str:
        """A file's path or URL, with what tells this attempt from others in it."""
        folder, slash, last = name.rpartition("/")
        stem, dot, suffix = last.partition(".")
        return f"{folder}{slash}{stem}-{min(self.starts)}{dot}{suffix}"

    def notes(self, folder: Path) -> list[str]:
        """Whole sentences: which ranks are missing though their files are there, and what shows that the others belong
        together, if not an id."""
        left_out = [other for other in self.others if any((folder / trace.path).exists() for trace in other.traces)]
        notes = [_left_out(other, folder) for other in left_out]
        ranks = sorted({manifest.rank for manifest in self.members})
        if len(ranks) > 1 and not all(manifest.agreed for manifest in self.members):
            notes.append(
                f"Ranks {', '.join(map(str, ranks))} are merged because they had the same launch and ran at the same "
                "time: they had no store, or no time, to agree on an id of their attempt."
            )
        return notes


def merge_manifest(
    folder: str | os.PathLike[str],
    output_file: str | os.PathLike[str],
    wait_s: float = 0.0,
    ranks: Collection[int] | None = None,
    *,
    node_rank: int = 0,
    start: str | None = None,
    align_on: str | None = None,
    on_progress: Progress | None = None,
    as_list: bool = False,
    num_cycles: int | None = None,
    run_folder: Path | None = None,
    replaces: bool = True,
    delete: Callable[[Path], object] | None = None,
) -> MergeReport | None:
    """Merges the traces that the ranks of node ``node_rank`` have listed in ``folder``; None if there is none yet.

    Only those of one attempt: the one that ``start`` belongs to, or the last one that began. The notes say which ranks'
    files lie there and are not in it. Waits up to ``wait_s`` seconds until every local rank has closed its manifest, or
    has ``num_cycles`` traces in it; a rank whose process is dead, as its live folder in ``run_folder`` (``folder``'s
    parent unless given) shows, is not waited for. ``ranks`` merges, and waits for, those ranks only. Traces that have
    expired are deleted (by ``delete``, if given) once they are in the merged file, and stay in it when it is merged
    again. Without ``replaces`` a merged file with anything else in it stays, and this one gets a name of its own. A
    manifest can name nothing outside of ``folder``.
    """
    folder, output = Path(folder), Path(output_file)
    traces = RunFolder(folder)
    waiting = _Waiting(run_folder or folder.parent, ranks, num_cycles)
    attempt = waiting.wait(lambda: find_attempt(folder, node_rank, start, ranks), wait_s)
    if not attempt.members:
        return None
    listed = [trace.path for manifest in attempt.members for trace in manifest.traces]
    _check_no_link(traces, output)
    if not replaces and not _is_contained(output, attempt, listed):
        output = Path(attempt.own_name(str(output)))
        _check_no_link(traces, output)
    merged_before = _listed_in(_said_of(output), "sources") & set(listed)
    gone = {path for path in listed if not traces.is_file(path)}
    # What was deleted lives on in the merged file only: then that one is merged again with what is new.
    kept_in_output = merged_before if merged_before & gone else set()
    paths = [folder / path for path in listed if path not in gone | kept_in_output]
    if kept_in_output:
        paths.insert(0, output)
    if not paths:
        return None
    notes = attempt.notes(folder)
    for note in notes:
        _log.warning("%s: %s", output, note)
    notes += [
        f"{path} is not in this trace: it is no file there, or was deleted before."
        for path in sorted(gone - kept_in_output)
    ]
    sources = [path for path in listed if path not in gone - kept_in_output]
    report = merge_traces(
        output,
        *paths,
        align_on=align_on,
        notes=notes,
        sources=sources,
        on_progress=on_progress,
        as_list=as_list,
        num_threads=1,  # training goes on beside this
    )
    for manifest in attempt.members:
        for path in manifest.expired & set(sources):
            delete(folder / path) if delete is not None else traces.delete(path)
    return report


@dataclass(frozen=True, slots=True)
class _Waiting:
    """For whom a merge waits: the ``ranks``, or all of the node, but for those that have ended or saved enough."""

    run_folder: Path
    ranks: Collection[int] | None
    num_cycles: int | None

    def wait(self, read: Callable[[], ListedAttempt], wait_s: float) -> ListedAttempt:
        """The attempt once every rank is done, or once ``wait_s`` is over."""
        deadline = time.monotonic() + wait_s
        attempt = read()
        while not self._all_done(attempt) and time.monotonic() < deadline:
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
            attempt = read()
        return attempt

    def _all_done(self, attempt: ListedAttempt) -> bool:
        num_expected = len(set(self.ranks)) if self.ranks is not None else _num_local_ranks(attempt.members)
        ended = [other for other in attempt.others if self._is_done(other)]  # these will not come
        num_there = len({manifest.rank for manifest in [*attempt.members, *ended]})
        return num_there >= num_expected and all(map(self._is_done, attempt.members))

    def _is_done(self, manifest: RankManifest) -> bool:
        started = manifest.started
        if manifest.closed or started is None:
            return manifest.closed
        if self.num_cycles is not None and len(manifest.traces) >= self.num_cycles:
            return True
        live_folder = live_folder_of(self.run_folder, started.start)
        return owner_state(live_folder, started.host, started.pid) is Owner.DEAD


def find_attempt(
    folder: Path, node_rank: int, start: str | None = None, ranks: Collection[int] | None = None
) -> ListedAttempt:
    """The attempt that ``start`` is one of, or the last one that began; of ``ranks`` only, where they are given."""
    by_rank = [_of_node(starts, node_rank) for starts in read_starts(folder)]
    by_rank = [starts for starts in by_rank if starts and (ranks is None or starts[0].rank in ranks)]
    manifests = [manifest for starts in by_rank for manifest in starts]
    last = [starts[-1] for starts in by_rank]
    start = max((manifest.start for manifest in last), default="") if start is None else start
    members = _together([manifest for manifest in manifests if manifest.start == start], manifests)
    there, belonging = {manifest.rank for manifest in members}, set(map(id, members))
    is_latest = all(id(manifest) in belonging for manifest in last if manifest.rank in there)
    return ListedAttempt(members, [manifest for manifest in last if manifest.rank not in there], is_latest)


def _of_node(starts: list[RankManifest], node_rank: int) -> list[RankManifest]:
    return [manifest for manifest in starts if manifest.started is not None and manifest.started.node_rank == node_rank]


def _together(members: list[RankManifest], manifests: list[RankManifest]) -> list[RankManifest]:
    """All that belong to the ``members``, by rank: those that belong to one of them, and so on."""
    links = _Links(manifests)
    agreed = next((manifest.agreed for manifest in members if manifest.agreed), "")
    found = {id(member) for member in members}
    for member in members:  # which grows meanwhile
        for other in links.of(member):
            if id(other) not in found and (not other.agreed or not agreed or other.agreed == agreed):
                agreed = agreed or other.agreed
                found.add(id(other))
                members.append(other)
    return [manifest for manifest in manifests if id(manifest) in found]


class _Links:
    """Which starts belong to which."""

    def __init__(self, manifests: list[RankManifest]) -> None:
        self._by_start: dict[str, list[RankManifest]] = defaultdict(list)
        self._by_id: dict[str, list[RankManifest]] = defaultdict(list)
        self._beside: dict[str, set[str]] = defaultdict(set)
        for manifest in manifests:
            self._by_start[manifest.start].append(manifest)
            self._by_id[manifest.agreed].append(manifest)
            self._beside[manifest.start] |= manifest.beside
            for start in manifest.beside:
                self._beside[start].add(manifest.start)

    def of(self, manifest: RankManifest) -> Iterator[RankManifest]:
        """Those with the same id; and where one of two has none, those that ran beside it."""
        if manifest.agreed:
            yield from self._by_id.pop(manifest.agreed, ())
        for start in self._beside[manifest.start]:
            yield from (other for other in self._by_start[start] if not (manifest.agreed and other.agreed))


def _left_out(other: RankManifest, folder: Path) -> str:
    reason = "it is of another attempt" if other.agreed else "nothing shows that it is of the same attempt"
    return (
        f"Rank {other.rank} is not in this trace, though its files lie beside it: {reason}. To merge all ranks all the "
        f"same: kinetoscope merge all.json {folder.name}"
    )


def _num_local_ranks(manifests: list[RankManifest]) -> int:
    """How many ranks this node has, as the one that started says; at least one is expected."""
    return max((manifest.started.local_world_size for manifest in manifests if manifest.started), default=1)


def _is_contained(output: Path, attempt: ListedAttempt, listed: list[str]) -> bool:
    """Whether nothing is lost where a merge of what the attempt has listed takes the place of ``output``."""
    if not output.exists():
        return attempt.is_latest
    said, ranks = _said_of(output), {manifest.rank for manifest in attempt.members}
    sources = _listed_in(said, "sources")
    return attempt.is_latest and bool(sources) and sources <= set(listed) and _listed_in(said, "ranks") <= ranks


def _said_of(output: Path) -> dict[str, Any]:
    """What a merged file says of itself; nothing if there is no such file."""
    try:
        return own_header(read_header(output))
    except TraceFileError:
        return {}


def _listed_in(said: dict[str, Any], field: str) -> set[Any]:
    """The names or numbers in a list in a header, which may hold anything."""
    found = said.get(field)
    return {item for item in found if isinstance(item, (str, int))} if isinstance(found, list) else set()


def _check_no_link(traces: RunFolder, output: Path) -> None:
    """Raises `UnsafePathError` if a merged file in the folder of the traces is a link or a pipe to elsewhere."""
    if Path(os.path.realpath(output.parent)) == traces.path and traces.status(output.name) is not None:
        traces.open(output.name).close()
