"""Data flow of a window: the operator that reads, changes, allocates and frees each tensor.

The rules follow torch.profiler's memory profile, so that memory gets the same categories. A node is an operator with a
schema and everything inside it, or an allocation outside any operator. A tensor has a version, which each operator that
may change the tensor increases.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch

from kinetoscope.torch.private_names import EventType, SchemaMatcher, TensorMetadata

Tensor = tuple[int, int, str, int]
"""Identity of a tensor's memory: torch's ids of the tensor and its allocation, and the device's type and index."""

_BACKWARD = "BACKWARD_FUNCTION"


@dataclass(slots=True)
class Edge:
    """Use of a tensor by a node.

    Attributes:
        reads: The version that it reads; None if it allocates the tensor.
        changes: Whether it may change the tensor.
        frees: Whether it frees the tensor.
    """

    reads: int | None = None
    changes: bool = False
    frees: bool = False


@dataclass(slots=True)
class FlowNode:
    """An operator, or an allocation outside any operator, with the tensors that it uses."""

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
    """Memory that was allocated (positive bytes) or freed (negative); ``tensor`` is None if unknown to torch."""

    time_ns: int
    num_bytes: int
    pointer: int | None
    tensor: Tensor | None
    device: tuple[str, int]


@dataclass(slots=True)
class DataFlow:
    """Nodes in order of time, allocations in order of the event tree, and the tensors of modules and optimizers."""

    nodes: list[FlowNode] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    sizes_bytes: dict[Tensor, int] = field(default_factory=dict)
    parameters: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    optimizer_state: list[Tensor] = field(default_factory=list)


def read_data_flow(kineto_results: Any) -> DataFlow:
    """Return the data flow of a window that was recorded with shapes, memory and stacks."""
    reader = _DataFlowReader()
    for root in kineto_results.experimental_event_tree():
        reader.visit(root, is_backward=False, node=None)
    return reader.finish()


@dataclass(slots=True)
class _UnversionedNode:
    """A node before versions are known, with its operators' effects on each tensor."""

    begin_ns: int
    is_backward: bool
    uses: dict[Tensor, set[bool | None]] = field(default_factory=dict)
    frees: list[Tensor] = field(default_factory=list)
    makes: list[Tensor] = field(default_factory=list)


class _DataFlowReader:
    """Reader of the event tree in one pass; each attribute of torch's objects is read once, because reads are slow."""

    def __init__(self) -> None:
        self._flow = DataFlow()
        self._nodes: list[_UnversionedNode] = []
        self._seen_sizes: dict[Tensor, int] = {}
        self._mutable: dict[tuple[Any, ...], tuple[bool, tuple[bool | None, ...]]] = {}
        self._seen_owners: set[tuple[str, int]] = set()
        self._devices: dict[Any, tuple[str, int]] = {}

    def visit(self, event: Any, is_backward: bool, node: _UnversionedNode | None) -> None:
        """Read an event and those inside it; ``node`` is the node that contains them, if any."""
        pending = [(event, is_backward, node)]
        while pending:
            event, is_backward, node = pending.pop()
            kind, fields = event.typed
            if kind == EventType.TorchOp:
                is_backward, node = self._read_operator(event, fields, is_backward, node)
            elif kind == EventType.Allocation:
                self._read_allocation(event, fields, is_backward, node)
            elif kind == EventType.PyCall:
                self._read_call(fields)
            pending.extend((child, is_backward, node) for child in reversed(event.children))

    def finish(self) -> DataFlow:
        """Return the data flow of all events read."""
        self._nodes.sort(key=attrgetter("begin_ns"))
        versions: dict[Tensor, int] = {}
        self._flow.nodes = [_make_node(node, versions) for node in self._nodes]
        self._flow.sizes_bytes = self._seen_sizes | self._flow.sizes_bytes
        return self._flow

    def _read_operator(
        self, event: Any, fields: Any, is_backward: bool, node: _UnversionedNode | None
    ) -> tuple[bool, _UnversionedNode | None]:
        """Read an operator's tensors; return whether it is backward, and the node that contains it."""
        is_function = fields.scope.name == _BACKWARD
        tensors = [self._tensors(value) for value in fields.inputs]
        has_schema, mutable = self._schema(event.name, fields, tensors)
        if node is None and (is_function or has_schema):
            node = _UnversionedNode(event.start_time_ns, is_backward or is_function)
            self._nodes.append(node)
        if node is not None:
            for group, may_change in zip(tensors, mutable, strict=True):
                for tensor in group or ():
                    if tensor is not None:
                        node.uses.setdefault(tensor, set()).add(may_change)
        if is_function and event.name == "torch::autograd::AccumulateGrad":
            self._read_new_gradient(event)
        return is_backward or is_function, node

    def _tensors(self, value: Any) -> list[Tensor | None] | None:
        """Return the tensors of one input; None if it is neither a tensor nor a list."""
        if isinstance(value, TensorMetadata):
            return [self._tensor(value)]
        return [self._tensor(item) for item in value] if isinstance(value, list) else None

    def _tensor(self, metadata: Any) -> Tensor | None:
        """Return the tensor of torch's metadata, and keep its largest size."""
        tensor = self._key(metadata)
        if tensor is not None and metadata.layout == torch.strided:
            shape = zip(metadata.sizes or [1], metadata.strides or [1], strict=True)
            num_bytes = max(size * stride for size, stride in shape) * metadata.dtype.itemsize
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
        """Return whether a schema matches the operator, and for each input whether it may change (None: unknown)."""
        kinds = (
            (type(value) if group is None else None not in group, isinstance(value, list))
            for value, group in zip(fields.inputs, tensors, strict=True)
        )
        signature = (name, *kinds)
        found = self._mutable.get(signature)
        if found is None:
            found = bool(SchemaMatcher.match_schemas(fields)), SchemaMatcher.inputs_are_mutable(fields)
            self._mutable[signature] = found
        return found

    def _read_new_gradient(self, event: Any) -> None:
        """Add the gradient that AccumulateGrad stores."""
        first = next(iter(event.children), None)
        if first is None or first.typed[0] != EventType.TorchOp or first.name not in ("aten::detach", "aten::add_"):
            return
        inputs = first.typed[1].inputs
        if inputs and isinstance(inputs[0], TensorMetadata):
            _append_known(self._flow.gradients, self._key(inputs[0]))

    def _read_allocation(self, event: Any, fields: Any, is_backward: bool, node: _UnversionedNode | None) -> None:
        """Add an allocation or deallocation, and a node for it if there is no operator."""
        device, time_ns, num_bytes = self._device(fields.device), event.start_time_ns, fields.alloc_size
        tensor = self._identity(fields, device) if fields.ptr is not None else None
        self._flow.allocations.append(Allocation(time_ns, num_bytes, fields.ptr, tensor, device))
        if tensor is None:
            return
        self._flow.sizes_bytes.setdefault(tensor, abs(num_bytes))
        if node is None:
            node = _UnversionedNode(time_ns, is_backward)
            self._nodes.append(node)
        (node.makes if num_bytes > 0 else node.frees).append(tensor)

    def _read_call(self, fields: Any) -> None:
        """Read the parameters of a module or optimizer once: the Python tracer repeats them at every call."""
        if (module := fields.module) is not None and self._is_new("module", module.self_ptr):
            for _, parameter, gradient in module.parameters:
                self._read_parameter(parameter, gradient)
        if (optimizer := fields.optimizer) is not None and self._is_new("optimizer", optimizer.self_ptr):
            for parameter, gradient, state in optimizer.parameters:
                self._read_parameter(parameter, gradient)
                for _, tensor in state:
                    _append_known(self._flow.optimizer_state, self._tensor(tensor) if tensor is not None else None)

    def _is_new(self, kind: str, pointer: int) -> bool:
        is_new = (kind, pointer) not in self._seen_owners
        self._seen_owners.add((kind, pointer))
        return is_new

    def _read_parameter(self, parameter: Any, gradient: Any) -> None:
        if parameter is not None:
            _append_known(self._flow.parameters, self._tensor(parameter))
        if gradient is not None:
            _append_known(self._flow.gradients, self._tensor(gradient))


def _append_known(tensors: list[Tensor], tensor: Tensor | None) -> None:
    if tensor is not None:
        tensors.append(tensor)


def _make_node(node: _UnversionedNode, versions: dict[Tensor, int]) -> FlowNode:
    """Return the node with the versions that it reads; advance the versions that it changes."""
    edges = {
        tensor: Edge(versions.setdefault(tensor, 0), True in may_change or may_change == {None})
        for tensor, may_change in node.uses.items()
    }
    for tensor in node.frees:
        edges[tensor] = Edge(versions.setdefault(tensor, 0), frees=True)
    for tensor in node.makes:
        edges.setdefault(tensor, Edge()).reads = None
    _increase_versions(edges.items(), versions)
    return FlowNode(node.begin_ns, node.is_backward, dict(sorted(edges.items(), key=lambda item: item[0])))


def _increase_versions(edges: Iterable[tuple[Tensor, Edge]], versions: dict[Tensor, int]) -> None:
    for tensor, edge in edges:
        if edge.changes and edge.reads is not None:
            versions[tensor] += 1


def iterate_versions(flow: DataFlow, extra_tensors: Iterable[Tensor]) -> Iterator[tuple[Tensor, int]]:
    """Yield each tensor with each version that a node reads, makes or leaves, and ``extra_tensors`` with version 0."""
    for node in flow.nodes:
        yield from node.inputs
        yield from node.outputs
        yield from ((tensor, 0) for tensor in node.temporaries)
    yield from ((tensor, 0) for tensor in extra_tensors)
