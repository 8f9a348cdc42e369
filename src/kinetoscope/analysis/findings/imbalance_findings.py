"""Findings on how ranks share the work: unequal loads, and slow stages of pipelines."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Finding, Where, build_finding
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.straggler_descriptions import locate_stragglers
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.ranks.stragglers import StragglerRow
from kinetoscope.core.text.wording import format_ms, format_ranges, format_ranks

_ADVICE_ON_BATCHES = (
    "Give all ranks batches of the same length: sort samples into buckets of similar length in a `batch_sampler=` that "
    "all ranks draw alike, or pack sequences to a fixed number of tokens. In each step another rank has the most to "
    "compute, and the others wait for it."
)
_ADVICE_ON_EXPERTS = (
    "Balance the tokens of experts (a load-balancing loss, a capacity factor that drops tokens, experts replicated on "
    "several ranks), or the rows of embedding tables. Between two all-to-alls another rank has the most to compute "
    "each time, and the others wait for it."
)
_SLOW_PARTS = {"device": " (slow kernels)", "host": " (slow CPU code)"}
_ADVICE_ON_STAGES = {
    "device": "Move layers from it to other stages: its kernels take longer than those of the others. If the "
    "stages have equal layers, compare clocks and temperature with `nvidia-smi -q -d CLOCK,PERFORMANCE`.",
    "host": "Look for work that only this stage does, such as logging, saving or loading batches, and for other "
    "processes on its cores: its loop takes longer on the CPU than those of the other stages.",
}
_ADVICE_ON_STAGES_ON_CPU = (
    "Move layers from it to other stages: it computes longer than they do. If the stages have equal layers, "
    "look for work that only this stage does, and for other processes on its cores."
)

_MIN_LENGTHS = 3
"""Inputs of so many lengths vary; two may be the last batch of an epoch and all others."""


def find_load_imbalance(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks that alternately have the most to compute."""
    if not (ranks := evidence.stragglers.uneven.ranks):
        return
    fix = Fix(evidence.stragglers.uneven.change)
    saving_ns = evidence.savings.saving_ns(fix) or 0.0
    has_exchanges = len(evidence.savings.graph.as_recorded.exchanges) > 0
    lengths = None if has_exchanges else _lengths_of_inputs(evidence)
    on_lengths = f"Their inputs were from {lengths[0]:,} to {lengths[1]:,} long. " if lengths else ""
    yield build_finding(
        "straggler",
        f"Stragglers: {format_ranks(sorted(ranks))} alternate, unequal loads cost {format_ms(saving_ns)} ms/step",
        on_lengths + (_ADVICE_ON_EXPERTS if has_exchanges else _ADVICE_ON_BATCHES),
        confidence=evidence.confidence.of_share(saving_ns / evidence.step_ns),
        evidence={
            "num_stragglers": len(ranks),
            "shortest_input": lengths and lengths[0],
            "longest_input": lengths and lengths[1],
        },
        where=Where(ranks=tuple(sorted(ranks))),
        cost_ns=saving_ns,
        saving_ns=saving_ns,
        fix=fix,
    )


def find_slow_stages(evidence: Evidence) -> Iterator[Finding]:
    """Find stages of a pipeline that compute more than the others."""
    slow, communication = evidence.slow_stages, evidence.communication
    if communication is None or (pipeline := communication.pipeline) is None or not slow.ranks:
        return
    fix = Fix(slow.change)
    saving_ns = evidence.savings.saving_ns(fix) or 0.0
    ranks = sorted(slow.ranks)
    stages = sorted({pipeline.stages[rank] for rank in ranks})
    name = f"stage{'s' if len(stages) > 1 else ''} {format_ranges(stages)} ({format_ranks(ranks)})"
    yield build_finding(
        "straggler",
        add_detail(f"Straggler: {name} delays every step by {format_ms(saving_ns)} ms", _SLOW_PARTS[slow.cause]),
        _ADVICE_ON_STAGES_ON_CPU if evidence.gpu is None else _ADVICE_ON_STAGES[slow.cause],
        confidence=evidence.confidence.of_share(saving_ns / evidence.step_ns),
        evidence={
            **communication.evidence_of_bubble,
            "device_longer_ns": None if evidence.gpu is None else slow.device_longer_ns,
            "host_longer_ns": slow.host_longer_ns,
        },
        where=locate_stragglers(evidence, [row for row in straggler_rows(evidence) if row.rank in slow.ranks]),
        cost_ns=saving_ns,
        saving_ns=saving_ns,
        fix=fix,
    )


def waits_for_slow_stages(evidence: Evidence) -> bool:
    """Return whether slow stages cause most of the exposed communication beyond the bubble of a balanced schedule."""
    slow, communication = evidence.slow_stages.ranks, evidence.communication
    if communication is None or communication.pipeline is None or not slow:
        return False
    saving_ns = evidence.savings.saving_ns(Fix(evidence.slow_stages.change)) or 0.0
    late_wait_ns = saving_ns * (1 - len(slow) / len(evidence.rows.ranks))
    bubble_ns = communication.pipeline.schedule_share * (evidence.step_ns - saving_ns)
    return late_wait_ns > (communication.exposed_ns - bubble_ns) / 2


def straggler_rows(evidence: Evidence) -> list[StragglerRow]:
    """Return the rows of stragglers, with those of slow stages.

    Rows that are in time with even loads have the cause ``device``: the rank need not compute more in a step, where it
    does so between two calls of it.
    """
    in_time, slow = evidence.stragglers.uneven.in_time, evidence.slow_stages
    rows = [row for row in evidence.rows.stragglers if row.rank not in slow.ranks]
    rows = [replace(row, cause="device") if row.rank in in_time else row for row in rows]
    saving_ns = evidence.savings.saving_ns(Fix(slow.change)) or 0.0 if slow.ranks else 0.0
    stages = [
        StragglerRow(
            rank=rank,
            cost_ns_per_step=round(saving_ns),
            steps=tuple(sorted({row.step for row in evidence.rows.steps if row.rank == rank})),
            cause=slow.cause,
            period=None,
            evidence=(("host_longer_ns", round(slow.host_longer_ns)),),
        )
        for rank in sorted(slow.ranks)
    ]
    return sorted([*stages, *rows], key=lambda row: -row.cost_ns_per_step)


def _lengths_of_inputs(evidence: Evidence) -> tuple[int, int] | None:
    """Return the shortest and the longest input, of the operator with most device time and varying inputs.

    Inputs vary if they differ from step to step in one dimension. None without such an operator. A shape that recurs in
    every step of every rank is that of a layer.
    """
    device_ns, shapes = Counter[str](), defaultdict[str, set[tuple[int, ...]]](set)
    for row in evidence.rows.operators:
        device_ns[row.name] += row.device_ns or 0
        if row.num_calls < len(evidence.rows.steps) and (shape := _first_shape(row.shapes or "[]")):
            shapes[row.name].add(shape)
    lengths = (_lengths(shapes[name]) for name, _ in device_ns.most_common() if name in shapes)
    return next(filter(None, lengths), None)


def _lengths(shapes: Collection[tuple[int, ...]]) -> tuple[int, int] | None:
    """Return the smallest and the largest size of the only dimension in which shapes differ."""
    if len({len(shape) for shape in shapes}) != 1:
        return None
    varying = [sizes for sizes in map(set, zip(*shapes, strict=True)) if len(sizes) > 1]
    if len(varying) != 1 or len(varying[0]) < _MIN_LENGTHS:
        return None
    return min(varying[0]), max(varying[0])


def _first_shape(shapes: str) -> tuple[int, ...] | None:
    """Return the shape of an operator's first tensor that has dimensions."""
    try:
        found = json.loads(shapes)
    except ValueError:
        return None
    tensors = [shape for shape in found if isinstance(shape, list) and shape and isinstance(shape[0], int)]
    return tuple(tensors[0]) if tensors else None
