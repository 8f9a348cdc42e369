"""analysis: the graph of a run's replay with what findings change in it: small kernels and copies."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu_operators import CPU_OPERATORS, MIN_CPU_OPERATOR_NS
from kinetoscope.analysis.kernel_names import COPY, COPY_TO_DEVICE, COPY_TO_HOST
from kinetoscope.analysis.replay.replay import PARTS, Change, ReplayGraph

SMALL_KERNEL_NS = 20_000
"""A small kernel takes less than this, and less than the host takes for it."""

_EMPTY_KERNEL_NS = 5_000
"""A kernel that takes less does next to nothing: one that does several at once takes no longer."""

FEWEST_SMALL_KERNELS = 8
"""So many small kernels in a row are a run of them."""

_NO_KERNELS = f"(?i)^memset|{COPY}"


class FaultGraph:
    """A `ReplayGraph`, as recorded, and in variants in which a change takes away something else than usual."""

    def __init__(self, graph: ReplayGraph) -> None:
        self.as_recorded = graph
        self._saved: dict[Any, int] = {}

    def saved_ns(self, change: Change) -> int:
        """What the run gains by a change of the graph as recorded, worked out once."""
        key = (change.without, change.on_time, change.even, change.as_others, frozenset(change.faster.items()))
        if key not in self._saved:
            self._saved[key] = self.as_recorded.saving_ns(change)
        return self._saved[key]

    @cached_property
    def has_guesses(self) -> bool:
        """Whether there are calls that never had to wait, so that it is not known for what they would."""
        return bool(self.as_recorded.edges["is_guessed"].any())

    @cached_property
    def with_fast_loaders(self) -> "FaultGraph":
        """The same with loaders that no loop would have to wait for, if none did."""
        slacks = self.as_recorded.slacks
        return FaultGraph(replace(self.as_recorded, slacks=slacks.clear())) if len(slacks) else self

    def without_small_runs(self, *, with_operators: bool = False, python: str = "spare_python") -> ReplayGraph:
        """The graph in which ``python``, of which only what is spare counts, and ``launch`` do not count runs of small
        kernels. ``with_operators``, what operators take before a launch counts as ``launch``."""
        is_own = pl.col("is_launched") & pl.lit(with_operators)
        launch = pl.col("launch").fill_null(0) + pl.when(is_own).then(_own_ns()).otherwise(0)
        counted = {"python": pl.col(python), "launch": launch}
        outside = {name: pl.when("in_run").then(0).otherwise(part) for name, part in counted.items()}
        return self._with_edges(self.edges.with_columns(**outside))

    def without_all_python(self) -> ReplayGraph:
        """The graph in which ``python`` is all of it, also what operators on the CPU may need."""
        return self.without_small_runs(python="python")

    def without_launches(self) -> ReplayGraph:
        """The graph in which ``launch`` is also what operators take before it, but for runs of small kernels."""
        return self.without_small_runs(with_operators=True)

    def only_small_runs(self) -> ReplayGraph:
        """The graph in which ``launch`` is all that the host does for runs of small kernels, and ``transfer`` those of
        them that do next to nothing."""
        of_host = pl.when("in_run").then("weight").otherwise(0)
        empty = self.edges.filter("is_empty")
        return self._with_edges(self.edges.with_columns(launch=of_host, is_communication=_is_of_events(empty)))

    def only_cpu_optimizer(self) -> ReplayGraph:
        """Return the graph in which ``launch`` is only the time of the optimizer on the CPU, ``transfer`` its copies,
        and ``sync`` only waits for data."""
        edges = self.edges
        copies = edges.filter(pl.col("is_of_cpu_optimizer").fill_null(False))
        is_other = (pl.col("kind") == "sync") & ~pl.col("is_for_data").fill_null(False)
        edges = edges.with_columns(
            launch="cpu_optimizer",
            is_communication=_is_of_events(copies),
            kind=pl.when(is_other).then(pl.lit("kept")).otherwise("kind"),
        )
        return self._with_edges(edges)

    def only_cpu_operators(self) -> ReplayGraph:
        """Return the graph in which ``launch`` is only the time of operators on the CPU, but for the optimizer's."""
        return self._with_edges(self.as_recorded.edges.with_columns(launch="cpu_operator"))

    def only_waits_for_batches(self) -> ReplayGraph:
        """The graph in which ``data`` is only what loops could do without: it costs time to fetch a batch that is there
        from a worker, too."""
        edges = self.as_recorded.edges
        if edges["data"].equals(edges["spare_data"]):
            return self.as_recorded
        return self._with_edges(edges.with_columns(data="spare_data"))

    def only_copies_that_block(self) -> ReplayGraph:
        """The graph in which ``sync`` is only waits for copies to the device."""
        return self._with_edges(self._with_syncs_of_copies(True))

    def without_copies_that_block(self) -> ReplayGraph:
        """The graph in which ``sync`` is all other waits, ``transfer`` the copies of single values for which the host
        waited, and ``launch`` what it does to have them copied: who does not wait for a value does not read it."""
        waited = self.edges.filter(pl.col("kind") == "sync").select(target="source")
        is_value = pl.col("name").str.contains(COPY_TO_HOST) & (pl.col("weight") < _EMPTY_KERNEL_NS)
        values = self._device_edges.filter(is_value).join(waited, on="target", how="semi")
        launches = self.edges.filter(pl.col("kind") == "launch")
        launches = launches.join(values, left_on="target", right_on="source", how="semi")["source"].implode()
        before = pl.when(pl.col("target").is_in(launches)).then(_own_ns()).otherwise(0)
        call = pl.when(pl.col("source").is_in(launches)).then("launch").otherwise(0)
        edges = self._with_syncs_of_copies(False).with_columns(
            launch=pl.when(pl.col("kind") == "host").then(before + call),
            is_communication=_is_of_events(values),
        )
        return self._with_edges(edges)

    def _with_syncs_of_copies(self, wanted: bool) -> pl.DataFrame:
        """The edges, of which only waits for copies to the device are ``sync``, or only all others. Waits whose data
        the CPU needs never are."""
        copies = self._device_edges.filter(pl.col("name").str.contains(COPY_TO_DEVICE))
        is_of_copy = pl.col("source").is_in(copies["target"].implode())
        is_other = (pl.col("kind") == "sync") & ((is_of_copy != wanted) | pl.col("is_for_data").fill_null(False))
        return self.edges.with_columns(kind=pl.when(is_other).then(pl.lit("kept")).otherwise("kind"))

    @property
    def _device_edges(self) -> pl.DataFrame:
        return self.edges.filter(pl.col("kind") == "device")

    def _with_edges(self, edges: pl.DataFrame) -> ReplayGraph:
        return replace(self.as_recorded, edges=edges)

    @cached_property
    def edges(self) -> pl.DataFrame:
        """All edges, with what findings know of them.

        ``is_launched`` are those to a launch, ``in_run`` what the host does before the launch of a kernel in a run of
        small ones, ``is_empty`` kernels of such runs that do next to nothing.
        """
        edges = self.as_recorded.edges
        launches = _launches(edges)
        launched = launches.group_by("target").agg(pl.col("takes_ns").sum())
        edges = edges.join(launched, on="target", how="left", maintain_order="left")
        is_launched = (pl.col("kind") == "host") & pl.col("takes_ns").is_not_null()
        is_small = is_launched & (pl.col("takes_ns") < pl.min_horizontal("weight", SMALL_KERNEL_NS))
        run = pl.struct("rank", "is_small").rle_id()
        in_run = pl.col("is_small") & (pl.len().over(run) >= FEWEST_SMALL_KERNELS)
        edges = edges.with_columns(is_small=is_small.fill_null(False), is_launched=is_launched)
        edges = edges.with_columns(in_run=in_run)
        small = launches.join(edges.filter("in_run").select("target"), on="target", how="semi")["begin"]
        is_kernel = (pl.col("kind") == "device") & pl.col("source").is_in(small.implode())
        is_empty = is_kernel & (pl.col("weight") < _EMPTY_KERNEL_NS)
        return edges.with_columns(is_empty=is_empty).drop("is_small", "takes_ns")


def _own_ns() -> pl.Expr:
    """What operators take in an edge of the host. Above `MIN_CPU_OPERATOR_NS` the host did something else, or it is
    the time of an operator on the CPU."""
    return (pl.col("weight") - pl.sum_horizontal(*PARTS, *CPU_OPERATORS)).clip(0, MIN_CPU_OPERATOR_NS)


def _is_of_events(edges: pl.DataFrame) -> pl.Expr:
    """Whether an edge is one of these from an event's begin to its end, or leads to the begin from the event before."""
    begins = edges["source"].implode()
    is_event = (pl.col("kind") == "device") & pl.col("source").is_in(begins)
    return is_event | ((pl.col("kind") == "stream") & pl.col("target").is_in(begins))


def _launches(edges: pl.DataFrame) -> pl.DataFrame:
    """The launches of kernels: ``target``, the node of the launch; ``begin``, that of its kernel's begin; ``takes_ns``,
    how long the kernel takes."""
    kind = pl.col("kind")
    kernels = edges.filter((kind == "device") & ~pl.col("name").str.contains(_NO_KERNELS))
    launches = edges.filter(kind == "launch").select(begin="target", target="source")
    return launches.join(kernels.select(begin="source", takes_ns="weight"), on="begin")
