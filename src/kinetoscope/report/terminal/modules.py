"""The tree of modules of ``kinetoscope summary --modules``."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kinetoscope.analysis.run_report import RunReport
from kinetoscope.core.text.wording import choose_flop_unit, format_memory, format_ms, format_ranges
from kinetoscope.report.descriptions import build_headline
from kinetoscope.report.module_tree import ModuleNode, ModuleSummary, describe_outlier, summarize_modules, walk
from kinetoscope.report.terminal.tables import compute_name_width, format_calls, render_table, select_columns

_MIN_NAME_LENGTH = 30
_MIN_SHARE = 0.001
"""Modules that take less of a step have no row."""

_SIDES = {"device": "GPU", "cpu": "CPU"}


def render_module_summary(report: RunReport, depth: int, width: int) -> RenderableType:
    """Return the screen of ``summary --modules``: the headline, the tree of modules, and blocks that differ."""
    summary = summarize_modules(report)
    outliers = filter(None, (describe_outlier(node) for node, _ in walk(summary.nodes)))
    return Group(
        Text(build_headline(report.run), style="bold"),
        "",
        _render_tree(summary, len(report.ranks), depth, width),
        *map(Text, outliers),
    )


def _render_tree(summary: ModuleSummary, num_ranks: int, depth: int, width: int) -> RenderableType:
    """Return the tree of modules per step, as the mean of the ranks, those with most time first."""
    lines = [
        (node, level)
        for node, level in walk(summary.nodes)
        if level <= depth and (summary.time_ns(node) or 0) >= _MIN_SHARE * (summary.step_ns or 0)
    ]
    columns = _columns(summary, [node for node, _ in lines])
    fitting, hidden = select_columns(columns, width - _MIN_NAME_LENGTH)
    limit = compute_name_width(fitting, width)
    return render_table(
        f"Modules, {_SIDES[summary.side]} ms/step" + (f", mean of {num_ranks} ranks" if num_ranks > 1 else ""),
        {"module": [_shorten(_format_label(node, level), limit) for node, level in lines], **fitting},
        hidden_columns=hidden,
    )


def _format_label(node: ModuleNode, level: int) -> str:
    kind = f" {node.class_name}" if node.class_name and node.class_name != node.label else ""
    return f"{'  ' * level}{node.title}{kind}"


def _columns(summary: ModuleSummary, nodes: Sequence[ModuleNode]) -> dict[str, list[str]]:
    """Return the columns of some rows, per step, without those in which nothing was recorded."""
    amounts = [summary.amounts(node) for node in nodes]
    columns = {"ms": [format_ms(summary.time_ns(node)) for node in nodes]}
    if summary.step_ns:
        shares = map(summary.share, nodes)
        columns["%"] = ["" if share is None else f"{100 * share:.1f}" for share in shares]
    fields = {word: f"{summary.side}_{word}_ns" for word in ("forward", "backward")}
    for word, name in (fields | {"recomputed": "recompute_ns", "communication": "communication_ns"}).items():
        if any(each[name] for each in amounts):
            columns[word] = [format_ms(each[name]) if each[name] else "" for each in amounts]
    if len({node.ranks for node in nodes if node.class_name}) > 1:  # as in a pipeline
        columns["ranks"] = [format_ranges(node.ranks) if node.class_name else "" for node in nodes]
    columns["calls"] = [format_calls(each["num_calls"]) for each in amounts]
    max_flops = max((each["flops"] or 0 for each in amounts), default=0)
    if max_flops:
        unit, word = choose_flop_unit(max_flops)
        columns[word] = [f"{each['flops'] / unit:,.2f}" if each["flops"] else "" for each in amounts]
    if any(each["saved_bytes"] for each in amounts):
        saved = [each["saved_bytes"] for each in amounts]
        columns["saved"] = [format_memory(round(num_bytes)) if num_bytes else "" for num_bytes in saved]
    return columns


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
