"""torch: what memory is for. The flow of data flows in; the category of each tensor in each version flows out.

The rules are torch.profiler's: gradients and parameters are seen by Python's tracer, or are what an update turns into
one another; inputs are what no gradient ever reaches; activations what the forward pass makes of these.
"""

from collections.abc import Iterable
from enum import IntEnum

from kinetoscope.torch.data_flow import DataFlow, FlowNode, Tensor, all_versions

Version = tuple[Tensor, int]


class Category(IntEnum):
    """What memory is for; the number is the place in files, as torch.profiler has it."""

    PARAMETER = 0
    OPTIMIZER_STATE = 1
    INPUT = 2
    TEMPORARY = 3
    ACTIVATION = 4
    GRADIENT = 5
    AUTOGRAD_DETAIL = 6
    UNKNOWN = 7


_LEARNED = (Category.GRADIENT, Category.PARAMETER)


class Categories:
    """The category of each tensor: by its id for all its versions, else for this memory, else for one version."""

    def __init__(self) -> None:
        self.tensors_by_id: set[Tensor] = set()
        self._by_id: dict[int, Category] = {}
        self._temporaries: set[Tensor] = set()
        self._by_version: dict[Version, Category] = {}

    def of(self, version: Version) -> Category:
        """The category, `Category.UNKNOWN` if there is none."""
        category = self._by_id.get(version[0][0])
        if category is not None:
            return category
        return (
            Category.TEMPORARY if version[0] in self._temporaries else self._by_version.get(version, Category.UNKNOWN)
        )

    def set_tensor(self, tensor: Tensor, category: Category) -> None:
        """All that has this tensor's id is of ``category``, whatever it was before."""
        self._by_id[tensor[0]] = category
        self.tensors_by_id.add(tensor)

    def add_temporary(self, tensor: Tensor) -> None:
        """This memory is taken and given back within one operator."""
        self._temporaries.add(tensor)

    def suggest(self, version: Version, category: Category) -> None:
        """This version is of ``category``, if nobody said otherwise."""
        self._by_version.setdefault(version, category)


def classify_memory(flow: DataFlow) -> Categories:
    """The category of every tensor in every version."""
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
    """Inputs lead to a gradient, and no version of them comes from one; nor does the backward pass make them."""
    from_gradients = _ids_reached_by_gradients(nodes, categories)
    candidates = _leads_to_gradients(nodes, categories)
    for node in nodes:
        if node.is_backward:
            candidates.difference_update(node.outputs)
    for version in candidates:
        if version[0][0] not in from_gradients:
            categories.suggest(version, Category.INPUT)


def _ids_reached_by_gradients(nodes: list[FlowNode], categories: Categories) -> set[int]:
    """The ids of tensors any version of which depends on a gradient or parameter.

    Since it is any version, knowledge flows backward as well, and so the nodes are gone through until nothing is new.
    """
    reached: set[int] = set()
    size_before = -1
    while size_before != len(reached):
        size_before = len(reached)
        for node in nodes:
            hits = {it[0][0] for it in node.inputs if it[0][0] in reached or categories.of(it) in _LEARNED}
            if hits:
                reached |= hits
                reached.update(tensor[0] for tensor, _ in node.outputs)
    return reached


def _leads_to_gradients(nodes: list[FlowNode], categories: Categories) -> set[Version]:
    leading: set[Version] = set()
    for node in reversed(nodes):
        versions = {*node.inputs, *node.outputs}
        if not leading.isdisjoint(versions) or any(categories.of(it) in _LEARNED for it in versions):
            leading |= versions
    return leading


def _deduce_parameters(flow: DataFlow, categories: Categories) -> None:
    """A parameter takes part in the forward pass, is used for a gradient, and depends on one."""
    versions = set(all_versions(flow, categories.tensors_by_id))
    candidates = _beside_inputs(flow.nodes, categories, versions)
    candidates &= _used_for_gradients(flow.nodes, categories)
    ids = {tensor[0] for tensor, _ in candidates} & _ids_reached_by_gradients(flow.nodes, categories)
    for tensor, _ in versions:
        if tensor[0] in ids:
            categories.set_tensor(tensor, Category.PARAMETER)


def _beside_inputs(nodes: list[FlowNode], categories: Categories, versions: Iterable[Version]) -> set[Version]:
    """What the forward pass uses beside its inputs and what it made of them."""
    forward = {it for it in versions if categories.of(it) is Category.INPUT}
    beside: set[Version] = set()
    for node in nodes:
        if node.is_backward or forward.isdisjoint(node.inputs):
            continue
        if not any(categories.of(it) is Category.GRADIENT for it in (*node.inputs, *node.outputs)):
            forward.update(node.outputs)
            beside.update(it for it in node.inputs if it not in forward)
    return beside


def _used_for_gradients(nodes: list[FlowNode], categories: Categories) -> set[Version]:
    used: set[Version] = set()
    for node in reversed(nodes):
        if any(it in used or categories.of(it) is Category.GRADIENT for it in node.outputs):
            used.update(node.inputs)
    return used


def _set_activations(nodes: list[FlowNode], categories: Categories) -> None:
    """From the inputs on, all that the forward pass makes of inputs, activations and parameters."""
    required = {Category.INPUT, Category.ACTIVATION}
    allowed = required | {Category.PARAMETER, Category.TEMPORARY}
    for node in nodes:
        if node.is_backward:
            continue
        found = {categories.of(it) for it in node.inputs}
        if found & required and found <= allowed:
            for version in node.outputs:
                categories.suggest(version, Category.ACTIVATION)


def _set_autograd_details(nodes: list[FlowNode], categories: Categories) -> None:
    """What the backward pass makes for itself."""
    before = (Category.UNKNOWN, Category.AUTOGRAD_DETAIL)
    for node in nodes:
        for tensor, version in node.outputs if node.is_backward else ():
            if version == 0 or categories.of((tensor, version - 1)) in before:
                categories.suggest((tensor, version), Category.AUTOGRAD_DETAIL)
