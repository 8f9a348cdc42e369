"""analysis: every kind of fault, looked for in one run; the findings, the most worthwhile first."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kinetoscope.analysis.findings import device_faults, host_faults, memory_faults
from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.finding import CONFIDENCES, Finding
from kinetoscope.analysis.findings.signs import Signs
from kinetoscope.analysis.replay.replay import ReplayGraph
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
)

_FEWEST_TO_TIME = 3
"""Of fewer steps, one that took longer than usual is much of the whole."""

KINDS = ("straggler", *(rule.__name__ for rule in _RULES))
"""Every kind of finding, and the title of a chapter of docs/findings.md."""


def find_faults(report: "RunReport", graph: ReplayGraph, signs: Sequence[Signs]) -> list[Finding]:
    """The faults of a run, of its rows, the graph of its replay, and the signs in its windows.

    First comes memory that will run out soon; then what is surest; of that what saves most, or costs most where no
    replay can tell.
    """
    case = Case(report, graph, signs)
    if not case.step_ns:
        return []
    found = [finding for rule in _RULES if (finding := rule(case)) is not None]
    return sorted([*device_faults.stragglers(case), *found], key=_order)


def _order(finding: Finding) -> tuple[bool, int, float]:
    saving_ns, cost_ns = finding.saving_ns_per_step, finding.cost_ns_per_step
    worth_ns = saving_ns if saving_ns is not None else cost_ns
    is_soon, place = memory_faults.runs_out_soon(finding), CONFIDENCES.index(finding.confidence)
    return not is_soon, place, 1 if worth_ns is None else -worth_ns


def notes_on_replay(graph: ReplayGraph | None) -> list[str]:
    """Why no finding says what mending it would save, if none does."""
    why = graph.why_untrusted if graph is not None else None
    return [f"What mending a finding would save is not known: {why}"] if why is not None else []


def notes_on_steps(num_steps: int) -> list[str]:
    """What to record where too few steps were recorded to see what grows or comes back, or to know a step's time."""
    if not 0 < num_steps < FEWEST_STEPS:
        return []
    if num_steps < _FEWEST_TO_TIME:
        only = "Only one step was" if num_steps == 1 else f"Only {num_steps} steps were"
        return [
            f"{only} recorded: the time of a step is not known well, and what comes back every few steps not at all. "
            "Record 10: schedule=kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=10)."
        ]
    return [
        f"The steps recorded, {num_steps}, are too few to say what grows, or comes back every few steps. "
        "Record 10: schedule=kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=10)."
    ]
