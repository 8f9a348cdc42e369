"""analysis: every kind of fault, looked for in one run; the findings, the most worthwhile first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kinetoscope.analysis.findings import (
    device_faults,
    group_faults,
    host_faults,
    late_faults,
    memory_faults,
    waiting_faults,
)
from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.cpu_operators import cpu_operators
from kinetoscope.analysis.findings.finding import Finding, ranking_key
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.signs import Signs
from kinetoscope.analysis.replay.replay import ReplayGraph
from kinetoscope.analysis.step_time import FEWEST_TO_TIME
from kinetoscope.analysis.stragglers import LateRanks, StragglerRow
from kinetoscope.analysis.window import FEWEST_STEPS

if TYPE_CHECKING:
    from kinetoscope.analysis.analyze import RunReport

_RULES: tuple[Callable[[Case], Finding | None], ...] = (
    host_faults.input_bound,
    host_faults.host_bound,
    host_faults.python_overhead,
    host_faults.synchronisation,
    device_faults.exposed_communication,
    device_faults.small_kernels,
    device_faults.idle_gaps,
    host_faults.garbage_collection,
    memory_faults.memory_growth,
    memory_faults.memory_limit,
    host_faults.recompilation,
    device_faults.float32_matmul,
    device_faults.float64,
    device_faults.exposed_copy,
    host_faults.profiler_cost,
    waiting_faults.blocked,
    waiting_faults.processor_contention,
    waiting_faults.hot_line,
    group_faults.pipeline_bubble,
)

KINDS = ("straggler", *(rule.__name__ for rule in _RULES))
"""Kinds of findings on steps; each has a page in ``rules``."""


class Faults(NamedTuple):
    """Findings, ranked; by their ids what each with a saving changes in a replay; and the rows of stragglers, with
    causes that only a replay shows. ``waits_for_stages`` is the value of `group_faults.waits_for_slow_stages`.
    """

    findings: list[Finding]
    fixes: Mapping[str, Fix]
    stragglers: Sequence[StragglerRow] = ()
    waits_for_stages: bool = False


def find_faults(
    report: "RunReport", graph: ReplayGraph, signs: Sequence[Signs], candidates: LateRanks | None = None
) -> Faults:
    """Return the faults of a run, of its rows, the graph of its replay, the signs in its windows, and its late ranks.

    They are ranked as `ranked` says.
    """
    case = Case(report, graph, signs, candidates or LateRanks())
    if not case.step_ns:
        return Faults([], {}, report.stragglers)
    found = [finding for rule in _RULES if (finding := rule(case)) is not None]
    found += [*cpu_operators(case), *group_faults.uneven_loads(case), *group_faults.slow_stages(case)]
    found += late_faults.stragglers(case, has_input_bound="input_bound" in [finding.kind for finding in found])
    findings = ranked((_with_saving_share(finding, case.step_ns) for finding in found), case.step_ns)
    is_waiting = group_faults.waits_for_slow_stages(case)
    return Faults(findings, case.fixes_of(findings), group_faults.with_causes(case), is_waiting)


def ranked(findings: Iterable[Finding], step_ns: float) -> list[Finding]:
    """Return findings by urgency: memory that runs out soon, then hangs, then by `ranking_key`."""

    def key(finding: Finding) -> tuple[bool, bool, tuple[bool, float, int]]:
        is_soon, is_hang = memory_faults.runs_out_soon(finding), finding.kind == "hang"
        return not is_soon, not is_hang, ranking_key(finding, step_ns)

    return sorted(findings, key=key)


def _with_saving_share(finding: Finding, step_ns: float) -> Finding:
    saving_ns = finding.saving_ns_per_step
    return finding if saving_ns is None else replace(finding, saving_share=saving_ns / step_ns)


def notes_on_replay(graph: ReplayGraph | None) -> list[str]:
    """Return the reason why no finding has a saving, if none has."""
    why = graph.why_untrusted if graph is not None else None
    return [f"The estimated savings of findings are unknown: {why}"] if why is not None else []


def notes_on_loaders(graph: ReplayGraph | None, findings: Sequence[Finding]) -> list[str]:
    """Return the condition of savings where the speed of a loader is unknown."""
    is_waited_for = any(finding.kind == "input_bound" for finding in findings)
    has_saving = any(finding.saving_ns_per_step for finding in findings)
    if graph is None or not graph.has_hidden_loader or is_waited_for or not has_saving:
        return []
    return [
        "Savings hold only if the DataLoader keeps up with a faster loop: its batches were in time, and the time of "
        "its workers was not recorded. Pass diagnose=True to record it."
    ]


def notes_on_steps(num_steps: int) -> list[str]:
    """What to record where too few steps were recorded to see what grows or comes back, or to know a step's time."""
    if not 0 < num_steps < FEWEST_STEPS:
        return []
    if num_steps < FEWEST_TO_TIME:
        only = "Only one step was" if num_steps == 1 else f"Only {num_steps} steps were"
        return [
            f"{only} recorded: the step time is uncertain, and faults of every few steps cannot be found. "
            "Record 10: schedule=kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=10)."
        ]
    return [
        f"Only {num_steps} steps were recorded: too few to find growth, or faults of every few steps. "
        "Record 10: schedule=kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=10)."
    ]
