"""Rule for a launch-bound GPU, and for operators that compute on the CPU while the GPU waits."""

from collections.abc import Iterator

from kinetoscope.analysis.cpu.cpu_operators import CPU_OPERATORS
from kinetoscope.analysis.findings.confidence import HIGH_SHARE, MIN_SHARE_OF_HIGH, OVERHEAD_HIGH_SHARE
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.evidence.window_modules import LAUNCHES
from kinetoscope.analysis.findings.finding import Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms, sanitize

_MAX_NAME_LENGTH = 40
_GAPS_ADVICE = (
    " The GPU also idles before some kernels that were launched in time. If it does so before the other kernels, which "
    "this recording cannot show, the saving is smaller."
)
_TITLES = {"cpu_optimizer": "CPU optimizer", "cpu_operator": "CPU operator"}
_ADVICE = {
    "cpu_optimizer": "Keep the optimizer's state on the GPU if its memory allows: create the optimizer after "
    "`model.to(device)`, with `fused=True`, or switch off its offload. Else give it more threads with "
    "`torch.set_num_threads()`, or shard its state over more GPUs.",
    "cpu_operator": "Move its tensors to the GPU before the call, or compute it in the DataLoader's workers. If it "
    "must stay on the CPU, call it after the kernels of the next step were launched.",
}
_FIXES = {
    "cpu_optimizer": Fix(Change(frozenset(["launch", "transfer", "sync"])), variant="only_cpu_optimizer"),
    "cpu_operator": Fix(Change(frozenset(["launch"])), variant="only_cpu_operators"),
}
_COLUMNS = ("device_idle_ns",)


@rule("host_bound", requires=("gpu",))
def find_host_bound(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose late launches, and operators under which the GPU idles: those of the optimizer, and all others."""
    if (gpu := evidence.gpu) is None:
        return
    launch_ns, idle_ns = evidence.cpu.launching_ns, evidence.device_wait_ns
    has_gaps = gpu.unexplained_idle_ns >= MIN_SHARE_OF_HIGH * HIGH_SHARE * evidence.step_ns
    yield Diagnosis(
        title=lambda cost_ns: f"Launch-bound: the GPU idles {format_ms(cost_ns)} ms/step between kernel launches",
        advice='Capture the step in a CUDA graph: `model = torch.compile(model, mode="reduce-overhead")`. One launch '
        "then replaces many. A larger batch also gives the GPU more work per launch."
        + (_GAPS_ADVICE if has_gaps else ""),
        cost_ns=min(launch_ns, idle_ns),
        fix=Fix(Change(frozenset(["launch"])), variant="without_launches"),
        where=Where(modules=evidence.modules.of_costs(LAUNCHES)),
        evidence={
            "launch_ns": launch_ns,
            "device_wait_ns": idle_ns,
            "num_launches": evidence.mean_ns("num_launches"),
        },
        high_share=OVERHEAD_HIGH_SHARE,
        columns=_COLUMNS,
        delay=DelayEffect.CONTAINED,
        may_wait_for_core=True,
    )
    yield from (_diagnose_operators(evidence, part) for part in CPU_OPERATORS if len(evidence.stalls(part)))


def _diagnose_operators(evidence: Evidence, part: str) -> Diagnosis:
    stalls = evidence.stalls(part)
    where = stalls.where()
    name = sanitize(where.spans[0], _MAX_NAME_LENGTH) if where.spans else "an operator"
    more = f" and {len(where.spans) - 1} more" if len(where.spans) > 1 else ""
    return Diagnosis(
        title=lambda _: f"{_TITLES[part]}: the GPU waits {format_ms(stalls.total_ns)} ms/step for {name}{more}",
        advice=_ADVICE[part],
        cost_ns=stalls.total_ns,
        fix=_FIXES[part],
        where=where,
        evidence={
            "device_wait_ns": stalls.total_ns,
            "num_calls": stalls.num_calls,
            "sync_ns": evidence.stalls("data_sync").total_ns or None,
        },
        columns=_COLUMNS,
        delay=DelayEffect.CONTAINED,
        may_wait_for_core=True,
        is_at_line=True,
    )
