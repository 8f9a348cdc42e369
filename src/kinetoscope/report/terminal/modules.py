"""The tree of modules of ``kinetoscope summary --modules``."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kinetoscope.analysis.run_report import RunReport
from kinetoscope.core.text.wording import format_memory, format_ms
from kinetoscope.report.calls import count_steps
from kinetoscope.report.descriptions import build_headline
from kinetoscope.report.labels import find_limiting_side
from kinetoscope.report.module_tree import ModuleNode, build_module_tree, module_time_ns
from kinetoscope.report.terminal.tables import compute_name_width, render_table, select_columns

_MIN_NAME_LENGTH = 30
_MIN_SHARE = 0.001
"""Modules that take less of a step have no row."""

_SIDES = {"device": "GPU", "cpu": "CPU"}
_FLOPS = ((1e9, "GFLOP"), (1e6, "MFLOP"))

_Line = tuple[str, ModuleNode]


def render_module_summary(report: RunReport, depth: int, width: int) -> RenderableType:
    """Return the screen of ``summary --modules``: the headline, the tree of modules, and blocks that differ."""
    is_on_device = find_limiting_side(report.run) == "device" and any(
        row.device_forward_ns is not None for row in report.modules
    )
    side = "device" if is_on_device else "cpu"
    tree = build_module_tree(report.modules, side)
    return Group(
        Text(build_headline(report.run), style="bold"),
        "",
        _render_tree(report, tree, side, depth, width),
        *_describe_outliers(tree),
    )


def _render_tree(report: RunReport, tree: Sequence[ModuleNode], side: str, depth: int, width: int) -> RenderableType:
    """Return the tree of modules per step and rank, those with most time first."""
    num_steps = count_steps(report.ranks) or 1
    step_ns = sum(module_time_ns(node.amounts, side) or 0 for node in tree) / num_steps
    step_ns = step_ns if side == "cpu" else report.run["step_ns"]
    lines = [
        (label, node)
        for label, node in _lines(tree, depth)
        if (module_time_ns(node.amounts, side) or 0) / num_steps >= _MIN_SHARE * (step_ns or 0)
    ]
    columns = _columns([node for _, node in lines], side, num_steps, step_ns)
    fitting = select_columns(columns, width - _MIN_NAME_LENGTH)
    limit = compute_name_width(fitting, width)
    return render_table(
        f"Modules, {_SIDES[side]} ms/step",
        {"module": [_shorten(label, limit) for label, _ in lines], **fitting},
        hidden_columns=[name for name in columns if name not in fitting],
    )


def _describe_outliers(tree: Sequence[ModuleNode]) -> list[Text]:
    """Return a line for each row of repeated blocks with one that differs from the others."""
    return [
        Text(f"{name} takes {ratio:.1f}x the median of {node.label}.")
        for node in _all_nodes(tree)
        if node.outlier is not None
        for name, ratio in (node.outlier,)
    ]


def _lines(nodes: Sequence[ModuleNode], depth: int, level: int = 0) -> Iterator[_Line]:
    for node in nodes:
        times = f" ({len(node.names)}x)" if (len(node.names) > 1 and "-" in node.label) or "," in node.label else ""
        kind = f" {node.class_name}" if node.class_name and node.class_name != node.label else ""
        yield f"{'  ' * level}{node.label}{times}{kind}", node
        if level < depth:
            yield from _lines(node.children, depth, level + 1)


def _all_nodes(nodes: Sequence[ModuleNode]) -> Iterator[ModuleNode]:
    for node in nodes:
        yield node
        yield from _all_nodes(node.children)


def _columns(nodes: Sequence[ModuleNode], side: str, num_steps: int, step_ns: float | None) -> dict[str, list[str]]:
    """Return the columns of some rows, per step, without those in which nothing was recorded."""
    amounts = [node.amounts for node in nodes]
    times = [module_time_ns(each, side) for each in amounts]
    columns = {"ms": [format_ms(_per_step(time, num_steps)) for time in times]}
    if step_ns:
        columns["%"] = ["" if time is None else f"{100 * time / num_steps / step_ns:.1f}" for time in times]
    fields = {"forward": f"{side}_forward_ns", "backward": f"{side}_backward_ns", "recomputed": "recompute_ns"}
    for word, name in (fields | {"communication": "communication_ns"}).items():
        if any(each[name] for each in amounts):
            columns[word] = [format_ms(_per_step(each[name], num_steps)) if each[name] else "" for each in amounts]
    columns["calls"] = [_count(each["num_calls"], num_steps) for each in amounts]
    most_flops = max((each["flops"] or 0 for each in amounts), default=0) / num_steps
    if most_flops:
        unit, word = next(((unit, word) for unit, word in _FLOPS if most_flops >= unit), _FLOPS[-1])
        columns[word] = [f"{each['flops'] / num_steps / unit:,.2f}" if each["flops"] else "" for each in amounts]
    if any(each["saved_bytes"] for each in amounts):
        saved = [each["saved_bytes"] for each in amounts]
        columns["saved"] = [format_memory(round(num_bytes / num_steps)) if num_bytes else "" for num_bytes in saved]
    return columns


def _per_step(value: float | None, num_steps: int) -> float | None:
    return None if value is None else value / num_steps


def _count(num_calls: float | None, num_steps: int) -> str:
    if not num_calls:
        return ""
    per_step = num_calls / num_steps
    return f"{per_step:,.0f}" if per_step == round(per_step) else f"{per_step:,.1f}"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
