"""Faults of how work is divided among ranks: uneven loads."""

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
from kinetoscope.analysis.stragglers import StragglerRow
from kinetoscope.texts.wording import ranks_named

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
        f"Straggler: {ranks_named(sorted(ranks))} take turns, uneven loads cost {saving_ns / 1e6:,.1f} ms/step",
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


def with_causes(case: Case) -> list[StragglerRow]:
    """Return the rows of stragglers. Those that are in time with even loads have the cause ``device``: what they
    compute in a step need not be more, where it is so between two calls of it."""
    in_time = case.uneven.in_time
    return [replace(row, cause="device") if row.rank in in_time else row for row in case.report.stragglers]


def _on_lengths(lengths: tuple[int, int] | None) -> str:
    return f"Their inputs were from {lengths[0]:,} to {lengths[1]:,} long. " if lengths else ""


def _lengths_of_inputs(case: Case) -> tuple[int, int] | None:
    """Return the shortest and the longest input of the operator that takes the device longest, of those whose inputs
    differ from step to step in one dimension; None without one.

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
