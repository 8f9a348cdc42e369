"""Memory timeline: bytes of each category over a window, and the files of torch.profiler's formats.

The rules for categories are torch.profiler's. Gradients and parameters are those that Python's tracer saw, or that an
update turns into each other; inputs are tensors that no gradient ever reaches; activations are made from these by the
forward pass.

In ``.json`` and ``.json.gz`` files there is ``[times, [sizes by category]]``, times in unix microseconds, each row of
sizes a 0 and then a number for each `Category`. ``.raw.json.gz`` has rows of ``[time, action, bytes, category]``, times
in nanoseconds. ``.html`` is a page of Kinetoscope.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from pathlib import Path
from typing import Any

import kinetoscope
from kinetoscope.pages.memory_timeline import render_memory_timeline
from kinetoscope.recording.window.gc_control import pause_gc
from kinetoscope.torch.data_flow import Allocation, DataFlow, FlowNode, Tensor, iterate_versions, read_data_flow
from kinetoscope.torch.export import open_trace_file

Version = tuple[Tensor, int]

_BEFORE_WINDOW = -1  # the time of memory that was allocated before the window
_RAW = ".raw.json.gz"
# Owner of memory: a tensor and its version, or only a device if the tensor is unknown to torch.
_Owner = tuple[Tensor | None, int, tuple[str, int]]


class Category(IntEnum):
    """Purpose of memory; the number is torch.profiler's, and the position in its files."""

    PARAMETER = 0
    OPTIMIZER_STATE = 1
    INPUT = 2
    TEMPORARY = 3
    ACTIVATION = 4
    GRADIENT = 5
    AUTOGRAD_DETAIL = 6
    UNKNOWN = 7


_TRAINED_CATEGORIES = (Category.GRADIENT, Category.PARAMETER)


class Categories:
    """Category of each tensor in each version: by the tensor's id, else by its memory, else by the version."""

    def __init__(self) -> None:
        self.tensors_by_id: set[Tensor] = set()
        self._by_id: dict[int, Category] = {}
        self._temporaries: set[Tensor] = set()
        self._by_version: dict[Version, Category] = {}

    def category_of(self, version: Version) -> Category:
        """Return the category; `Category.UNKNOWN` if there is none."""
        category = self._by_id.get(version[0][0])
        if category is not None:
            return category
        return (
            Category.TEMPORARY if version[0] in self._temporaries else self._by_version.get(version, Category.UNKNOWN)
        )

    def set_tensor(self, tensor: Tensor, category: Category) -> None:
        """Set the category of all tensors with this one's id, replacing any other."""
        self._by_id[tensor[0]] = category
        self.tensors_by_id.add(tensor)

    def add_temporary(self, tensor: Tensor) -> None:
        """Mark memory that is allocated and freed within one operator."""
        self._temporaries.add(tensor)

    def set_default(self, version: Version, category: Category) -> None:
        """Set the category of a version that has none."""
        self._by_version.setdefault(version, category)


def classify_memory(flow: DataFlow) -> Categories:
    """Return the category of every tensor in every version."""
    categories = Categories()
    for tensor in flow.gradients:
        categories.set_tensor(tensor, Category.GRADIENT)
    for node in flow.nodes:
        for tensor in node.temporaries:
            categories.add_temporary(tensor)
    for tensor in flow.parameters:
        categories.set_tensor(tensor, Category.PARAMETER)
    _set_inputs(flow.nodes, categories)
    _deduce_parameters(flow, categories)
    _set_activations(flow.nodes, categories)
    for tensor in flow.optimizer_state:
        categories.set_tensor(tensor, Category.OPTIMIZER_STATE)
    _set_autograd_details(flow.nodes, categories)
    return categories


def _set_inputs(nodes: list[FlowNode], categories: Categories) -> None:
    """Find inputs: a gradient depends on them, none of their versions does, and the backward pass makes none."""
    from_gradients = _find_ids_reached_by_gradients(nodes, categories)
    candidates = _find_leading_to_gradients(nodes, categories)
    for node in nodes:
        if node.is_backward:
            candidates.difference_update(node.outputs)
    for version in candidates:
        if version[0][0] not in from_gradients:
            categories.set_default(version, Category.INPUT)


def _find_ids_reached_by_gradients(nodes: list[FlowNode], categories: Categories) -> set[int]:
    """Return the ids of tensors with a version that depends on a gradient or parameter.

    A later version may add an id that an earlier node reads, so the nodes are read again until there is nothing new.
    """
    reached: set[int] = set()
    size_before = -1
    while size_before != len(reached):
        size_before = len(reached)
        for node in nodes:
            learned = {
                version[0][0]
                for version in node.inputs
                if version[0][0] in reached or categories.category_of(version) in _TRAINED_CATEGORIES
            }
            if learned:
                reached |= learned
                reached.update(tensor[0] for tensor, _ in node.outputs)
    return reached


def _find_leading_to_gradients(nodes: list[FlowNode], categories: Categories) -> set[Version]:
    """Return the versions from which a gradient or parameter is computed."""
    leading: set[Version] = set()
    for node in reversed(nodes):
        versions = {*node.inputs, *node.outputs}
        if not leading.isdisjoint(versions) or any(
            categories.category_of(version) in _TRAINED_CATEGORIES for version in versions
        ):
            leading |= versions
    return leading


def _deduce_parameters(flow: DataFlow, categories: Categories) -> None:
    """Find parameters: the forward pass uses them, a gradient is made from them, and they depend on a gradient."""
    versions = set(iterate_versions(flow, categories.tensors_by_id))
    candidates = _find_used_with_inputs(flow.nodes, categories, versions)
    candidates &= _find_used_for_gradients(flow.nodes, categories)
    ids = {tensor[0] for tensor, _ in candidates} & _find_ids_reached_by_gradients(flow.nodes, categories)
    for tensor, _ in versions:
        if tensor[0] in ids:
            categories.set_tensor(tensor, Category.PARAMETER)


def _find_used_with_inputs(nodes: list[FlowNode], categories: Categories, versions: Iterable[Version]) -> set[Version]:
    """Return the versions that the forward pass uses, other than inputs and versions made from them."""
    forward = {version for version in versions if categories.category_of(version) is Category.INPUT}
    others: set[Version] = set()
    for node in nodes:
        if node.is_backward or forward.isdisjoint(node.inputs):
            continue
        if not any(categories.category_of(version) is Category.GRADIENT for version in (*node.inputs, *node.outputs)):
            forward.update(node.outputs)
            others.update(version for version in node.inputs if version not in forward)
    return others


def _find_used_for_gradients(nodes: list[FlowNode], categories: Categories) -> set[Version]:
    """Return the versions from which a gradient is computed."""
    used: set[Version] = set()
    for node in reversed(nodes):
        if any(version in used or categories.category_of(version) is Category.GRADIENT for version in node.outputs):
            used.update(node.inputs)
    return used


def _set_activations(nodes: list[FlowNode], categories: Categories) -> None:
    """Find activations: outputs of the forward pass from inputs, activations and parameters."""
    required = {Category.INPUT, Category.ACTIVATION}
    allowed = required | {Category.PARAMETER, Category.TEMPORARY}
    for node in nodes:
        if node.is_backward:
            continue
        found = {categories.category_of(version) for version in node.inputs}
        if found & required and found <= allowed:
            for version in node.outputs:
                categories.set_default(version, Category.ACTIVATION)


def _set_autograd_details(nodes: list[FlowNode], categories: Categories) -> None:
    """Find autograd details: tensors that the backward pass makes for itself."""
    before = (Category.UNKNOWN, Category.AUTOGRAD_DETAIL)
    for node in nodes:
        for tensor, version in node.outputs if node.is_backward else ():
            if version == 0 or categories.category_of((tensor, version - 1)) in before:
                categories.set_default((tensor, version), Category.AUTOGRAD_DETAIL)


class Action(IntEnum):
    """Event in the life of memory; the number is torch.profiler's, also in files."""

    PREEXISTING = 1
    CREATE = 2
    INCREMENT_VERSION = 3
    DESTROY = 4


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A change by ``num_bytes`` in the memory of a category, negative if the category loses it."""

    time_ns: int
    action: Action
    num_bytes: int
    category: Category


@dataclass(frozen=True)
class MemoryTimeline:
    """Memory of one device over a window.

    Attributes:
        changes: Changes in order of time.
        times_us: Times in unix microseconds.
        sizes_bytes: For each time, the bytes of each `Category`.
    """

    device: str
    changes: list[MemoryChange]
    times_us: list[int] = field(init=False)
    sizes_bytes: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        times, sizes = _sum_over_time(self.changes)
        object.__setattr__(self, "times_us", times)
        object.__setattr__(self, "sizes_bytes", sizes)

    @property
    def peak_bytes(self) -> int:
        """Maximum of the memory in use."""
        return max(map(sum, self.sizes_bytes), default=0)

    @property
    def peak_time_us(self) -> int | None:
        """Time of the peak in unix microseconds; None if nothing happened on the device."""
        return self.times_us[self._peak] if self.times_us else None

    @property
    def bytes_at_peak(self) -> dict[Category, int]:
        """Bytes of each category at the peak, largest first."""
        bytes_by_category = zip(Category, self.sizes_bytes[self._peak], strict=True) if self.times_us else ()
        return dict(sorted((pair for pair in bytes_by_category if pair[1]), key=itemgetter(1), reverse=True))

    @property
    def _peak(self) -> int:
        return max(range(len(self.times_us)), key=lambda index: sum(self.sizes_bytes[index]))

    def save(self, path: Path) -> None:
        """Write the format of the suffix of ``path``: a page for ``.html``, else JSON."""
        with open_trace_file(path) as stream:
            stream.write(self._content(path.name))

    def _content(self, name: str) -> bytes:
        if name.endswith(".html"):
            return render_memory_timeline(
                version=kinetoscope.__version__,
                device=self.device,
                categories=[category.name.lower().replace("_", " ") for category in Category],
                times_us=self.times_us,
                sizes_bytes=self.sizes_bytes,
            ).encode()
        if name.endswith(_RAW):
            rows = [
                (change.time_ns, change.action.value, change.num_bytes, change.category.value)
                for change in self.changes
            ]
            return json.dumps(rows).encode()
        return json.dumps([self.times_us, [[0, *row] for row in self.sizes_bytes]]).encode()


def build_memory_timeline(kineto_results: Any, device: str) -> MemoryTimeline:
    """Return the changes of allocated memory on ``device``, such as ``cuda:0``, during Kineto's recording."""
    kind, _, index = device.partition(":")
    wanted = (kind, int(index) if index else -1)
    with pause_gc():
        flow = read_data_flow(kineto_results)
        return MemoryTimeline(device, list(_iterate_changes(flow, classify_memory(flow), wanted)))


def _iterate_changes(flow: DataFlow, categories: Categories, device: tuple[str, int]) -> Iterator[MemoryChange]:
    """Yield the changes of memory on one device, in order of time."""
    moments = [*_changes_of_unknown_tensors(flow.allocations), *_changes_of_known_tensors(flow, categories)]
    moments = [moment for moment in moments if moment[2][2] == device]
    moments.sort(key=lambda moment: moment[:2])
    for time_ns, action, (tensor, version, _), num_bytes in moments:
        before = Category.UNKNOWN if tensor is None else categories.category_of((tensor, version))
        is_gain = action in (Action.PREEXISTING, Action.CREATE)
        yield MemoryChange(time_ns, action, num_bytes if is_gain else -num_bytes, before)
        if action is Action.INCREMENT_VERSION:
            after = Category.UNKNOWN if tensor is None else categories.category_of((tensor, version + 1))
            yield MemoryChange(time_ns, action, num_bytes, after)


_Moment = tuple[int, Action, _Owner, int]


def _changes_of_unknown_tensors(allocations: Iterable[Allocation]) -> Iterator[_Moment]:
    """Yield the changes of memory whose tensor is unknown to torch; its address identifies it."""
    live: set[tuple[int | None, tuple[str, int]]] = set()
    for allocation in allocations:
        time_ns, num_bytes, device = allocation.time_ns, allocation.num_bytes, allocation.device
        owner, address = (None, 0, device), (allocation.pointer, device)
        if allocation.tensor is not None:
            continue
        if num_bytes > 0:
            yield time_ns, Action.INCREMENT_VERSION if address in live else Action.CREATE, owner, num_bytes
            live.add(address)
        else:
            yield time_ns, Action.DESTROY, owner, -num_bytes
            if address not in live:
                yield _BEFORE_WINDOW, Action.PREEXISTING, owner, -num_bytes
            live.discard(address)


def _changes_of_known_tensors(flow: DataFlow, categories: Categories) -> Iterator[_Moment]:
    """Yield the changes of memory whose tensor is known to torch."""
    allocated = {change.tensor: change.time_ns for change in flow.allocations if change.num_bytes > 0}
    freed = {change.tensor: change.time_ns for change in flow.allocations if change.num_bytes <= 0}
    last_versions = dict(sorted(set(iterate_versions(flow, categories.tensors_by_id))))
    sizes = flow.sizes_bytes
    for tensor in last_versions:
        if tensor not in allocated:
            yield _BEFORE_WINDOW, Action.PREEXISTING, (tensor, 0, tensor[2:]), sizes[tensor]
    for node in flow.nodes:
        for tensor, edge in node.edges.items():
            device, size = tensor[2:], sizes[tensor]
            if edge.reads is None:
                yield allocated[tensor], Action.CREATE, (tensor, 0, device), size
            elif edge.changes:
                yield node.begin_ns, Action.INCREMENT_VERSION, (tensor, edge.reads, device), size
            if edge.frees:
                yield freed[tensor], Action.DESTROY, (tensor, last_versions[tensor], device), size


def _sum_over_time(changes: Iterable[MemoryChange]) -> tuple[list[int], list[list[int]]]:
    """Return the times of changes, and the bytes of each category after each of them."""
    times: list[int] = []
    sizes: list[list[int]] = []
    for change in changes:
        # A float division as in torch, which rounds unix nanoseconds, so that the same changes have the same time.
        time_us = int(change.time_ns / 1000) if change.time_ns != _BEFORE_WINDOW else _BEFORE_WINDOW
        if not times or time_us != times[-1]:
            times.append(time_us)
            sizes.append(sizes[-1].copy() if sizes else [0] * len(Category))
        sizes[-1][change.category] += change.num_bytes
    first = next((time for time in times if time != _BEFORE_WINDOW), _BEFORE_WINDOW)
    return [first if time == _BEFORE_WINDOW else time for time in times], sizes
