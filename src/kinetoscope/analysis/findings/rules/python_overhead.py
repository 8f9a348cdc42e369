"""Rule for Python between operators, in which nothing is launched."""

from collections.abc import Iterator

import polars as pl

from kinetoscope.analysis.findings.blocking_calls import advise_on_call
from kinetoscope.analysis.findings.confidence import OVERHEAD_HIGH_SHARE
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_count, format_ms, format_percent

_MIN_LONG_PAUSE_NS, _MIN_SHARE_IN_LONG_PAUSES = 1_000_000, 0.6
"""Neither the Python of a model nor that of an optimizer takes so long between two operators."""

_MAX_RUNNING_SHARE = 0.5
"""A process with a smaller share of a core was idle, not busy in Python."""

_ADVICE = (
    "Move Python code between operators out of the loop, or compile the model: `model = torch.compile(model)`. Pass "
    "`fused=True` to an optimizer that has it, as in `torch.optim.AdamW(..., fused=True)`: one call replaces many."
)
_LONG_PAUSES_ADVICE = (
    "{share} of this time is in {pauses} of {mean_ms:,.1f} ms on average in which the loop calls no operator: it "
    "{activity}. "
)
_RUNS = "runs Python code"
_RUNS_OR_WAITS = "runs Python code, or waits"
_WAITS = "waits, for example for a lock or another process"
_ADVICE_ON_LOOPS = "Replace loops over elements, if there are any, with tensor operators. "
_ADVICE_ON_LONG_PAUSES = "Do this work every n-th step, or ahead of the step in a background thread or process."


@rule("python_overhead")
def find_python_overhead(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose Python between operators."""
    stalls, cpu = evidence.stalls("python"), evidence.cpu
    python_ns, idle_ns = cpu.part_ns("avoidable_python"), evidence.device_wait_ns
    is_idle = _is_idle(evidence, python_ns)
    between = "between operators" if evidence.gpu is None else "without kernel launches"

    def title(cost_ns: float) -> str:
        diagnosis = f"Python overhead: {format_ms(cost_ns)} ms/step {between}"
        if is_idle:
            diagnosis = f"Idle process: the loop waits {format_ms(cost_ns)} ms/step between operators"
        return add_detail(diagnosis, stalls.at_line)

    advice = advise_on_call(stalls, evidence.stalls("blocked")).rstrip() or _advise(evidence, is_idle=is_idle)
    yield Diagnosis(
        title=title,
        advice=f"{advice} {stalls.describe_line()}".rstrip(),
        cost_ns=min(python_ns, idle_ns),
        fix=Fix(
            Change(frozenset(["python"])),
            variant="without_small_runs",
            max_variant="without_all_python" if evidence.gpu is None else None,
        ),
        where=stalls.where(),
        evidence={
            "python_ns": python_ns,
            "share_of_operators": cpu.share_of_operators(stalls.num_calls),
            "device_wait_ns": None if evidence.gpu is None else idle_ns,
            **stalls.evidence_of_line,
        },
        high_share=OVERHEAD_HIGH_SHARE,
        stalls="python",
        delay=DelayEffect.EXCLUDED,
        may_wait_for_core=True,
        is_at_line=True,
    )


def _is_idle(evidence: Evidence, python_ns: float) -> bool:
    """Return whether the process used too little of a core for this to be Python that ran.

    Where the states of threads were recorded, all of it ran.
    """
    percent = evidence.cpu.process_percent
    if evidence.cpu.delay.is_recorded or percent is None:
        return False
    return percent / 100 < _MAX_RUNNING_SHARE * python_ns / evidence.step_ns


def _advise(evidence: Evidence, *, is_idle: bool) -> str:
    """Return the advice: measures against many short pauses do nothing about a few long ones."""
    stalls, cpu = evidence.stalls("python"), evidence.cpu
    pauses = stalls.frame.filter(pl.col("total_ns") >= _MIN_LONG_PAUSE_NS * pl.col("num_calls"))
    num_pauses, pauses_ns = (int(pauses[name].sum()) for name in ("num_calls", "total_ns"))
    share = pauses_ns / stalls.all_ns if len(pauses) else 0.0
    if share < _MIN_SHARE_IN_LONG_PAUSES:
        return _ADVICE
    on_pauses = _LONG_PAUSES_ADVICE.format(
        share=format_percent(share),
        pauses=format_count(num_pauses, "pause"),
        mean_ms=pauses_ns / num_pauses / 1e6,
        activity=_WAITS if is_idle else _RUNS if cpu.delay.is_recorded else _RUNS_OR_WAITS,
    )
    on_loops = "" if is_idle else _ADVICE_ON_LOOPS
    return f"{on_loops}{_ADVICE_ON_LONG_PAUSES} {on_pauses}".rstrip()
