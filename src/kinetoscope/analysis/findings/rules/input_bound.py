"""Rule for an input-bound loop: it waits for its next batch."""

from collections.abc import Iterator
from typing import Any

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.loader_advice import advise_on_loader
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms

_UNSAMPLED_WORKERS_ADVICE = " The workers started before the recording, so their lines were not sampled."


@rule("input_bound", requires=("loader",), excludes=("straggler",))
def find_input_bound(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose waits for data."""
    if (loader := evidence.loader) is None or not loader.wait_ns:
        return
    fix = Fix(Change(frozenset(["data"])), variant="only_waits_for_batches", late=evidence.on_time)
    advice = advise_on_loader(evidence, loader, evidence.savings.saving_ns(fix))
    settings, fetches = loader.settings, evidence.stalls("data")
    wait_by_step = "its next batch" if loader.num_workers is None and not settings else "the DataLoader"
    on_workers = _UNSAMPLED_WORKERS_ADVICE if loader.num_workers and loader.has_unsampled_workers else ""
    on_line = fetches.describe_line("the workers' time" if loader.num_workers else "this time")
    yield Diagnosis(
        title=lambda cost_ns: f"Input-bound: the loop waits {format_ms(cost_ns)} ms/step for {wait_by_step}",
        advice=f"{advice.text} {on_line}".rstrip() + on_workers,
        cost_ns=loader.wait_ns,
        fix=fix,
        where=Where(lines=fetches.where().lines),
        evidence={
            "data_wait_ns": loader.wait_ns,
            "reachable_saving_ns": advice.reachable_ns,
            "num_workers": loader.num_workers,
            "prefetch_factor": _number(settings.get("prefetch_factor")),
            "batch_size": _number(settings.get("batch_size")),
            "cpu_percent": evidence.cpu.machine_percent,
            "batch_wait_share": loader.waiting_share,
            "epoch_start_share": loader.epoch_start_share,
            **advice.evidence,
            **fetches.evidence_of_line,
        },
        is_estimate=advice.is_estimate,
        stalls="data",
        is_in_step_time=True,
        delay=DelayEffect.CONTAINED,
        is_at_line=True,
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
