"""Graphs and sizes of tensors, read without running user code; torch is used if loaded and never imported."""

import heapq
import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from kinetoscope.core.background.private_names import find_all
from kinetoscope.sources.private_names import (
    next_sequence_number,
    saved_tensor_attributes,
    sequence_number,
    tensor_accessors,
)
from kinetoscope.sources.retained_objects import ObjectKinds, RetainedObject, iterate_newest, iterate_values

_MAX_NODES = 5000
_MAX_SAMPLED_ELEMENTS = 4
_MAX_NODES_FOR_MEMORY = 1000
_MAX_MEMBERS = 64
_LEAF_NUMBER = 2**63  # leaves of graphs have this number or a higher one
_MIN_STEPS_SHARE = 0.5


class NewTensors(NamedTuple):
    """Statistics of the newest elements of a container.

    Attributes:
        share: Share of the elements that have a tensor.
        share_with_graph: Share of the elements that have a tensor whose graph is still needed.
        element_bytes: Mean bytes per element, with its graphs.
        device: Device index of the tensors; None for the CPU.
    """

    share: float
    share_with_graph: float
    element_bytes: float
    device: int | None


def read_sequence_number() -> int | None:
    """Return the number that autograd gives this thread's next operation; None if torch is not loaded or has none."""
    found = find_all(next_sequence_number, sequence_number)
    return None if found is None else int(found[0]())


class TensorReader:
    """Reader of tensors through torch's own functions, whatever their class. See `make_tensor_reader`."""

    def __init__(self, no_overrides: Any, graph: Any, device: Any, dtype: Any) -> None:
        torch = sys.modules["torch"]
        self._no_overrides = no_overrides
        self._plain_classes = (torch.Tensor, torch.nn.Parameter)
        self._get_graph, self._get_device, self._get_dtype = graph.__get__, device.__get__, dtype.__get__
        self._float64, self._strided = torch.float64, torch.strided
        self._saved_names: dict[type, list[str]] = {}

    def graph(self, tensor: Any) -> Any:
        """Return the last operation in a tensor's graph, or None."""
        with self._no_overrides():
            return self._get_graph(tensor)

    def device(self, tensor: Any) -> int | None:
        """Return the index of a tensor's device; None for the CPU."""
        with self._no_overrides():
            device = self._get_device(tensor)
        return None if device.type == "cpu" else device.index or 0

    def is_float64(self, tensor: Any) -> bool:
        """Return whether a tensor is float64 and has more than one element."""
        with self._no_overrides():
            is_float64 = self._get_dtype(tensor) is self._float64
        return is_float64 and (type(tensor) not in self._plain_classes or _num_elements(tensor) > 1)

    def storage_bytes(self, tensor: Any) -> dict[int, int]:
        """Return the bytes of a tensor's storage by address, without its graph.

        The result is empty for subclasses, which may compute their storage, and for sparse, meta and functional
        tensors.
        """
        if type(tensor) not in self._plain_classes or tensor.layout != self._strided or tensor.is_meta:
            return {}
        try:
            storage = tensor.untyped_storage()
            return {storage.data_ptr(): storage.nbytes()}
        except RuntimeError:  # a functional tensor; NotImplementedError is a RuntimeError
            return {}

    def graph_storage_bytes(self, graph: Any) -> dict[int, int] | None:
        """Return the bytes by address that a graph keeps for its backward pass, without parameters.

        At most `_MAX_NODES_FOR_MEMORY` operations are read. None means that the backward pass has run and nothing is
        kept.
        """
        kept, parameters, is_needed = dict[int, int](), set[int](), False
        for node in islice(_iterate_nodes(graph), _MAX_NODES_FOR_MEMORY):
            variable = getattr(node, "variable", None)
            if variable is not None:
                parameters |= set(self.storage_bytes(variable))
            for saved in self._iterate_saved(node):
                is_needed = True
                kept |= self.storage_bytes(saved)
        return {address: size for address, size in kept.items() if address not in parameters} if is_needed else None

    def _iterate_saved(self, node: Any) -> Iterator[Any]:
        """Yield the tensors that an operation saved; None for one that is packed, or unknown to this torch."""
        owner = type(node)
        if owner not in self._saved_names:
            self._saved_names[owner] = saved_tensor_attributes(owner)
        for name in self._saved_names[owner]:
            try:
                found = getattr(node, name)
            except RuntimeError:  # a user's autograd.Function whose backward pass has run
                continue
            for saved in found if type(found) is tuple else (found,):
                is_known = hasattr(saved, "data") and getattr(saved, "unpack_hook", None) is None
                if not is_known:
                    yield None
                elif saved.data is not None:
                    yield saved.data


def _num_elements(tensor: Any) -> int:
    try:
        return tensor.numel()
    except RuntimeError:  # some nested tensors
        return 0


def make_tensor_reader() -> TensorReader | None:
    """Return a reader of tensors; None if torch is not loaded or lacks a private name."""
    found = find_all(*tensor_accessors)
    return None if found is None else TensorReader(*found)


def summarize_new_tensors(
    retained: RetainedObject, num_new: int, kinds: ObjectKinds, reader: TensorReader
) -> NewTensors:
    """Return statistics of the ``num_new`` newest elements of a container, from a sample."""
    sample = list(islice(iterate_newest(retained.value, retained.kind), min(num_new, _MAX_SAMPLED_ELEMENTS)))
    first_tensors, sizes, num_with_graph = list[Any](), list[int](), 0
    for element in sample:
        tensors = list(islice(_iterate_tensors(element, kinds), _MAX_MEMBERS))
        graphs = [
            storage_bytes for tensor in tensors if (storage_bytes := _graph_storage_bytes(reader, tensor)) is not None
        ]
        first_tensors += tensors[:1]
        num_with_graph += bool(graphs)
        sizes.append(sum(_merge([*map(reader.storage_bytes, tensors), *graphs]).values()))
    num_sampled = max(1, len(sample))
    device = reader.device(first_tensors[0]) if first_tensors else None
    return NewTensors(len(first_tensors) / num_sampled, num_with_graph / num_sampled, sum(sizes) / num_sampled, device)


def _graph_storage_bytes(reader: TensorReader, tensor: Any) -> dict[int, int] | None:
    graph = reader.graph(tensor)
    return None if graph is None else reader.graph_storage_bytes(graph)


def _merge(parts: list[dict[int, int]]) -> dict[int, int]:
    return {address: size for part in parts for address, size in part.items()}


def _iterate_nodes(graph: Any) -> Iterator[Any]:
    """Yield the operations of a graph, last first."""
    waiting, seen = deque([graph]), {id(graph)}
    kept = [graph]  # keeps ids from being reused
    while waiting:
        node = waiting.popleft()
        yield node
        for child, _ in node.next_functions:
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                kept.append(child)
                waiting.append(child)


def _iterate_tensors(value: Any, kinds: ObjectKinds, depth: int = 3) -> Iterator[Any]:
    """Yield the tensors in a value, down to ``depth`` levels."""
    kind = kinds[type(value)]
    if kind == "tensor":
        yield value
    elif kind and depth:
        for inner in islice(iterate_values(value, kind), _MAX_MEMBERS):
            yield from _iterate_tensors(inner, kinds, depth - 1)


def grows_each_step(graph: Any, since: int, until: int, num_steps: int) -> bool:
    """Return whether a graph has operations of at least half of the steps between two sequence numbers.

    The walk continues with the oldest operation, so that it follows a chain of steps.
    """
    if graph is None or until - since < num_steps or num_steps < 1:
        return False
    waiting, seen, steps = [(_read_number(graph), 0, graph)], {id(graph): graph}, set[int]()
    while waiting and len(seen) < _MAX_NODES:
        number, _, node = heapq.heappop(waiting)
        if number < since:
            break
        steps.add((number - since) * num_steps // (until - since))
        for child, _ in node.next_functions:
            if child is not None and id(child) not in seen and (found := _read_number(child)) < _LEAF_NUMBER:
                seen[id(child)] = child
                heapq.heappush(waiting, (found, len(seen), child))
    return len(steps) >= max(2, _MIN_STEPS_SHARE * num_steps)


def _read_number(node: Any) -> int:
    """Return the sequence number that autograd gave an operation."""
    return int(getattr(node, sequence_number.attribute)())
