"""Merge of the traces that the ranks of one node have listed in their manifests during one attempt."""

import logging
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO

from kinetoscope.core.paths.atomic_file import temporary_folder
from kinetoscope.core.paths.file_kinds import path_exists
from kinetoscope.core.paths.run_folder import FoundFile, RunFolder
from kinetoscope.core.text.wording import format_ranks
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import read_header
from kinetoscope.formats.manifest import RankManifest, read_starts
from kinetoscope.merge.input_file import kinetoscope_header
from kinetoscope.merge.merge_traces import MergeReport, Progress, merge_traces
from kinetoscope.spool.folders import find_spool_folder
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state

_log = logging.getLogger("kinetoscope")

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ListedAttempt:
    """The listed traces of one attempt; ``others`` are the last starts of the other ranks."""

    members: list[RankManifest]
    others: list[RankManifest]
    is_latest: bool
    """True if none of its ranks has started again in the folder."""

    @property
    def starts(self) -> set[str]:
        """The names of the starts that belong to the attempt."""
        return {manifest.start for manifest in self.members}

    @property
    def listed(self) -> list[str]:
        """The names of its traces."""
        return [trace.path for manifest in self.members for trace in manifest.traces]

    @property
    def expired(self) -> set[str]:
        """The names of those traces that are deleted when they are merged."""
        return {path for manifest in self.members for path in manifest.expired}

    def add_start_to_name(self, name: str) -> str:
        """Return a file's path or URL with the attempt's first start in it."""
        folder, slash, last = name.rpartition("/")
        stem, dot, suffix = last.partition(".")
        return f"{folder}{slash}{stem}-{min(self.starts)}{dot}{suffix}"

    def notes(self, folder: Path, *, in_command: str = "FOLDER") -> list[str]:
        """Return sentences on ranks that are not in the attempt, and on ranks without a common id.

        ``in_command`` is the name of the folder in a command.
        """
        left_out = [other for other in self.others if any((folder / trace.path).exists() for trace in other.traces)]
        notes = [_left_out(other, in_command) for other in left_out]
        ranks = sorted({manifest.rank for manifest in self.members})
        if len(ranks) > 1 and not all(manifest.agreed for manifest in self.members):
            notes.append(
                f"{format_ranks(ranks).capitalize()} are merged because they had the same launch and ran at the same "
                "time: they had no store, or no time, to agree on an id for their attempt."
            )
        return notes


def merge_manifest(
    folder: str | os.PathLike[str],
    output_file: str | os.PathLike[str],
    wait_s: float = 0.0,
    *,
    node_rank: int = 0,
    start: str | None = None,
    on_progress: Progress | None = None,
    as_list: bool = False,
    run_folder: Path | None = None,
    replaces: bool = True,
    delete: Callable[[Path], object] | None = None,
) -> MergeReport | None:
    """Merge the traces that the ranks of node ``node_rank`` list in ``folder``; return None if there is none yet.

    Only the traces of one attempt are merged: the attempt that ``start`` belongs to, or the last one that began. The
    notes name other ranks with files in the folder. The call waits up to ``wait_s`` seconds until every local rank has
    closed its manifest, except for ranks whose process is dead, as their spool folder in ``run_folder`` (``folder``'s
    parent unless given) shows. Expired traces are deleted (by ``delete``, if given) when they are in the merged file,
    and stay in it when it is merged again. Without ``replaces``, a merged file that contains other traces is kept, and
    this one gets another name. A manifest can name nothing outside of ``folder``.
    """
    run_folder = run_folder or Path(folder).parent
    waiting = _Waiting(run_folder, None)
    chosen = _choose(Path(folder), Path(output_file), waiting, wait_s, node_rank, start, replaces=replaces)
    return None if chosen is None else _merge(chosen, on_progress, as_list=as_list, delete=delete)


def merge_or_link(
    folder: Path,
    output: Path,
    wait_s: float,
    *,
    node_rank: int,
    start: str,
    as_list: bool,
    num_cycles: int | None,
    run_folder: Path,
    delete: Callable[[Path], object],
) -> bool:
    """Merge as `merge_manifest` does, but link the only trace of a job of one rank. Return whether there is a trace."""
    waiting = _Waiting(run_folder, num_cycles)
    chosen = _choose(folder, output, waiting, wait_s, node_rank, start, replaces=True)
    if chosen is None:
        return False
    only = None if as_list else chosen.only_trace
    if only is None:
        _merge(chosen, as_list=as_list, delete=delete)
    else:
        link_or_copy(RunFolder(folder), only, chosen.output)
    return True


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The attempt to merge, its traces and the merged file."""

    folder: Path
    attempt: ListedAttempt
    inputs: "_Inputs"
    output: Path

    @property
    def only_trace(self) -> str | None:
        """The name of a trace that has all that the merged file needs; None if there is no such trace."""
        sources, members = self.inputs.sources, self.attempt.members
        is_whole = len(sources) == len(self.attempt.listed) == 1 and not self.attempt.others
        is_alone = all(manifest.started and manifest.started.ranks.world_size == 1 for manifest in members)
        if not (is_whole and is_alone) or self.attempt.expired or _suffixes(sources[0]) != _suffixes(self.output.name):
            return None
        return sources[0]


def _suffixes(name: str) -> str:
    """Return the suffixes that name the format of a trace: its own, and that of its compression."""
    stem, suffix = os.path.splitext(name)
    return os.path.splitext(stem)[1] + suffix if suffix in (".gz", ".zst") else suffix


def _choose(
    folder: Path,
    output: Path,
    waiting: "_Waiting",
    wait_s: float,
    node_rank: int,
    start: str | None,
    *,
    replaces: bool,
) -> _Chosen | None:
    """Return what to merge, once every rank is done or ``wait_s`` is over; None if there is no trace."""
    attempt = waiting.wait(lambda: find_attempt(folder, node_rank, start), wait_s)
    if not attempt.members:
        return None
    output = _output_for(output, attempt, RunFolder(folder), replaces)
    inputs = _choose_inputs(attempt, folder, output)
    return _Chosen(folder, attempt, inputs, output) if inputs.paths else None


def _merge(
    chosen: _Chosen,
    on_progress: Progress | None = None,
    *,
    as_list: bool,
    delete: Callable[[Path], object] | None,
) -> MergeReport:
    attempt, folder, inputs = chosen.attempt, chosen.folder, chosen.inputs
    for note in attempt.notes(folder, in_command=quote(str(folder))):
        _log.warning("%s: %s", chosen.output, note)
    report = merge_traces(
        chosen.output,
        *inputs.paths,
        notes=attempt.notes(folder) + inputs.notes,  # not where the folder is: no trace has that
        sources=inputs.sources,
        on_progress=on_progress,
        as_list=as_list,
        num_threads=1,  # this runs during training
    )
    for path in attempt.expired & set(inputs.sources):
        delete(folder / path) if delete is not None else RunFolder(folder).delete(path)
    return report


def link_or_copy(traces: RunFolder, name: str, output: Path) -> None:
    """Make ``output`` another name of a trace, or a copy where the file system has no hard links.

    It is no symbolic link: what is found in a folder is read from that folder only.
    """
    with traces.open(name) as trace, temporary_folder(output.parent) as folder:
        linked_path = folder / output.name
        if not _link(traces.path_of(name), linked_path, trace):
            with linked_path.open("xb") as copy:
                shutil.copyfileobj(trace, copy)
        linked_path.replace(output)


def _link(path: Path, link: Path, opened: BinaryIO) -> bool:
    """Link to a file that is ``opened``; return False if that fails, or if another file is at ``path``."""
    try:
        os.link(path, link, follow_symlinks=False)
    except (OSError, NotImplementedError):  # systems whose link() cannot leave symbolic links as they are
        return False
    if os.path.samestat(link.lstat(), os.fstat(opened.fileno())):
        return True
    link.unlink()
    return False


def _output_for(output: Path, attempt: ListedAttempt, traces: RunFolder, replaces: bool) -> Path:
    """Return ``output``, or a name of the attempt's own where it would replace a file that has other traces in it."""
    _check_no_link(traces, output)
    if replaces or _is_contained(output, attempt):
        return output
    output = Path(attempt.add_start_to_name(str(output)))
    _check_no_link(traces, output)
    return output


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The files to merge, the names of all traces in them, and which traces are missing, in sentences."""

    paths: list[str | Path]
    sources: list[str]
    notes: list[str]


def _choose_inputs(attempt: ListedAttempt, folder: Path, output: Path) -> _Inputs:
    """Choose the attempt's traces.

    Where some were deleted, only the merged file ``output`` still has them: then that file is merged again, with the
    traces that are not in it yet.
    """
    listed, traces = attempt.listed, RunFolder(folder)
    gone = {path for path in listed if not traces.is_file(path)}
    merged_before = _sources_of(_read_kinetoscope_header(output), attempt) & set(listed)
    kept_in_output = merged_before if merged_before & gone else set()
    paths: list[str | Path] = [output] if kept_in_output else []
    paths += [FoundFile(folder, path) for path in listed if path not in gone | kept_in_output]
    missing = gone - kept_in_output
    notes = [f"{path} is not in this trace: it is not a file, or was deleted before." for path in sorted(missing)]
    return _Inputs(paths, [path for path in listed if path not in missing], notes)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Wait for all ranks of a node, except for those that have ended or saved enough."""

    run_folder: Path
    num_cycles: int | None

    def wait(self, read: Callable[[], ListedAttempt], wait_s: float) -> ListedAttempt:
        """Return the attempt once every rank is done, or once ``wait_s`` is over."""
        deadline = time.monotonic() + wait_s
        attempt = read()
        while not self._all_done(attempt) and time.monotonic() < deadline:
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
            attempt = read()
        return attempt

    def _all_done(self, attempt: ListedAttempt) -> bool:
        ended = [other for other in attempt.others if self._is_done(other)]  # they will not start again
        num_existing = len({manifest.rank for manifest in [*attempt.members, *ended]})
        return num_existing >= _num_local_ranks(attempt.members) and all(map(self._is_done, attempt.members))

    def _is_done(self, manifest: RankManifest) -> bool:
        started = manifest.started
        if manifest.closed or started is None:
            return manifest.closed
        if self.num_cycles is not None and len(manifest.traces) >= self.num_cycles:
            return True
        return read_owner_state(find_spool_folder(self.run_folder, started.start), started.attempt) is OwnerState.DEAD


def find_attempt(folder: Path, node_rank: int, start: str | None = None) -> ListedAttempt:
    """Return the attempt that ``start`` belongs to, or the last one that began."""
    by_rank = [_of_node(starts, node_rank) for starts in read_starts(folder, strict=True)]
    by_rank = [starts for starts in by_rank if starts]
    manifests = [manifest for starts in by_rank for manifest in starts]
    last = [starts[-1] for starts in by_rank]
    start = max((manifest.start for manifest in last), default="") if start is None else start
    members = _collect_connected([manifest for manifest in manifests if manifest.start == start], manifests)
    existing, belonging = {manifest.rank for manifest in members}, set(map(id, members))
    is_latest = all(id(manifest) in belonging for manifest in last if manifest.rank in existing)
    return ListedAttempt(members, [manifest for manifest in last if manifest.rank not in existing], is_latest)


def _of_node(starts: list[RankManifest], node_rank: int) -> list[RankManifest]:
    return [one for one in starts if one.started is not None and one.started.ranks.node_rank == node_rank]


def _collect_connected(members: list[RankManifest], manifests: list[RankManifest]) -> list[RankManifest]:
    """Return all manifests that belong to the ``members``, directly or through others, by rank."""
    links = _Links(manifests)
    agreed = next((manifest.agreed for manifest in members if manifest.agreed), "")
    found = {id(member) for member in members}
    for member in members:  # the loop adds to this list
        for other in links.of(member):
            if id(other) not in found and (not other.agreed or not agreed or other.agreed == agreed):
                agreed = agreed or other.agreed
                found.add(id(other))
                members.append(other)
    return [manifest for manifest in manifests if id(manifest) in found]


class _Links:
    """The connections between starts of one attempt."""

    def __init__(self, manifests: list[RankManifest]) -> None:
        self._by_start: dict[str, list[RankManifest]] = defaultdict(list)
        self._by_id: dict[str, list[RankManifest]] = defaultdict(list)
        self._concurrent: dict[str, set[str]] = defaultdict(set)
        for manifest in manifests:
            self._by_start[manifest.start].append(manifest)
            self._by_id[manifest.agreed].append(manifest)
            self._concurrent[manifest.start] |= manifest.concurrent_starts
            for start in manifest.concurrent_starts:
                self._concurrent[start].add(manifest.start)

    def of(self, manifest: RankManifest) -> Iterator[RankManifest]:
        """Return the manifests with the same id, or of the same time where one of two has no id."""
        if manifest.agreed:
            yield from self._by_id.pop(manifest.agreed, ())
        for start in self._concurrent[manifest.start]:
            yield from (other for other in self._by_start[start] if not (manifest.agreed and other.agreed))


def _left_out(other: RankManifest, folder: str) -> str:
    reason = "it belongs to another attempt" if other.agreed else "nothing shows that it is of the same attempt"
    return (
        f"Rank {other.rank} is not in this trace, though its files are in the same folder: {reason}. To merge all "
        f"ranks anyway: kinetoscope merge {folder} -o all.json"
    )


def _num_local_ranks(manifests: list[RankManifest]) -> int:
    """Return the number of ranks of this node that have started; at least 1."""
    return max((manifest.started.ranks.local_world_size for manifest in manifests if manifest.started), default=1)


def _is_contained(output: Path, attempt: ListedAttempt) -> bool:
    """Return whether nothing is lost when a merge of the attempt's traces replaces ``output``."""
    if not path_exists(output):
        return attempt.is_latest
    header, ranks = _read_kinetoscope_header(output), {manifest.rank for manifest in attempt.members}
    sources = _sources_of(header, attempt)
    return (
        attempt.is_latest and bool(sources) and sources <= set(attempt.listed) and _listed_in(header, "ranks") <= ranks
    )


def _sources_of(header: dict[str, Any], attempt: ListedAttempt) -> set[Any]:
    """Return the names of the traces in a merged file with this header; of a linked trace, its own name."""
    if "sources" in header or "start" not in header:
        return _listed_in(header, "sources")
    return {
        trace.path
        for manifest in attempt.members
        for trace in manifest.traces
        if (manifest.start, manifest.rank, trace.cycle) == (header["start"], header.get("rank"), header.get("cycle"))
    }


def read_sources(merged: str | os.PathLike[str]) -> set[str]:
    """Return the names of the traces in a merged file, as its header lists them; empty for any other file."""
    return {name for name in _listed_in(_read_kinetoscope_header(Path(merged)), "sources") if isinstance(name, str)}


def _read_kinetoscope_header(output: Path) -> dict[str, Any]:
    """Return the header of a merged file of Kinetoscope; empty if there is no such file."""
    try:
        return kinetoscope_header(read_header(output))
    except TraceFileError:
        return {}


def _listed_in(header: dict[str, Any], field: str) -> set[Any]:
    """Return the names or numbers in a list in a header, which may hold anything."""
    found = header.get(field)
    return {item for item in found if isinstance(item, (str, int))} if isinstance(found, list) else set()


def _check_no_link(traces: RunFolder, output: Path) -> None:
    """Raise `UnsafePathError` if a merged file in the folder of the traces is a link or a pipe."""
    if Path(os.path.realpath(output.parent)) == traces.path and traces.status(output.name) is not None:
        traces.open(output.name).close()
