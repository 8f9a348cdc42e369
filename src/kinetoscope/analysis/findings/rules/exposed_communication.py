"""Rule for exposed communication: devices transfer data while they compute nothing."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.replay.replay import MAX_UNEXPLAINED_SHARE, Change
from kinetoscope.core.text.wording import format_ms

_MIN_UNKNOWN_SHARE, _MAX_UNKNOWN_SHARE = 0.05, 0.5
"""Shares of the time of collectives with unknown waits: from the first on the advice mentions it, from the second on
confidence is at most medium."""

_MIN_CROWDED_SHARE = 0.5
"""If other processes use this share of the CPU time, the threads of collectives on CPUs wait for them."""

_ADVICE = (
    "Overlap transfers with the backward pass: `DistributedDataParallel(model, bucket_cap_mb=10)` starts them earlier; "
    "larger buckets use the network better. Accumulate gradients under `model.no_sync()` to skip transfers."
)
_ADVICE_ON_SMALL_TRANSFERS = (
    "Communicate less often: accumulate gradients under `model.no_sync()`, or use a larger batch per rank. A step "
    "transfers less than 1 MB, so latency dominates, and smaller buckets do not help."
)
_ADVICE_ON_MISSING = (
    "Analyze the traces of all ranks together, or record the others: `kinetoscope record RUN`. The recorded ranks wait "
    "for {0}, or transfer data meanwhile, and only the trace of {0} shows which of both."
)
_HIDDEN_GAPS_ADVICE = (
    " Kernels that need no communication started late as well, for an unknown reason. They may do so without the "
    "transfers, so the saving is unknown."
)


@rule("exposed_communication", requires=("communication",))
def find_exposed_communication(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose communication, without known waits for late ranks, and without a pipeline's bubble."""
    if (communication := evidence.communication) is None:
        return
    exposed_ns = communication.exposed_ns * (1 - communication.message_waits.of_messages)
    waits_ns, share, hidden_ns = communication.waits_ns(), communication.unknown_share, communication.hidden_gaps_ns
    is_hiding = hidden_ns > MAX_UNEXPLAINED_SHARE * exposed_ns
    advice = _ADVICE_ON_SMALL_TRANSFERS if communication.has_small_transfers else _ADVICE
    advice += _HIDDEN_GAPS_ADVICE if is_hiding else ""
    is_known = share < _MAX_UNKNOWN_SHARE
    what = "not overlapped with compute" if is_known else "of transfers, or of waits for ranks"
    if missing := communication.missing_ranks:
        is_waiting = 2 * communication.long_transfers_ns > exposed_ns
        what = f"{'waiting for' if is_waiting else 'with'} {missing} (not recorded)"
        advice = _ADVICE_ON_MISSING.format(missing)
    elif share >= _MIN_UNKNOWN_SHARE:
        advice = (
            f"For {100 * share:.0f} % of this time the wait for stragglers is unknown: analyze the traces of all ranks "
            f"together. {advice}"
        )
    yield Diagnosis(
        title=lambda cost_ns: f"Exposed communication: {format_ms(cost_ns)} ms/step {what}",
        advice=advice,
        cost_ns=max(0.0, exposed_ns - waits_ns),
        fix=None if is_hiding or missing else Fix(Change(frozenset(["transfer"]))),
        is_estimate=is_hiding or not is_known or _is_slowed_by_others(evidence),
        evidence={
            "exposed_communication_ns": exposed_ns,
            "straggler_wait_ns": waits_ns if share < 1 else None,
            "unknown_share": share,
            "hidden_gaps_ns": hidden_ns if is_hiding else None,
        },
        columns=("device_exposed_communication_ns", "communication_wait_ns"),
        is_on_gpu=True,
    )


def _is_slowed_by_others(evidence: Evidence) -> bool:
    """Return whether collectives run on CPUs that other processes use most of."""
    use = evidence.cpu.use
    return evidence.gpu is None and (use.others_share or 0.0) >= _MIN_CROWDED_SHARE and not use.is_job_oversubscribed
