"""Variants of a run's replay in which a change removes other times than usual, as those of small kernels."""

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import polars as pl

from kinetoscope.analysis.cpu.cpu_operators import CPU_OPERATORS, MIN_CPU_OPERATOR_NS
from kinetoscope.analysis.replay.replay import PARTS, Change, ReplayGraph
from kinetoscope.analysis.windows.kernel_names import COPY, COPY_TO_DEVICE, COPY_TO_HOST

MAX_SMALL_KERNEL_NS = 20_000
"""A small kernel takes less than this, and less than the CPU takes to launch it."""

_MAX_EMPTY_KERNEL_NS = 5_000
"""Shorter kernels do almost no work: one that does the work of several takes no longer."""

MIN_SMALL_KERNELS = 8
"""Number of consecutive small kernels that is a run of them."""

COPY_OR_MEMSET = f"(?i)^memset|{COPY}"
"""Names of copies and memory sets."""

Variant = Literal[
    "as_recorded",
    "only_copies_that_block",
    "only_cpu_operators",
    "only_cpu_optimizer",
    "only_small_runs",
    "only_waits_for_batches",
    "without_all_python",
    "without_copies_that_block",
    "without_launches",
    "without_small_runs",
]
"""The graph as recorded, or a method of `FaultGraph`."""


class FaultGraph:
    """A `ReplayGraph`, as recorded, and its variants in which a change removes other times than usual."""

    def __init__(self, graph: ReplayGraph) -> None:
        self.as_recorded = graph
        self._saved: dict[Any, int] = {}

    def variant(self, name: Variant) -> ReplayGraph:
        """Return the graph of this name."""
        return self.as_recorded if name == "as_recorded" else getattr(self, name)()

    def saved_ns(self, change: Change) -> int:
        """Return the time that the run gains by a change of the graph as recorded, computed once."""
        key = (change.without, change.on_time, change.balanced, change.at_usual_load, frozenset(change.faster.items()))
        if key not in self._saved:
            self._saved[key] = self.as_recorded.saving_ns(change)
        return self._saved[key]

    @cached_property
    def has_guesses(self) -> bool:
        """True if there are calls that never had to wait, so that their reason to wait is unknown."""
        return bool(self.as_recorded.edges["is_guessed"].any())

    @cached_property
    def with_fast_loaders(self) -> "FaultGraph":
        """The same graph with loaders that no loop has to wait for, if none did."""
        slacks = self.as_recorded.slacks
        return FaultGraph(replace(self.as_recorded, slacks=slacks.clear())) if len(slacks) else self

    def without_small_runs(self, *, with_operators: bool = False, python: str = "avoidable_python") -> ReplayGraph:
        """Return the graph in which ``launch`` and ``python`` leave out the CPU work for runs of small kernels.

        Args:
            with_operators: count the time of operators before a launch as ``launch``.
            python: the column that counts as ``python``.
        """
        is_operator_counted = pl.col("is_launched") & pl.lit(with_operators)
        launch = pl.col("launch").fill_null(0) + pl.when(is_operator_counted).then(_operator_ns()).otherwise(0)
        counted = {"python": pl.col(python), "launch": launch}
        outside = {name: pl.when("in_run").then(0).otherwise(part) for name, part in counted.items()}
        return self._replace_edges(self.edges.with_columns(**outside))

    def without_all_python(self) -> ReplayGraph:
        """Return the graph in which ``python`` is all of it, also the part that CPU operators may need."""
        return self.without_small_runs(python="python")

    def without_launches(self) -> ReplayGraph:
        """Return the graph in which ``launch`` includes the operators before it, without runs of small kernels."""
        return self.without_small_runs(with_operators=True)

    def only_small_runs(self) -> ReplayGraph:
        """Return the graph in which ``launch`` is all CPU work for runs of small kernels.

        Those of them that do next to nothing are ``transfer``.
        """
        of_host = pl.when("in_run").then("weight").otherwise(0)
        empty = self.edges.filter("is_empty")
        return self._replace_edges(self.edges.with_columns(launch=of_host, is_communication=_is_of_events(empty)))

    def only_cpu_optimizer(self) -> ReplayGraph:
        """Return the graph in which causes are only those of the optimizer on the CPU.

        ``launch`` is its time, ``transfer`` its copies, and ``sync`` only waits for data.
        """
        edges = self.edges
        copies = edges.filter(pl.col("is_of_cpu_optimizer").fill_null(False))
        is_other = (pl.col("kind") == "sync") & ~pl.col("is_for_data").fill_null(False)
        edges = edges.with_columns(
            launch="cpu_optimizer",
            is_communication=_is_of_events(copies),
            kind=pl.when(is_other).then(pl.lit("kept")).otherwise("kind"),
        )
        return self._replace_edges(edges)

    def only_cpu_operators(self) -> ReplayGraph:
        """Return the graph in which ``launch`` is only the time of operators on the CPU, but for the optimizer's."""
        return self._replace_edges(self.as_recorded.edges.with_columns(launch="cpu_operator"))

    def only_waits_for_batches(self) -> ReplayGraph:
        """Return the graph in which ``data`` is only the avoidable part: fetching a batch that is ready takes time."""
        edges = self.as_recorded.edges
        if edges["data"].equals(edges["avoidable_data"]):
            return self.as_recorded
        return self._replace_edges(edges.with_columns(data="avoidable_data"))

    def only_copies_that_block(self) -> ReplayGraph:
        """Return the graph in which ``sync`` is only waits for copies to the device."""
        return self._replace_edges(self._select_syncs(True))

    def without_copies_that_block(self) -> ReplayGraph:
        """Return the graph in which ``sync`` is all other waits, and single values are not read.

        ``transfer`` is the copies of single values that the CPU waits for, and ``launch`` the CPU work to copy them: a
        value that is not waited for is not read.
        """
        waited = self.edges.filter(pl.col("kind") == "sync").select(target="source")
        is_value = pl.col("name").str.contains(COPY_TO_HOST) & (pl.col("weight") < _MAX_EMPTY_KERNEL_NS)
        values = self._device_edges.filter(is_value).join(waited, on="target", how="semi")
        launches = self.edges.filter(pl.col("kind") == "launch")
        launches = launches.join(values, left_on="target", right_on="source", how="semi")["source"].implode()
        before = pl.when(pl.col("target").is_in(launches)).then(_operator_ns()).otherwise(0)
        call = pl.when(pl.col("source").is_in(launches)).then("launch").otherwise(0)
        edges = self._select_syncs(False).with_columns(
            launch=pl.when(pl.col("kind") == "host").then(before + call),
            is_communication=_is_of_events(values),
        )
        return self._replace_edges(edges)

    def _select_syncs(self, wanted: bool) -> pl.DataFrame:
        """Return the edges with only waits for copies to the device as ``sync``, or only all others.

        Waits whose data the CPU needs never are.
        """
        copies = self._device_edges.filter(pl.col("name").str.contains(COPY_TO_DEVICE))
        is_of_copy = pl.col("source").is_in(copies["target"].implode())
        is_other = (pl.col("kind") == "sync") & ((is_of_copy != wanted) | pl.col("is_for_data").fill_null(False))
        return self.edges.with_columns(kind=pl.when(is_other).then(pl.lit("kept")).otherwise("kind"))

    @property
    def _device_edges(self) -> pl.DataFrame:
        return self.edges.filter(pl.col("kind") == "device")

    def _replace_edges(self, edges: pl.DataFrame) -> ReplayGraph:
        return replace(self.as_recorded, edges=edges)

    @cached_property
    def edges(self) -> pl.DataFrame:
        """All edges, with columns for variants.

        ``is_launched`` are those to a launch, ``in_run`` the CPU work before the launch of a kernel in a run of small
        ones, ``is_empty`` kernels of such runs that do next to nothing.
        """
        edges = self.as_recorded.edges
        launches = _launches(edges)
        launched = launches.group_by("target").agg(pl.col("takes_ns").sum())
        edges = edges.join(launched, on="target", how="left", maintain_order="left")
        is_launched = (pl.col("kind") == "host") & pl.col("takes_ns").is_not_null()
        is_small = is_launched & (pl.col("takes_ns") < pl.min_horizontal("weight", MAX_SMALL_KERNEL_NS))
        run = pl.struct("rank", "is_small").rle_id()
        in_run = pl.col("is_small") & (pl.len().over(run) >= MIN_SMALL_KERNELS)
        edges = edges.with_columns(is_small=is_small.fill_null(False), is_launched=is_launched)
        edges = edges.with_columns(in_run=in_run)
        small = launches.join(edges.filter("in_run").select("target"), on="target", how="semi")["begin"]
        is_kernel = (pl.col("kind") == "device") & pl.col("source").is_in(small.implode())
        is_empty = is_kernel & (pl.col("weight") < _MAX_EMPTY_KERNEL_NS)
        return edges.with_columns(is_empty=is_empty).drop("is_small", "takes_ns")


def _operator_ns() -> pl.Expr:
    """Return the time of operators in a CPU edge.

    Above `MIN_CPU_OPERATOR_NS` the CPU did other work, or it is the time of an operator on the CPU.
    """
    return (pl.col("weight") - pl.sum_horizontal(*PARTS, *CPU_OPERATORS)).clip(0, MIN_CPU_OPERATOR_NS)


def _is_of_events(edges: pl.DataFrame) -> pl.Expr:
    """Return whether an edge is one of these events, or leads to its start from the event before."""
    begins = edges["source"].implode()
    is_event = (pl.col("kind") == "device") & pl.col("source").is_in(begins)
    return is_event | ((pl.col("kind") == "stream") & pl.col("target").is_in(begins))


def _launches(edges: pl.DataFrame) -> pl.DataFrame:
    """Return the launches of kernels.

    Columns are ``target``, the node of the launch; ``begin``, that of its kernel's start; ``takes_ns``, the kernel's
    duration.
    """
    kind = pl.col("kind")
    kernels = edges.filter((kind == "device") & ~pl.col("name").str.contains(COPY_OR_MEMSET))
    launches = edges.filter(kind == "launch").select(begin="target", target="source")
    return launches.join(kernels.select(begin="source", takes_ns="weight"), on="begin")
