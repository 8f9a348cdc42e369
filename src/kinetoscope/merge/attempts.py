"""merge: attempts. The manifests of a folder flow in; those of the starts that belong together flow out.

Ranks belong together if they have agreed on an id through the run's store. Where one of two has none, because there was
no store or no time, they do if they were started by one launch and one was alive when the other began.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.formats.manifest import RankManifest, read_starts


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
