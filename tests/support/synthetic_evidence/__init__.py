"""Evidence of a run that a test draws part by part: without traces, so that one takes milliseconds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.cpu_operators import CPU_OPERATORS
from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.findings.evidence.recording import RunRows
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.evidence.window import (
    Float64Source,
    WindowCpu,
    WindowEvidence,
    WindowGpu,
    WindowLoader,
)
from kinetoscope.analysis.findings.evidence.window_modules import find_module_costs
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.rule import Excludable, load_rules
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.stragglers import StragglerCandidates, find_straggler_candidates
from kinetoscope.analysis.replay.replay import PARTS, ReplayGraph
from kinetoscope.analysis.steps.steps import StepRow

STEP_NS = 10_000_000

_STALLS: dict[str, Any] = dict.fromkeys(("kind", "name", "line", "library", "guard"), pl.String)
_STALLS |= dict.fromkeys(("step", "num_calls", "total_ns"), pl.Int64)
_SAMPLED: dict[str, Any] = dict.fromkeys(("kind", "line", "call", "state"), pl.String) | {"step": pl.Int64}
_SAMPLED |= {"num_samples": pl.UInt32, "total_ns": pl.Int64}
_LIBRARY_CALLS: dict[str, Any] = dict.fromkeys(("kind", "line", "function", "library_line"), pl.String)
_LIBRARY_CALLS |= {"total_ns": pl.Int64, "depth_ns": pl.Int64}
_EDGES: dict[str, Any] = {"source": pl.UInt32, "target": pl.UInt32, "kind": pl.String, "weight": pl.Int64}
_EDGES |= {"rank": pl.Int64, "name": pl.String, "num_ranks": pl.UInt32}
_EDGES |= dict.fromkeys((*PARTS, *CPU_OPERATORS, "avoidable_data", "avoidable_python", "exposed_ns"), pl.Int64)
_EDGES |= dict.fromkeys(("group_size", "step", "launched_in"), pl.Int64)
_EDGES |= dict.fromkeys(("is_communication", "is_entry", "is_guessed", "is_message", "is_for_data"), pl.Boolean)
_EDGES |= {"is_of_cpu_optimizer": pl.Boolean}
_CPU = WindowCpu(
    has_operators=True,
    num_operators=100,
    is_sampled=False,
    counters={},
    machine_percent=None,
    process_percent=None,
    is_too_short=False,
    required_python={},
    num_items=0,
    num_items_of_optimizer=0,
)
_LOADER = WindowLoader(num_workers=None, settings={}, epoch_start_share=None)
_GPU = WindowGpu(bytes_by_device={}, majors_by_device={}, exposed_to_device_ns=0.0, graph_gaps_ns=0, lost_share=0.0)

OfStep = Callable[[int, int], Any]
"""A value by rank and step."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run whose ranks work in each step, and then wait for each other. Each field is a part of the evidence.

    ``work_ns`` is by rank and step, as are the ``parts`` of it, the ``columns`` of steps, and the ``kernels_ns`` on
    the GPU: (time of the CPU before a launch, time of the kernel). ``transfer_ns`` is that of the call at the end.
    """

    ranks: Sequence[int] = (0,)
    num_steps: int = 10
    world_size: int | None = None
    has_gpu: bool = False
    work_ns: OfStep = lambda rank, step: STEP_NS
    parts: OfStep = lambda rank, step: {}
    columns: OfStep = lambda rank, step: {}
    kernels_ns: OfStep | None = None
    kernel_names: Sequence[str] = ()
    transfer_ns: int = 0
    calls: Sequence[CollectiveRow] = ()
    """Further calls, not those at the ends of steps."""
    graph: Mapping[str, Any] = field(default_factory=dict)
    by_rank: Mapping[str, Any] = field(default_factory=dict)
    stalls: Sequence[Mapping[str, Any]] = ()
    """Rows with at least ``kind`` and ``total_ns``, of ``rank`` 0 if no other is named."""
    samples: Sequence[Mapping[str, Any]] = ()
    cpu: Mapping[str, Any] = field(default_factory=dict)
    gpu: Mapping[str, Any] = field(default_factory=dict)
    loader: WindowLoader = _LOADER
    data_wait_ns: int | None = None
    kernels: Sequence[KernelRow] = ()
    operators: Sequence[OperatorRow] = ()
    memory: Sequence[Any] = ()
    group_titles: Mapping[str, str] = field(default_factory=dict)
    float64: tuple[Float64Source, ...] = ()

    def evidence(self) -> Evidence:
        """Return the evidence."""
        steps, calls = self.step_rows(), self.collectives()
        late = find_straggler_candidates(calls, steps) if len(self.ranks) > 1 else StragglerCandidates()
        rows = RunRows(
            ranks=self.ranks,
            world_size=self.world_size or len(self.ranks),
            num_steps=self.num_steps,
            step_ns=self.times_ns[-1] / self.num_steps,
            parts=None if self.data_wait_ns is None else {"host": {"data_wait_ns": self.data_wait_ns}, "device": None},  # type: ignore[typeddict-item]
            by_rank=[self._rank_row(rank) for rank in self.ranks],
            steps=steps,
            collectives=[*calls, *self.calls],
            stragglers=late.rows,
            operators=self.operators,
            kernels=self.kernels,
            memory=self.memory,
        )
        return Evidence(rows, self.replay_graph(), [self._window(rank) for rank in self.ranks], late)

    @property
    def times_ns(self) -> list[int]:
        """The start of each step, and the end of the last."""
        times = [0]
        for step in range(self.num_steps):
            times.append(times[-1] + max(self.work_ns(rank, step) for rank in self.ranks) + self.transfer_ns)
        return times

    def step_rows(self) -> list[StepRow]:
        """Return the rows of all ranks' steps."""
        times = self.times_ns
        return [
            StepRow(
                rank=rank,
                step=step,
                begin_ns=times[step],
                duration_ns=times[step + 1] - times[step],
                **{"between_ns": 0, **self.columns(rank, step)},
            )
            for rank in self.ranks
            for step in range(self.num_steps)
        ]

    def collectives(self) -> list[CollectiveRow]:
        """Return the calls at the ends of steps; none of a single rank."""
        times = self.times_ns
        if len(self.ranks) < 2:
            return []
        return [
            draw_call(
                step,
                {rank: times[step] + self.work_ns(rank, step) for rank in self.ranks},
                transfer_ns=self.transfer_ns,
            )
            for step in range(self.num_steps)
        ]

    def replay_graph(self) -> ReplayGraph:
        """Return the graph: by rank and step the work, then a node at the last rank's call."""
        drawn = _Graph()
        starts = {rank: drawn.add_node(rank, 0) for rank in self.ranks}
        for step, (begin_ns, end_ns) in enumerate(zip(self.times_ns, self.times_ns[1:], strict=False)):
            entries = {rank: self._add_work(drawn, rank, step, starts[rank], begin_ns) for rank in self.ranks}
            hub = drawn.add_node(None, end_ns - self.transfer_ns)
            for rank, node in entries.items():
                is_entry = {"step": step, "is_entry": True, "num_ranks": len(self.ranks)}
                drawn.add_edge(rank, node, hub, "collective", 0, is_communication=False, **is_entry)
                starts[rank] = drawn.add_node(rank, end_ns, is_end=True)
                transfer = {"is_entry": False, "is_communication": True, "num_ranks": len(self.ranks)}
                drawn.add_edge(rank, hub, starts[rank], "collective", self.transfer_ns, **transfer)
        return drawn.build(**self.graph)

    def _add_work(self, drawn: "_Graph", rank: int, step: int, source: int, begin_ns: int) -> int:
        """Add the work of a rank in a step; return the node at its end."""
        end_ns = begin_ns + self.work_ns(rank, step)
        if self.kernels_ns is None:
            end = drawn.add_node(rank, end_ns, is_end=True)
            drawn.add_edge(rank, source, end, "host", end_ns - begin_ns, step=step, **self.parts(rank, step))
            return end
        now_ns, kernel_end = begin_ns, None
        for number, (cpu_ns, kernel_ns) in enumerate(self.kernels_ns(rank, step)):
            now_ns += cpu_ns
            launch = drawn.add_node(rank, now_ns)
            drawn.add_edge(rank, source, launch, "host", cpu_ns, step=step, **self.parts(rank, step))
            kernel_begin_ns = max(now_ns, drawn.times[kernel_end] if kernel_end is not None else 0)
            kernel_begin = drawn.add_node(rank, kernel_begin_ns)
            drawn.add_edge(rank, launch, kernel_begin, "launch", 0)
            if kernel_end is not None:
                drawn.add_edge(rank, kernel_end, kernel_begin, "stream", 0)
            kernel_end = drawn.add_node(rank, kernel_begin_ns + kernel_ns, is_end=True)
            name = self.kernel_names[number] if number < len(self.kernel_names) else f"kernel{number}"
            drawn.add_edge(rank, kernel_begin, kernel_end, "device", kernel_ns, name=name, step=step)
            source = launch
        end = drawn.add_node(rank, end_ns)
        drawn.add_edge(rank, source, end, "host", 0, step=step)
        if kernel_end is not None:
            drawn.add_edge(rank, kernel_end, end, "sync", 0)
        return end

    def _rank_row(self, rank: int) -> RankRow:
        of_gpu = {"window_ns": self.times_ns[-1]} if self.has_gpu else {}
        return RankRow(rank=rank, num_steps=self.num_steps, **of_gpu, **self.by_rank)

    def _window(self, rank: int) -> WindowEvidence:
        stalls = [row for row in self.stalls if row.get("rank", 0) == rank]
        samples = [row for row in self.samples if row.get("rank", 0) == rank]
        return WindowEvidence(
            rank=rank,
            stalls=_frame(stalls, _STALLS, {"num_calls": 1}),
            sampled=_frame(samples, _SAMPLED, {"num_samples": 1}),
            library_calls=pl.DataFrame(schema=_LIBRARY_CALLS),
            lines_in_every_sample=frozenset(),
            loader=self.loader,
            cpu=WindowCpu(**{**vars(_CPU), **self.cpu}),
            gpu=WindowGpu(**{**vars(_GPU), **self.gpu}),
            float64=self.float64,
            group_titles=self.group_titles,
            markers=pl.DataFrame(),
            module_costs=find_module_costs(None, {}),
        )


class _Graph:
    """Nodes and edges of a replay."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self._nodes: list[tuple[int | None, int, bool]] = []
        self._edges: list[dict[str, Any]] = []

    def add_node(self, rank: int | None, time_ns: int, *, is_end: bool = False) -> int:
        self.times.append(time_ns)
        self._nodes.append((rank, time_ns, is_end))
        return len(self._nodes) - 1

    def add_edge(self, rank: int, source: int, target: int, kind: str, weight_ns: int, **columns: Any) -> None:
        edge = {"rank": rank, "source": source, "target": target, "kind": kind, "weight": weight_ns}
        self._edges.append({"is_communication": False, **edge, **columns})

    def build(self, **columns: Any) -> ReplayGraph:
        nodes = pl.DataFrame(
            self._nodes, schema={"rank": pl.Int64, "time": pl.Int64, "is_end": pl.Boolean}, orient="row"
        )
        window = pl.when(pl.col("rank").is_not_null()).then(pl.lit(0, pl.UInt32))
        edges = sorted(
            self._edges, key=lambda edge: edge["kind"] != "host"
        )  # as analyses find them: one after the other
        return ReplayGraph(nodes.with_columns(window=window), _frame(edges, _EDGES, {}), **columns)


def _frame(rows: Iterable[Mapping[str, Any]], schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{**dict.fromkeys(schema), **defaults, **row} for row in rows], schema=schema)


def draw_call(
    step: int,
    starts_ns: Mapping[int, int],
    *,
    transfer_ns: int = 0,
    waits: bool | None = True,
    group: str | None = None,
    name: str = "all_reduce",
    num_bytes: int | None = None,
) -> CollectiveRow:
    """Return a call; its ``waits`` are unknown with None, and nothing with False, where ranks compute meanwhile."""
    ranks = tuple(sorted(starts_ns))
    last_ns = max(starts_ns.values())
    waits_ns = tuple(last_ns - starts_ns[rank] if waits else 0 for rank in ranks)
    return CollectiveRow(
        group=group,
        sequence=step,
        step=step,
        name=name,
        bytes=num_bytes,
        num_ranks=len(ranks),
        ranks=ranks,
        starts_ns=tuple(starts_ns[rank] for rank in ranks),
        ends_ns=tuple(last_ns + transfer_ns for _ in ranks),
        skew_ns=last_ns - min(starts_ns.values()),
        transfer_ns=transfer_ns,
        waits_ns=None if waits is None else waits_ns,
        late_rank=max(ranks, key=lambda rank: starts_ns[rank]),
        bandwidth_bytes_per_s=None,
    )


def find(kind: str, drawn: Run | Evidence) -> Finding | None:
    """Return the first finding of a kind by its rule, if there is one."""
    evidence = drawn.evidence() if isinstance(drawn, Run) else drawn
    rule = next(rule for rule in load_rules() if rule.kind == kind)
    found = next(iter(rule.find(evidence)), None)
    return found.finding if isinstance(found, Excludable) else found
