"""Faults of how work is divided among ranks: uneven loads, slow stages and bubbles of pipelines."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.finding import (
    Finding,
    Where,
    build_finding,
    confidence_in,
    confidence_without_replay,
)
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.pipeline import Pipeline, exposed_communication_ns, find_waits
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.stragglers import StragglerRow
from kinetoscope.texts.wording import format_ms, in_percent, numbers_named, ranks_named

_ADVICE_ON_BATCHES = (
    "In each step another rank has the most to compute, and the others wait for it. Give all ranks batches of the same "
    "length: sort samples into buckets of similar length in a batch_sampler= that all ranks draw alike, or pack "
    "sequences to a fixed number of tokens."
)
_ADVICE_ON_EXPERTS = (
    "Between two all-to-alls another rank has the most to compute each time, and the others wait for it. Balance the "
    "tokens of experts (a load-balancing loss, a capacity factor that drops tokens, experts replicated on several "
    "ranks), or the rows of embedding tables."
)
_SLOW_PARTS = {"device": " (slow kernels)", "host": " (slow CPU side)"}
_ADVICE_ON_STAGES = {
    "device": "Its kernels take longer than those of the other stages: move layers from it to other stages. If the "
    "stages have equal layers, compare clocks and temperature with nvidia-smi -q -d CLOCK,PERFORMANCE.",
    "host": "Its loop takes longer on the host than those of the other stages: look at what only this stage does, such "
    "as logging, saving or loading batches, and at other processes on its cores.",
}
_ADVICE_ON_BUBBLES = (
    "A balanced schedule with as many microbatches would wait for {} of a step. Pass n_microbatches={} or more to the "
    "schedule, give all stages as much to compute, or use ScheduleInterleaved1F1B with several stages per rank."
)

_MIN_LENGTHS = 3
"""Inputs of so many lengths vary; two may be the last batch of an epoch and all others."""


def uneven_loads(case: Case) -> Iterable[Finding]:
    """Find ranks that have the most to compute in turns."""
    if not (ranks := case.uneven.ranks):
        return
    fix = Fix(case.uneven.change)
    saving_ns = case.saving_ns(fix) or 0.0
    share = saving_ns / case.step_ns
    has_exchanges = len(case.graph.as_recorded.exchanges) > 0
    lengths = None if has_exchanges else _lengths_of_inputs(case)
    finding = build_finding(
        "straggler",
        f"Stragglers: {ranks_named(sorted(ranks))} alternate, unequal loads cost {format_ms(saving_ns)} ms/step",
        _on_lengths(lengths) + (_ADVICE_ON_EXPERTS if has_exchanges else _ADVICE_ON_BATCHES),
        confidence=(confidence_without_replay if case.is_guess else confidence_in)(share),
        evidence={
            "num_late_ranks": len(ranks),
            "shortest_input": lengths and lengths[0],
            "longest_input": lengths and lengths[1],
        },
        where=Where(ranks=tuple(sorted(ranks))),
        cost_ns=saving_ns,
        saving_ns=saving_ns,
    )
    yield case.keep_fix(finding, fix)


def slow_stages(case: Case) -> Iterable[Finding]:
    """Find stages of a pipeline that have more to do than the others."""
    slow, pipeline = case.slow, case.pipeline
    if pipeline is None or not slow.ranks:
        return
    fix = Fix(slow.change)
    saving_ns = case.saving_ns(fix) or 0.0
    ranks = sorted(slow.ranks)
    stages = sorted({pipeline.stages[rank] for rank in ranks})
    name = f"stage{'s' if len(stages) > 1 else ''} {numbers_named(stages)} ({ranks_named(ranks)})"
    finding = build_finding(
        "straggler",
        add_detail(f"Straggler: {name} delays every step by {format_ms(saving_ns)} ms", _SLOW_PARTS[slow.cause]),
        _ADVICE_ON_STAGES[slow.cause],
        confidence=(confidence_without_replay if case.is_guess else confidence_in)(saving_ns / case.step_ns),
        evidence={
            **_evidence_of_bubble(case, pipeline),
            "device_longer_ns": slow.device_longer_ns if case.has_device else None,
            "host_longer_ns": slow.host_longer_ns,
        },
        where=case.where_late([row for row in with_causes(case) if row.rank in slow.ranks]),
        cost_ns=saving_ns,
        saving_ns=saving_ns,
    )
    yield case.keep_fix(finding, fix)


def waits_for_slow_stages(case: Case) -> bool:
    """Return whether slow stages cause most of the exposed communication beyond the bubble of a balanced schedule."""
    if case.pipeline is None or not case.slow.ranks:
        return False
    saving_ns = case.saving_ns(Fix(case.slow.change)) or 0.0
    late_wait_ns = saving_ns * (1 - len(case.slow.ranks) / len(case.report.run["ranks"]))
    bubble_ns = case.pipeline.schedule_share * (case.step_ns - saving_ns)
    return late_wait_ns > (exposed_communication_ns(case) - bubble_ns) / 2


def pipeline_bubble(case: Case) -> Finding | None:
    """Stages of a pipeline wait for their first micro-batch, and for their last ones.

    Where a stage is slow, they mostly wait for that one, and that finding has the bubble as evidence.
    """
    pipeline = case.pipeline
    if pipeline is None or case.slow.ranks:
        return None
    bubble_ns = exposed_communication_ns(case) * find_waits(case.graph.as_recorded, pipeline).of_messages
    return case.finding(
        "pipeline_bubble",
        lambda cost_ns: (
            f"Pipeline bubble: {in_percent(cost_ns / case.step_ns)} of the step ({pipeline.num_stages} stages, "
            f"{pipeline.num_microbatches} microbatches)"
        ),
        _ADVICE_ON_BUBBLES.format(in_percent(pipeline.schedule_share), 2 * pipeline.num_microbatches),
        cost_ns=bubble_ns,
        fix=None,
        evidence=_evidence_of_bubble(case, pipeline),
        is_estimate=True,
    )


def _evidence_of_bubble(case: Case, pipeline: Pipeline) -> dict[str, float | None]:
    waits, exposed_ns = find_waits(case.graph.as_recorded, pipeline), exposed_communication_ns(case)
    return {
        "bubble_ns": exposed_ns * waits.of_messages,
        "share_of_schedule": pipeline.schedule_share,
        "num_stages": pipeline.num_stages,
        "num_microbatches": pipeline.num_microbatches,
        "warm_up_ns": exposed_ns * waits.warm_up,
        "cool_down_ns": exposed_ns * waits.cool_down,
    }


def with_causes(case: Case) -> list[StragglerRow]:
    """Return the rows of stragglers, with those of slow stages.

    Rows that are in time with even loads have the cause ``device``: what they compute in a step need not be more,
    where it is so between two calls of it.
    """
    in_time = case.uneven.in_time
    rows = [row for row in case.report.stragglers if row.rank not in case.slow.ranks]
    rows = [replace(row, cause="device") if row.rank in in_time else row for row in rows]
    saving_ns = case.saving_ns(Fix(case.slow.change)) or 0.0 if case.slow.ranks else 0.0
    slow = [
        StragglerRow(
            rank=rank,
            cost_ns_per_step=round(saving_ns),
            steps=tuple(sorted({row.step for row in case.report.steps if row.rank == rank})),
            cause=case.slow.cause,
            period=None,
            evidence=(("host_longer_ns", round(case.slow.host_longer_ns)),),
        )
        for rank in sorted(case.slow.ranks)
    ]
    return sorted([*slow, *rows], key=lambda row: -row.cost_ns_per_step)


def _on_lengths(lengths: tuple[int, int] | None) -> str:
    return f"Their inputs were from {lengths[0]:,} to {lengths[1]:,} long. " if lengths else ""


def _lengths_of_inputs(case: Case) -> tuple[int, int] | None:
    """Return the shortest and the longest input of an operator whose inputs differ from step to step in one dimension:
    the one that takes the device longest. None without one.

    A shape that comes in every step of every rank is that of a layer.
    """
    device_ns, shapes = Counter[str](), defaultdict[str, set[tuple[int, ...]]](set)
    for row in case.report.operators:
        device_ns[row.name] += row.device_ns or 0
        if row.num_calls < len(case.report.steps) and (shape := _first_shape(row.shapes or "[]")):
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
