"""Variables that reference growing memory, as the source `GrowingMemory` saw them around the loop."""

from dataclasses import dataclass
from typing import Any

from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import MEMORY_HOLDER


@dataclass(frozen=True, kw_only=True)
class MemoryOwner:
    """A variable or attribute that got ``num_tensors`` tensors in ``num_steps`` steps.

    ``num_graphs`` of them have a graph that keeps memory for a backward pass. ``name`` is the expression for it in
    code, such as ``self.losses``, ``kind`` its type, such as ``list``, ``location`` describes where it is.
    ``line`` is the only line that adds to it, None if that is uncertain. ``bytes_per_step`` is of the scanned tensors
    and their graphs; None for a sum that retains its graphs.
    """

    name: str
    kind: str
    location: str
    line: str | None
    num_steps: int
    num_tensors: int
    num_graphs: int
    bytes_per_step: int | None
    device: int | None


def memory_owners(window: RankWindow) -> tuple[MemoryOwner, ...] | None:
    """Return the variables that reference more and more tensors, the most first; None if not all were scanned."""
    notes = window.instants.args_of(MEMORY_HOLDER)
    owners = tuple(owner for note in notes if (owner := _owner(note)) is not None)
    has_seen_all = any(note.get("complete") == 1 for note in notes)
    return owners if owners or has_seen_all else None


def _owner(note: dict[str, Any]) -> MemoryOwner | None:
    """Return the owner in a note; None if a field is missing, out of range or of another type."""
    texts = {key: note.get(key) for key in ("holder", "kind", "location")}
    counts = {key: note.get(key) for key in ("steps", "tensors", "graphs")} | {"bytes": note.get("bytes", 0)}
    if not all(isinstance(text, str) for text in texts.values()) or not all(map(_is_count, counts.values())):
        return None
    steps, line, device = max(1, note["steps"]), note.get("line"), note.get("device")
    num_bytes: Any = note.get("bytes")
    return MemoryOwner(
        name=note["holder"],
        kind=note["kind"],
        location=note["location"],
        line=line if isinstance(line, str) else None,
        num_steps=steps,
        num_tensors=note["tensors"],
        num_graphs=note["graphs"],
        bytes_per_step=None if num_bytes is None else round(num_bytes / steps),
        device=device if _is_count(device) else None,
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63
