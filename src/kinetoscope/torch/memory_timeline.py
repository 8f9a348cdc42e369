"""torch: memory over time, by what it is for. Finished results flow in; a `MemoryTimeline` and its files flow out.

Files as torch.profiler's: ``.json`` and ``.json.gz`` hold ``[times, [sizes by category]]``, times in unix microseconds,
each row of sizes a 0 and then a number for each `Category`; ``.raw.json.gz`` holds ``[time, action, bytes,
category]``, times in nanoseconds. ``.html`` is a page of ours.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from pathlib import Path
from typing import Any

from kinetoscope.pages.memory_timeline import render_memory_timeline
from kinetoscope.torch.collector import collector_at_rest
from kinetoscope.torch.data_flow import Allocation, DataFlow, Tensor, all_versions, read_data_flow
from kinetoscope.torch.export import trace_stream
from kinetoscope.torch.memory_categories import Categories, Category, classify_memory

_BEFORE = -1  # the time of what was there before the window
_RAW = ".raw.json.gz"
# What memory may belong to: a tensor in a version, or a device where torch does not know the tensor.
_Owner = tuple[Tensor | None, int, tuple[str, int]]


class Action(IntEnum):
    """What happens to memory; the number is the one in files, as torch.profiler has it."""

    PREEXISTING = 1
    CREATE = 2
    INCREMENT_VERSION = 3
    DESTROY = 4


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One thing that happens to ``num_bytes`` of a category: negative where they are taken from it."""

    time_ns: int
    action: Action
    num_bytes: int
    category: Category


@dataclass(frozen=True)
class MemoryTimeline:
    """The memory of one device over a window.

    ``changes`` are in order of time; ``times_us`` and ``sizes_bytes`` (a row for each time, a number for each
    `Category`) are what they add up to.
    """

    device: str
    changes: list[MemoryChange]
    times_us: list[int] = field(init=False)
    sizes_bytes: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        times, sizes = _added_up(self.changes)
        object.__setattr__(self, "times_us", times)
        object.__setattr__(self, "sizes_bytes", sizes)

    @property
    def peak_bytes(self) -> int:
        """The most memory in use at any time."""
        return max(map(sum, self.sizes_bytes), default=0)

    @property
    def peak_time_us(self) -> int | None:
        """When that was; None if nothing happened on the device."""
        return self.times_us[self._peak] if self.times_us else None

    @property
    def held_at_peak(self) -> dict[Category, int]:
        """What held the memory then, the most first."""
        held = zip(Category, self.sizes_bytes[self._peak], strict=True) if self.times_us else ()
        return dict(sorted((it for it in held if it[1]), key=itemgetter(1), reverse=True))

    @property
    def _peak(self) -> int:
        return max(range(len(self.times_us)), key=lambda at: sum(self.sizes_bytes[at]))

    def save(self, path: Path) -> None:
        """Writes the file that the suffix of ``path`` asks for; anything but ``.html`` is JSON."""
        with trace_stream(path) as stream:
            stream.write(self._content(path.name))

    def _content(self, name: str) -> bytes:
        if name.endswith(".html"):
            return render_memory_timeline(
                device=self.device,
                categories=[category.name.lower().replace("_", " ") for category in Category],
                times_us=self.times_us,
                sizes_bytes=self.sizes_bytes,
            ).encode()
        if name.endswith(_RAW):
            rows = [(it.time_ns, it.action.value, it.num_bytes, it.category.value) for it in self.changes]
            return json.dumps(rows).encode()
        return json.dumps([self.times_us, [[0, *row] for row in self.sizes_bytes]]).encode()


def build_memory_timeline(kineto_results: Any, device: str) -> MemoryTimeline:
    """The memory of ``device``, such as ``cuda:0`` or ``cpu``, over one window."""
    kind, _, index = device.partition(":")
    wanted = (kind, int(index) if index else -1)
    with collector_at_rest():
        flow = read_data_flow(kineto_results)
        return MemoryTimeline(device, list(_changes(flow, classify_memory(flow), wanted)))


def _changes(flow: DataFlow, categories: Categories, device: tuple[str, int]) -> Iterator[MemoryChange]:
    moments = [*_unknown_changes(flow.allocations), *_known_changes(flow, categories)]
    moments = [it for it in moments if it[2][2] == device]
    moments.sort(key=lambda it: (it[0], it[1]))
    for time_ns, action, (tensor, version, _), num_bytes in moments:
        before = Category.UNKNOWN if tensor is None else categories.of((tensor, version))
        taken = action in (Action.PREEXISTING, Action.CREATE)
        yield MemoryChange(time_ns, action, num_bytes if taken else -num_bytes, before)
        if action is Action.INCREMENT_VERSION:
            after = Category.UNKNOWN if tensor is None else categories.of((tensor, version + 1))
            yield MemoryChange(time_ns, action, num_bytes, after)


_Moment = tuple[int, Action, _Owner, int]


def _unknown_changes(allocations: Iterable[Allocation]) -> Iterator[_Moment]:
    """Memory of which torch does not know the tensor, told apart by where it lies."""
    live: set[tuple[int | None, tuple[str, int]]] = set()
    for it in allocations:
        owner, place = (None, 0, it.device), (it.pointer, it.device)
        if it.tensor is not None:
            continue
        if it.num_bytes > 0:
            yield it.time_ns, Action.INCREMENT_VERSION if place in live else Action.CREATE, owner, it.num_bytes
            live.add(place)
        else:
            yield it.time_ns, Action.DESTROY, owner, -it.num_bytes
            if place not in live:
                yield _BEFORE, Action.PREEXISTING, owner, -it.num_bytes
            live.discard(place)


def _known_changes(flow: DataFlow, categories: Categories) -> Iterator[_Moment]:
    taken = {it.tensor: it.time_ns for it in flow.allocations if it.num_bytes > 0}
    given_back = {it.tensor: it.time_ns for it in flow.allocations if it.num_bytes <= 0}
    last_versions = dict(sorted(set(all_versions(flow, categories.tensors_by_id))))
    sizes = flow.sizes_bytes
    for tensor in last_versions:
        if tensor not in taken:
            yield _BEFORE, Action.PREEXISTING, (tensor, 0, tensor[2:]), sizes[tensor]
    for node in flow.nodes:
        for tensor, edge in node.edges.items():
            device, size = tensor[2:], sizes[tensor]
            if edge.reads is None:
                yield taken[tensor], Action.CREATE, (tensor, 0, device), size
            elif edge.changes:
                yield node.begin_ns, Action.INCREMENT_VERSION, (tensor, edge.reads, device), size
            if edge.frees:
                yield given_back[tensor], Action.DESTROY, (tensor, last_versions[tensor], device), size


def _added_up(changes: Iterable[MemoryChange]) -> tuple[list[int], list[list[int]]]:
    times: list[int] = []
    sizes: list[list[int]] = []
    for change in changes:
        # torch divides so, and unix nanoseconds do not fit a double: only so do the same changes fall on one time.
        time_us = int(change.time_ns / 1000) if change.time_ns != _BEFORE else _BEFORE
        if not times or time_us != times[-1]:
            times.append(time_us)
            sizes.append(sizes[-1].copy() if sizes else [0] * len(Category))
        sizes[-1][change.category] += change.num_bytes
    first = next((time for time in times if time != _BEFORE), _BEFORE)
    return [first if time == _BEFORE else time for time in times], sizes
