"""Rule for host-device syncs: calls that wait for the device, and leave it without work afterwards."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import format_rate
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms

_DISTRIBUTIONS = "torch/distributions/"
_DISTRIBUTIONS_ADVICE = (
    "torch.distributions validates its arguments with a sync. Switch that off: "
    "`torch.distributions.Distribution.set_default_validate_args(False)`. "
)


@rule("synchronisation")
def find_synchronisation(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose blocking calls, without those whose data the CPU needs."""
    stalls = evidence.stalls("sync")
    if not len(stalls):
        return
    where, idle_ns = stalls.where(), evidence.device_wait_ns
    rate = format_rate(stalls.num_calls)
    calls = "1 blocking call/step stalls" if rate == "1" else f"{rate} blocking calls/step stall"
    locations = (*where.lines, *stalls.by_call["call"].drop_nulls())
    is_in_distributions = any(_DISTRIBUTIONS in location for location in locations)
    yield Diagnosis(
        title=lambda cost_ns: f"Host-device sync: {calls} the GPU for {format_ms(cost_ns)} ms",
        advice=(_DISTRIBUTIONS_ADVICE if is_in_distributions else "")
        + "Read values such as the loss every n-th step, or one step late from a copy: `loss.detach().to('cpu', "
        "non_blocking=True)`. `torch.cuda.set_sync_debug_mode(1)` warns at each blocking call.",
        cost_ns=min(stalls.total_ns, idle_ns),
        fix=Fix(
            Change(frozenset(["sync", "transfer", "launch"])),
            variant="without_copies_that_block",
            beyond=evidence.cpu.pauses,
        ),
        where=where,
        evidence={"sync_ns": stalls.total_ns, "num_calls": stalls.num_calls, "device_wait_ns": idle_ns},
        stalls="sync",
        delay=DelayEffect.CONTAINED,
        is_at_line=True,
    )
