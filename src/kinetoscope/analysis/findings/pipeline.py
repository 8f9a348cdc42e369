"""Pipelines: their stages, the slow ones of them, and how long stages wait for each other."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

import polars as pl

from kinetoscope.analysis.findings.evidence.recording import RunRows
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.findings.straggler_groups import MIN_LATE_SHARE
from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.analysis.ranks.point_to_point import SEND
from kinetoscope.analysis.replay.load_balancing import cpu_load_rows
from kinetoscope.analysis.replay.replay import Change, ReplayGraph

_MIN_SHARE_OF_SAVING = 0.95
"""The slow stages are the fewest with this share of the saving of all slow ones."""


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a run: the ``stages`` of its ranks, counted from 0, and the microbatches of a step.

    Their number is that of messages between two stages; those of virtual stages count each.
    """

    stages: Mapping[int, int]
    num_stages: int
    num_microbatches: int

    @property
    def schedule_share(self) -> float:
        """The share of a step that the stages wait in a balanced 1F1B or GPipe schedule."""
        return (self.num_stages - 1) / (self.num_microbatches + self.num_stages - 1)


@dataclass(frozen=True)
class SlowStages:
    """Ranks of slow stages, and the additional time of their GPUs and CPUs, in ns per step on average."""

    ranks: frozenset[int] = frozenset()
    device_longer_ns: float = 0.0
    host_longer_ns: float = 0.0

    @property
    def cause(self) -> str:
        """The slow part: ``device`` or ``host``."""
        return "device" if self.device_longer_ns >= self.host_longer_ns else "host"

    @property
    def change(self) -> Change:
        """The replay in which they are as fast as the others."""
        return Change(at_usual_load=self.ranks)


@dataclass(frozen=True)
class Waits:
    """Shares of exposed communication that are waits for messages.

    They are of all messages, before the first microbatch of a step, and between its last ones.
    """

    of_messages: float = 0.0
    warm_up: float = 0.0
    cool_down: float = 0.0


def find_pipeline(calls: Sequence[CollectiveRow]) -> Pipeline | None:
    """Return the pipeline, if ranks exchange messages in both directions in each step; else None.

    Ranks that are connected by messages are the stages of one pipeline, in the order of their numbers.
    """
    messages = Counter((call.step, call.ranks) for call in calls if call.name == SEND and call.num_ranks == 2)
    messages = Counter({key: count for key, count in messages.items() if key[0] is not None})
    pairs = {ranks for _, ranks in messages}
    if not pairs:
        return None
    stages = {rank: stage for chain in _connected(pairs) for stage, rank in enumerate(sorted(chain))}
    num_microbatches = max(1, max(messages.values()) // 2)
    return Pipeline(stages, max(stages.values()) + 1, num_microbatches)


def _connected(pairs: Iterable[tuple[int, ...]]) -> list[set[int]]:
    chains: list[set[int]] = []
    for pair in pairs:
        touched = [chain for chain in chains if chain & {*pair}]
        chains = [chain for chain in chains if chain not in touched] + [{*pair}.union(*touched)]
    return chains


def find_slow_stages(rows: RunRows, savings: SavingEstimator, pipeline: Pipeline | None) -> SlowStages:
    """Return the ranks with more work than the others usually have, if the run gains enough without it.

    There are none without a pipeline, and where no replay is trusted. A stage without which the run gains as much,
    such as the first one, which fetches the batches, is not among them.
    """
    if pipeline is None or not savings.is_trusted:
        return SlowStages()
    ranks = [rank for rank in rows.ranks if rank in pipeline.stages]
    graph, min_ns = savings.graph, MIN_LATE_SHARE * rows.step_ns
    recorded = graph.as_recorded
    loads = recorded.load_rows(ranks), cpu_load_rows(recorded.nodes, recorded.edges)
    device_ns, host_ns = (_longer_ns(of_part, ranks, rows.num_steps) for of_part in loads)
    slow = frozenset(rank for rank in ranks if max(device_ns[rank], host_ns[rank]) >= min_ns)
    if not slow or len(slow) == len(ranks):
        return SlowStages()
    saved_ns = graph.saved_ns(Change(at_usual_load=slow))
    if savings.saving_per_step_ns(saved_ns) < min_ns:
        return SlowStages()
    for rank in sorted(slow, key=lambda rank: max(device_ns[rank], host_ns[rank])):
        others = slow - {rank}
        if others and graph.saved_ns(Change(at_usual_load=others)) >= _MIN_SHARE_OF_SAVING * saved_ns:
            slow = others
    return SlowStages(slow, *(sum(longer[rank] for rank in slow) / len(slow) for longer in (device_ns, host_ns)))


def _longer_ns(rows: pl.DataFrame, ranks: Collection[int], num_steps: int) -> dict[int, float]:
    takes = dict(rows.group_by("rank").agg(pl.col("takes_ns").sum()).iter_rows())
    takes_ns = {rank: takes.get(rank, 0) / max(1, num_steps) for rank in ranks}
    usual_ns = median_low(takes_ns.values())
    return {rank: ns - usual_ns for rank, ns in takes_ns.items()}


def find_waits(graph: ReplayGraph, pipeline: Pipeline | None) -> Waits:
    """Return the shares of exposed communication that are waits for messages; none without a pipeline.

    In a step of 1F1B, the first message to a stage ends its warm-up; the cool-down has as many backward passes as
    there are stages behind it, each with a receive and, but for the first stage, a send.
    """
    if pipeline is None:
        return Waits()
    is_message = pl.col("is_message").fill_null(False)
    calls = graph.edges.filter(is_message | pl.col("is_communication")).drop_nulls("exposed_ns")
    all_ns = int(calls["exposed_ns"].sum())
    messages = calls.filter(is_message).drop_nulls("launched_in")
    messages = messages.with_columns(end=graph.nodes["time"].gather(messages["target"]))
    stage = pl.col("rank").replace_strict(pipeline.stages, default=None, return_dtype=pl.Int64)
    behind = (pipeline.num_stages - 1 - stage) * pl.when(stage > 0).then(2).otherwise(1)
    by_step = pl.col("end").rank("ordinal").over("rank", "launched_in")
    messages = messages.with_columns(
        is_first=(by_step == 1) & (stage > 0), is_last=pl.len().over("rank", "launched_in") - by_step < behind
    )
    parts = (messages, messages.filter("is_first"), messages.filter(pl.col("is_last") & ~pl.col("is_first")))
    return Waits(*(int(part["exposed_ns"].sum()) / max(1, all_ns) for part in parts))
