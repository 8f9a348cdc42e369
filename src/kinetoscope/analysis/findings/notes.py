"""Notes on the findings of a run: conditions of their savings, and advice on longer recordings."""

from collections.abc import Sequence

from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.recording_options import DIAGNOSE, RECORD_TEN_STEPS
from kinetoscope.analysis.replay.replay import ReplayGraph
from kinetoscope.analysis.steps.step_time import MIN_TIMED_STEPS
from kinetoscope.analysis.windows.window import MIN_STEPS


def build_replay_notes(graph: ReplayGraph | None) -> list[str]:
    """Return the reason why no finding has a saving, if none has."""
    why = graph.why_untrusted if graph is not None else None
    return [f"The estimated savings of findings are unknown: {why}"] if why is not None else []


def build_loader_notes(graph: ReplayGraph | None, findings: Sequence[Finding]) -> list[str]:
    """Return the condition of savings where the speed of a loader is unknown."""
    is_waited_for = any(finding.kind == "input_bound" for finding in findings)
    has_saving = any(finding.saving_ns_per_step for finding in findings)
    if graph is None or not graph.has_hidden_loader or is_waited_for or not has_saving:
        return []
    return [
        "Savings hold only if the DataLoader keeps up with a faster loop: its batches were in time, and the time of "
        f"its workers was not recorded. Record it with {DIAGNOSE}."
    ]


def build_step_notes(num_steps: int) -> list[str]:
    """Return a note on too few steps to see growth and periods, or to know the step time."""
    if not 0 < num_steps < MIN_STEPS:
        return []
    if num_steps < MIN_TIMED_STEPS:
        only = "Only one step was" if num_steps == 1 else f"Only {num_steps} steps were"
        return [
            f"{only} recorded: the step time is uncertain, and faults of every few steps cannot be found. "
            f"{RECORD_TEN_STEPS}"
        ]
    return [
        f"Only {num_steps} steps were recorded: too few to find growth, or faults of every few steps. "
        f"{RECORD_TEN_STEPS}"
    ]
