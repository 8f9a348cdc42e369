"""Tree of a model's modules, in which repeated blocks are one node."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kinetoscope.analysis.modules.blocks import find_pattern, format_range
from kinetoscope.analysis.modules.module_rows import ModuleRow
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.report.calls import count_steps
from kinetoscope.report.labels import find_limiting_side

MAX_DEVIATION = 0.2
"""A block whose time differs by more from the median of its kind is named as an outlier."""

MAX_UNEQUAL_BLOCKS = 8
"""Blocks whose times differ are folded only where there are more of them than people read."""

_MIN_BLOCKS = 2
_SUMS = (
    *(
        f"{prefix}{side}_{direction}_ns"
        for prefix in ("", "self_")
        for side in ("cpu", "device")
        for direction in ("forward", "backward")
    ),
    *("num_calls", "communication_ns", "recompute_ns", "flops", "allocated_bytes", "saved_bytes"),
)


@dataclass(frozen=True)
class ModuleNode:
    """A module, or several blocks of the same kind, with the modules inside.

    ``names`` are the qualified names; ``label`` is the name below the parent, ``layers.0-31`` where it ``is_folded``,
    one for several blocks. ``amounts`` are sums over the names and ranks by field of `ModuleRow`, None where unknown.
    ``outlier`` is the name of the only block whose time differs from the others', with the ratio to their median.
    ``ranks`` are those that have the module.
    """

    label: str
    names: tuple[str, ...]
    class_name: str | None
    amounts: dict[str, float | None]
    children: "list[ModuleNode]" = field(default_factory=list)
    outlier: tuple[str, float] | None = None
    is_folded: bool = False
    ranks: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The label, with the number of modules if it stands for several: ``layers.0-31 (32x)``."""
        return f"{self.label} ({len(self.names)}x)" if self.is_folded else self.label


@dataclass(frozen=True)
class ModuleSummary:
    """The modules of a run as a tree, with what its times are shares of.

    ``side`` is ``device`` where the GPU limits the step, else ``cpu``. ``num_steps`` are the recorded steps of all
    ranks. ``step_ns`` is a step of a rank: on the CPU the time of all ``nodes``, on the GPU the step time.
    """

    nodes: list[ModuleNode]
    side: str
    num_steps: int
    step_ns: float | None

    def time_ns(self, node: ModuleNode) -> float | None:
        """Return the time of a node per step of a rank."""
        return self.per_step(module_time_ns(node.amounts, self.side))

    def share(self, node: ModuleNode) -> float | None:
        """Return the time of a node as a share of the step."""
        time_ns = self.time_ns(node)
        return time_ns / self.step_ns if time_ns is not None and self.step_ns else None

    def amounts(self, node: ModuleNode) -> dict[str, float | None]:
        """Return the amounts of a node per step of a rank, by field of `ModuleRow`, with recomputation on this side."""
        of_side = node.amounts | {"recompute_ns": find_recompute_ns(node.amounts, self.side)}
        return {name: self.per_step(amount) for name, amount in of_side.items()}

    def per_step(self, amount: float | None) -> float | None:
        """Return an amount of a node per step of a rank."""
        return None if amount is None else amount / self.num_steps


def summarize_modules(report: RunReport) -> ModuleSummary:
    """Return the modules of a report on the side that limits the step."""
    is_on_device = find_limiting_side(report.run) == "device" and any(
        row.device_forward_ns is not None for row in report.modules
    )
    side = "device" if is_on_device else "cpu"
    nodes, num_steps = build_module_tree(report.modules, side), count_steps(report.ranks) or 1
    cpu_ns = sum(module_time_ns(node.amounts, side) or 0 for node in nodes) / num_steps
    return ModuleSummary(nodes, side, num_steps, report.run["step_ns"] if is_on_device else cpu_ns)


def walk(nodes: Sequence[ModuleNode], level: int = 0) -> Iterator[tuple[ModuleNode, int]]:
    """Yield each node before those inside, with its level from 0."""
    for node in nodes:
        yield node, level
        yield from walk(node.children, level + 1)


def describe_outlier(node: ModuleNode) -> str:
    """Return a sentence on the only block that differs from the others of a node; "" without one."""
    if node.outlier is None:
        return ""
    name, ratio = node.outlier
    return f"{name} takes {ratio:.1f}x the median of {node.label}."


def module_time_ns(amounts: dict[str, float | None], side: str) -> float | None:
    """Return the time of a module forward and backward, with communication and recomputation.

    Args:
        amounts: nanoseconds by field of `ModuleRow`.
        side: ``device`` or ``cpu``.
    """
    parts = [amounts[f"{side}_forward_ns"], amounts[f"{side}_backward_ns"]]
    parts += [find_recompute_ns(amounts, side), amounts["communication_ns"] if side == "device" else None]
    known = [part for part in parts if part is not None]
    return sum(known) if parts[0] is not None else None


def find_recompute_ns(amounts: dict[str, float | None], side: str) -> float | None:
    """Return the time of recomputation on a side, as `module_time_ns` counts it.

    Where there is a device, it is known of the device only: on the CPU it is a part of the backward pass.
    """
    return amounts["recompute_ns"] if (side == "device") == (amounts["device_forward_ns"] is not None) else None


def build_module_tree(rows: Iterable[ModuleRow], side: str) -> list[ModuleNode]:
    """Return the outermost modules and the time outside of modules, those with most time first."""
    by_name: dict[str, list[ModuleRow]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return _Tree(by_name, side).roots()


class _Tree:
    def __init__(self, by_name: dict[str, list[ModuleRow]], side: str) -> None:
        self._rows, self._side = by_name, side
        self._children: dict[str | None, list[str]] = {}
        for name in by_name:
            self._children.setdefault(self._parent_of(name), []).append(name)

    def roots(self) -> list[ModuleNode]:
        nodes = [self._node(name, [name]) for name in self._children.get(None, [])]
        return self._in_order(nodes)

    def _parent_of(self, name: str) -> str | None:
        parent = name.rpartition(".")[0]
        while parent and parent not in self._rows:
            parent = parent.rpartition(".")[0]
        return parent or None

    def _node(self, label: str, names: Sequence[str], *, is_folded: bool = False) -> ModuleNode:
        return ModuleNode(
            label=label,
            names=tuple(names),
            class_name=self._rows[names[0]][0].class_name,
            amounts=self._amounts(names),
            children=self._in_order(self._nodes_below(names)),
            outlier=self._outlier(names),
            is_folded=is_folded,
            ranks=self._ranks(names),
        )

    def _nodes_below(self, names: Sequence[str]) -> Iterable[ModuleNode]:
        """Yield the modules inside modules that count as one, those of the same kind and ranks as one node."""
        kinds: dict[tuple[str, str | None, tuple[int, ...]], dict[str, list[str]]] = {}
        for parent in names:
            for name in self._children.get(parent, []):
                label = name[len(parent) + 1 :]
                kind = find_pattern(label), self._rows[name][0].class_name, self._ranks([name])
                kinds.setdefault(kind, {}).setdefault(label, []).append(name)
        for labels in kinds.values():
            if len(labels) >= _MIN_BLOCKS and self._are_alike(list(labels.values())):
                blocks = [name for each in labels.values() for name in each]
                yield self._node(format_range(list(labels)), blocks, is_folded=True)
            else:
                yield from (self._node(label, each) for label, each in labels.items())

    def _ranks(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(sorted({row.rank for name in names for row in self._rows[name] if row.rank is not None}))

    def _are_alike(self, blocks: Sequence[Sequence[str]]) -> bool:
        times = [self._time(names) / len(names) for names in blocks]
        return len(blocks) > MAX_UNEQUAL_BLOCKS or len(_deviating(times)) <= (len(times) > _MIN_BLOCKS)

    def _outlier(self, names: Sequence[str]) -> tuple[str, float] | None:
        times = [self._time([name]) for name in names]
        deviating = _deviating(times) if len(names) > _MIN_BLOCKS else []
        if len(deviating) != 1:
            return None
        return names[deviating[0]], times[deviating[0]] / statistics.median(times)

    def _time(self, names: Sequence[str]) -> float:
        return module_time_ns(self._amounts(names), self._side) or 0

    def _amounts(self, names: Sequence[str]) -> dict[str, float | None]:
        rows = [row for name in names for row in self._rows[name]]
        known = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in _SUMS}
        return {name: sum(values) if values else None for name, values in known.items()}

    def _in_order(self, nodes: Iterable[ModuleNode]) -> list[ModuleNode]:
        return sorted(nodes, key=lambda node: -(module_time_ns(node.amounts, self._side) or 0))


def _deviating(times: Sequence[float]) -> list[int]:
    """Return the indices of times that differ by more than `MAX_DEVIATION` from the median."""
    median = statistics.median(times)
    return [index for index, time in enumerate(times) if abs(time - median) > MAX_DEVIATION * median]
