"""torch: who reads, changes, makes and frees which tensor. Kineto's event tree flows in; the flow of data flows out.

The rules are those of torch.profiler's memory profile, so that its categories come out the same: an operator with a
schema is one node with all that happens inside it; so is an allocation outside any. A tensor has a version, which an
operator that may change it counts up.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch._C._profiler import RecordScope, _EventType, _TensorMetadata
from torch._utils import _element_size
from torch.profiler._memory_profiler import SchemaMatcher

Tensor = tuple[int, int, str, int]
"""What identifies a tensor's memory: torch's id for it, of its allocation, and the device's type and index."""

_BACKWARD = RecordScope.BACKWARD_FUNCTION


@dataclass(slots=True)
class Edge:
    """How a node uses a tensor: the version it reads (None: it makes it), and whether it changes or frees it."""

    reads: int | None = None
    changes: bool = False
    frees: bool = False


@dataclass(slots=True)
class FlowNode:
    """An operator, or an allocation outside any, with the tensors it touches."""

    begin_ns: int
    is_backward: bool
    edges: dict[Tensor, Edge]
    inputs: list[tuple[Tensor, int]] = field(init=False)
    outputs: list[tuple[Tensor, int]] = field(init=False)
    temporaries: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        edges = self.edges.items()
        self.inputs = [(tensor, edge.reads) for tensor, edge in edges if edge.reads is not None]
        self.outputs = [
            (tensor, 0 if edge.reads is None else edge.reads + 1)
            for tensor, edge in edges
            if edge.changes or (edge.reads is None and not edge.frees)
        ]
        self.temporaries = [tensor for tensor, edge in edges if edge.reads is None and edge.frees]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that was taken (positive) or given back. ``tensor`` is None where torch does not know whose it is."""

    time_ns: int
    num_bytes: int
    pointer: int | None
    tensor: Tensor | None
    device: tuple[str, int]


@dataclass(slots=True)
class DataFlow:
    """The nodes in order of time, the allocations in order of the tree, and what Python's tracer saw of modules."""

    nodes: list[FlowNode] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    sizes_bytes: dict[Tensor, int] = field(default_factory=dict)
    parameters: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    optimizer_state: list[Tensor] = field(default_factory=list)


def read_data_flow(kineto_results: Any) -> DataFlow:
    """The flow of data through one window, which must hold shapes, memory and stacks."""
    reader = _Reader()
    for root in kineto_results.experimental_event_tree():
        reader.visit(root, is_backward=False, leaf=None)
    return reader.finish()


@dataclass(slots=True)
class _Leaf:
    """A node as it is gathered: what its operators do to each tensor, before versions are known."""

    begin_ns: int
    is_backward: bool
    uses: dict[Tensor, set[bool | None]] = field(default_factory=dict)
    frees: list[Tensor] = field(default_factory=list)
    makes: list[Tensor] = field(default_factory=list)


class _Reader:
    """Goes through the tree once, and asks torch's objects for each thing once: asking is what costs."""

    def __init__(self) -> None:
        self._flow = DataFlow()
        self._leaves: list[_Leaf] = []
        self._seen_sizes: dict[Tensor, int] = {}
        self._mutable: dict[tuple[Any, ...], tuple[bool, tuple[bool | None, ...]]] = {}
        self._seen_owners: set[tuple[str, int]] = set()
        self._devices: dict[Any, tuple[str, int]] = {}

    def visit(self, event: Any, is_backward: bool, leaf: _Leaf | None) -> None:
        """Takes in an event and what is inside it; ``leaf`` is the node that all of it belongs to, if there is one."""
        pending = [(event, is_backward, leaf)]
        while pending:
            event, is_backward, leaf = pending.pop()
            kind, fields = event.typed
            if kind == _EventType.TorchOp:
                is_backward, leaf = self._take_operator(event, fields, is_backward, leaf)
            elif kind == _EventType.Allocation:
                self._take_allocation(event, fields, is_backward, leaf)
            elif kind == _EventType.PyCall:
                self._take_call(fields)
            pending.extend((child, is_backward, leaf) for child in reversed(event.children))

    def finish(self) -> DataFlow:
        self._leaves.sort(key=attrgetter("begin_ns"))
        versions: dict[Tensor, int] = {}
        self._flow.nodes = [_node(leaf, versions) for leaf in self._leaves]
        self._flow.sizes_bytes = self._seen_sizes | self._flow.sizes_bytes
        return self._flow

    def _take_operator(
        self, event: Any, fields: Any, is_backward: bool, leaf: _Leaf | None
    ) -> tuple[bool, _Leaf | None]:
        is_function = fields.scope == _BACKWARD
        tensors = [self._tensors(it) for it in fields.inputs]
        has_schema, mutable = self._schema(event.name, fields, tensors)
        if leaf is None and (is_function or has_schema):
            leaf = _Leaf(event.start_time_ns, is_backward or is_function)
            self._leaves.append(leaf)
        if leaf is not None:
            for group, may_change in zip(tensors, mutable, strict=True):
                for tensor in group or ():
                    if tensor is not None:
                        leaf.uses.setdefault(tensor, set()).add(may_change)
        if is_function and event.name == "torch::autograd::AccumulateGrad":
            self._take_new_gradient(event)
        return is_backward or is_function, leaf

    def _tensors(self, value: Any) -> list[Tensor | None] | None:
        """The tensors of one input; None if it is neither a tensor nor a list of them."""
        if isinstance(value, _TensorMetadata):
            return [self._tensor(value)]
        return [self._tensor(it) for it in value] if isinstance(value, list) else None

    def _tensor(self, metadata: Any) -> Tensor | None:
        tensor = self._key(metadata)
        if tensor is not None and metadata.layout == torch.strided:
            shape = zip(metadata.sizes or [1], metadata.strides or [1], strict=True)
            num_bytes = max(size * stride for size, stride in shape) * _element_size(metadata.dtype)
            if num_bytes > self._seen_sizes.get(tensor, -1):
                self._seen_sizes[tensor] = num_bytes
        return tensor

    def _key(self, metadata: Any) -> Tensor | None:
        if metadata is None or metadata.storage_data_ptr is None:
            return None
        return self._identity(metadata, self._device(metadata.device))

    def _identity(self, fields: Any, device: tuple[str, int]) -> Tensor | None:
        number, allocation = fields.id, fields.allocation_id
        return None if number is None or allocation is None else (number, allocation, *device)

    def _device(self, device: Any) -> tuple[str, int]:
        found = self._devices.get(device)
        if found is None:
            index = device.index
            found = self._devices[device] = (device.type, -1 if index is None else index)
        return found

    def _schema(self, name: str, fields: Any, tensors: list[Any]) -> tuple[bool, tuple[bool | None, ...]]:
        """Whether a schema fits the operator, and which inputs it may change (None: nobody knows)."""
        kinds = (
            (type(it) if group is None else None not in group, isinstance(it, list))
            for it, group in zip(fields.inputs, tensors, strict=True)
        )
        signature = (name, *kinds)
        found = self._mutable.get(signature)
        if found is None:
            found = bool(SchemaMatcher.match_schemas(fields)), SchemaMatcher.inputs_are_mutable(fields)
            self._mutable[signature] = found
        return found

    def _take_new_gradient(self, event: Any) -> None:
        first = next(iter(event.children), None)
        if first is None or first.typed[0] != _EventType.TorchOp or first.name not in ("aten::detach", "aten::add_"):
            return
        inputs = first.typed[1].inputs
        if inputs and isinstance(inputs[0], _TensorMetadata):
            _append(self._flow.gradients, self._key(inputs[0]))

    def _take_allocation(self, event: Any, fields: Any, is_backward: bool, leaf: _Leaf | None) -> None:
        device, time_ns, num_bytes = self._device(fields.device), event.start_time_ns, fields.alloc_size
        tensor = self._identity(fields, device) if fields.ptr is not None else None
        self._flow.allocations.append(Allocation(time_ns, num_bytes, fields.ptr, tensor, device))
        if tensor is None:
            return
        self._flow.sizes_bytes.setdefault(tensor, abs(num_bytes))
        if leaf is None:
            leaf = _Leaf(time_ns, is_backward)
            self._leaves.append(leaf)
        (leaf.makes if num_bytes > 0 else leaf.frees).append(tensor)

    def _take_call(self, fields: Any) -> None:
        """Python's tracer keeps what it saw of a module or optimizer, so that one look at each is enough."""
        if (module := fields.module) is not None and self._is_new("module", module.self_ptr):
            for _, parameter, gradient in module.parameters:
                self._take_parameter(parameter, gradient)
        if (optimizer := fields.optimizer) is not None and self._is_new("optimizer", optimizer.self_ptr):
            for parameter, gradient, state in optimizer.parameters:
                self._take_parameter(parameter, gradient)
                for _, tensor in state:
                    _append(self._flow.optimizer_state, self._tensor(tensor) if tensor is not None else None)

    def _is_new(self, kind: str, pointer: int) -> bool:
        is_new = (kind, pointer) not in self._seen_owners
        self._seen_owners.add((kind, pointer))
        return is_new

    def _take_parameter(self, parameter: Any, gradient: Any) -> None:
        if parameter is not None:
            _append(self._flow.parameters, self._tensor(parameter))
        if gradient is not None:
            _append(self._flow.gradients, self._tensor(gradient))


def _append(tensors: list[Tensor], tensor: Tensor | None) -> None:
    if tensor is not None:
        tensors.append(tensor)


def _node(leaf: _Leaf, versions: dict[Tensor, int]) -> FlowNode:
    edges = {
        tensor: Edge(versions.setdefault(tensor, 0), True in may_change or may_change == {None})
        for tensor, may_change in leaf.uses.items()
    }
    for tensor in leaf.frees:
        edges[tensor] = Edge(versions.setdefault(tensor, 0), frees=True)
    for tensor in leaf.makes:
        edges.setdefault(tensor, Edge()).reads = None
    _count_up(edges.items(), versions)
    return FlowNode(leaf.begin_ns, leaf.is_backward, dict(sorted(edges.items(), key=lambda item: item[0])))


def _count_up(edges: Iterable[tuple[Tensor, Edge]], versions: dict[Tensor, int]) -> None:
    for tensor, edge in edges:
        if edge.changes and edge.reads is not None:
            versions[tensor] += 1


def all_versions(flow: DataFlow, also: Iterable[Tensor]) -> Iterator[tuple[Tensor, int]]:
    """Every tensor in every version that is read, made or left; those of ``also`` in the first."""
    for node in flow.nodes:
        yield from node.inputs
        yield from node.outputs
        yield from ((tensor, 0) for tensor in node.temporaries)
    yield from ((tensor, 0) for tensor in also)
