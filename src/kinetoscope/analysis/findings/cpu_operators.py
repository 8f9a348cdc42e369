"""Rule for operators that compute on the CPU while the GPU waits, such as those of an offloaded optimizer."""

from collections.abc import Iterator

from kinetoscope.analysis.cpu_operators import CPU_OPERATORS
from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.texts.wording import format_ms, shown

_MAX_NAME_LENGTH = 40

_TITLES = {"cpu_optimizer": "CPU optimizer", "cpu_operator": "CPU operator"}
_ADVICE = {
    "cpu_optimizer": "Keep the optimizer's state on the GPU if its memory allows: create the optimizer after "
    "model.to(device), with fused=True, or switch off its offload. Else give it more threads with "
    "torch.set_num_threads(), or shard its state over more GPUs.",
    "cpu_operator": "Move its tensors to the GPU before the call, or compute it in the DataLoader's workers. If it "
    "must stay on the CPU, call it after the kernels of the next step were launched.",
}
_FIXES = {
    "cpu_optimizer": Fix(Change(frozenset(["launch", "transfer", "sync"])), variant=FaultGraph.only_cpu_optimizer),
    "cpu_operator": Fix(Change(frozenset(["launch"])), variant=FaultGraph.only_cpu_operators),
}


def cpu_operators(case: Case) -> Iterator[Finding]:
    """Yield findings on operators under which the GPU idles: those of the optimizer, and all others."""
    if case.has_device:
        found = (_finding(case, part) for part in CPU_OPERATORS if len(case.stops(part)))
        yield from (finding for finding in found if finding is not None)


def _finding(case: Case, part: str) -> Finding | None:
    idle_ns, where = case.total_ns(part), case.where(case.stops(part))
    name = shown(where.spans[0], _MAX_NAME_LENGTH) if where.spans else "an operator"
    more = f" and {len(where.spans) - 1} more" if len(where.spans) > 1 else ""
    return case.finding(
        "host_bound",
        lambda _: f"{_TITLES[part]}: the GPU waits {format_ms(idle_ns)} ms/step for {name}{more}",
        _ADVICE[part],
        cost_ns=idle_ns,
        fix=_FIXES[part],
        where=where,
        evidence={
            "without_work_ns": idle_ns,
            "num_calls": case.calls(part),
            "sync_ns": case.total_ns("data_sync") or None,
        },
    )
