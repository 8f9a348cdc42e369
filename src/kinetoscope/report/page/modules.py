"""Torch modules of a page: their tree, and the calls and spans that belong to each."""

from collections.abc import Sequence

import polars as pl

from kinetoscope.analysis.cpu.operators import operator_calls
from kinetoscope.analysis.modules.calls import ModuleCalls
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.windows.optional_numbers import sum_or_none
from kinetoscope.analysis.windows.window_reader import read_recorded_windows
from kinetoscope.formats.trace_names import MODULE
from kinetoscope.pages.page_data import Module, ModuleCallSums, Modules
from kinetoscope.report.labels import SIDE_LABELS
from kinetoscope.report.module_tree import ModuleNode, ModuleSummary, describe_outlier, summarize_modules, walk
from kinetoscope.report.page.calling_lines import OPERATOR
from kinetoscope.report.page.columns import StringTable, encode_deltas, encode_numbers
from kinetoscope.report.page.flows import find_launches
from kinetoscope.report.page.rank_spans import ROLES
from kinetoscope.report.page.rank_traces import RankTrace

_KEYS = ("module", "kind", "name")
_SUMS = ("num_calls", "total_ns", "self_ns", "device_ns")
_NO_CALLS = pl.DataFrame({name: pl.Series([], dtype=pl.Int64) for name in (*_KEYS, *_SUMS, "max_ns")})


class ModulesBuilder:
    """Builder of the tree of modules of a report, and of what belongs to each, from the windows of ranks.

    Args:
        report: the report; without calls of modules nothing is built.
        step_name: name of the spans that are steps, if not the default.
    """

    def __init__(self, report: RunReport, step_name: str | None = None) -> None:
        self._step_name = step_name
        self._summary = summarize_modules(report)
        self._nodes = list(walk(self._summary.nodes))
        self._rows = {name: row for row, (node, _) in enumerate(self._nodes) for name in node.names}
        self._sums: list[pl.DataFrame] = []

    def add(self, part: RankTrace, spans: pl.DataFrame) -> pl.Series | None:
        """Add a window; return the row of the module of each span plus 1, 0 for none; None without modules.

        Args:
            part: the window.
            spans: all of its spans (`read_spans`).
        """
        if not self._rows or MODULE not in spans["category"]:
            return None
        found = [ModuleCalls(window) for window in read_recorded_windows(part.trace, self._step_name)]
        self._sums += [self._sum_calls(calls) for calls in found]
        modules = pl.zeros(len(spans), pl.UInt32, eager=True)
        for calls in found:
            modules = modules.zip_with(modules > 0, self._find_module_of_spans(calls, spans))
        return modules

    def build(self) -> Modules | None:
        """Return the modules; None where no calls of modules were recorded."""
        if not self._rows:
            return None
        summary = self._summary
        return Modules(
            side=SIDE_LABELS["device" if summary.side == "device" else "host"],
            step_ns=summary.step_ns,
            rows=[_build_row(summary, node, level) for node, level in self._nodes],
            total=_build_row(summary, _add_up(summary.nodes), 0),
            calls=self._build_calls(),
        )

    def _find_modules(self, calls: ModuleCalls, tracks: pl.Series, times: pl.Series) -> pl.Series:
        """Return the row of the module around each time of a thread, plus 1."""
        parts = calls.find_parts(tracks, times)
        names = parts.select(pl.coalesce(calls.calls["name"].gather(parts["call"]), "kind")).to_series()
        return self._find_rows(names)

    def _find_rows(self, names: pl.Series) -> pl.Series:
        rows = {name: row + 1 for name, row in self._rows.items()}
        return names.cast(pl.String).replace_strict(rows, default=0, return_dtype=pl.UInt32)

    def _find_module_of_spans(self, calls: ModuleCalls, spans: pl.DataFrame) -> pl.Series:
        """Return the row of the module of each span, plus 1: of a device event that of its launch."""
        modules = self._find_modules(calls, spans["lane"] // len(ROLES), spans["begin"])
        modules = modules.zip_with(spans["category"] != MODULE, self._find_rows(spans["name"]))
        launches = find_launches(spans)
        return modules.zip_with(launches.is_null(), modules.gather(launches))

    def _sum_calls(self, calls: ModuleCalls) -> pl.DataFrame:
        """Return the sums of the operators and kernels of a window by module, kind and name."""
        operators = operator_calls(calls.window)
        of_operators = self._find_modules(calls, operators["track"], operators["begin"])
        kernels, dur = calls.window.device, pl.col("end") - pl.col("begin")
        of_kernels = self._find_modules(calls, kernels["launch_track"], kernels["launch_begin"])
        name, device_ns = pl.col("name").cast(pl.String), pl.col("device_ns").fill_null(0)
        both = (
            operators.select(name, "dur", "self_ns", device_ns, kind=pl.lit(OPERATOR), module=of_operators),
            kernels.select(name, "kind", dur=dur, self_ns=dur, device_ns=dur, module=of_kernels),
        )
        return pl.concat([_sum_by_name(one) for one in both])

    def _build_calls(self) -> ModuleCallSums:
        texts = StringTable()
        sums = pl.concat(self._sums) if self._sums else _NO_CALLS
        sums = sums.group_by(_KEYS).agg(pl.col(_SUMS).sum(), pl.col("max_ns").max()).sort(_KEYS)
        return ModuleCallSums(
            kinds=encode_numbers(texts.indices(sums["kind"])),
            names=encode_numbers(texts.indices(sums["name"])),
            modules=encode_deltas(sums["module"]),
            **{name: encode_numbers(sums[name]) for name in (*_SUMS, "max_ns")},
            texts=texts.all,
        )


def _add_up(nodes: Sequence[ModuleNode]) -> ModuleNode:
    """Return the sum of nodes."""
    amounts = {name: sum_or_none([node.amounts[name] for node in nodes]) for name in nodes[0].amounts}
    return ModuleNode(label="All", names=(), class_name=None, amounts=amounts)


def _build_row(summary: ModuleSummary, node: ModuleNode, level: int) -> Module:
    amounts = summary.amounts(node)
    same = ("recompute_ns", "communication_ns", "num_calls", "flops", "allocated_bytes", "saved_bytes")
    return Module(
        title=node.title,
        class_name=node.class_name,
        names=list(node.names),
        level=level,
        outlier=describe_outlier(node),
        time_ns=summary.time_ns(node),
        share=summary.share(node),
        forward_ns=amounts[f"{summary.side}_forward_ns"],
        backward_ns=amounts[f"{summary.side}_backward_ns"],
        **{name: amounts[name] for name in same},
    )


def _sum_by_name(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of calls by module row, kind and name; those of no row are left out."""
    grouped = calls.filter(pl.col("module") > 0).group_by(pl.col("module").cast(pl.Int64) - 1, "kind", "name")
    return grouped.agg(
        pl.len().cast(pl.Int64).alias("num_calls"),
        pl.col("dur").sum().alias("total_ns"),
        pl.col("self_ns", "device_ns").sum(),
        pl.col("dur").max().alias("max_ns"),
    )
