"""Rule for many small kernels that take the CPU longer than the GPU; on the CPU for many small operators."""

from collections.abc import Iterator, Sequence

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.cpu.python_time import SMALL_OPERATOR_NS
from kinetoscope.analysis.findings.confidence import OVERHEAD_HIGH_SHARE
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.gpu import GpuEvidence
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.evidence.window_modules import SMALL_KERNELS
from kinetoscope.analysis.findings.finding import MAX_NAMED, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import format_rate
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms

_MIN_SMALL_OPERATORS = 100
_MIN_MANY_OPERATORS = 1000
"""Fewer operators per step allow no high confidence: a step of a small model has some hundred small ones."""

_MIN_SHARE_OF_ITEMS = 0.8
"""Advice is about the library or the optimizer that reads this share of the values."""

_ADVICE = (
    "Fuse them: `model = torch.compile(model)`, and `fused=True` for an optimizer that has it. Work on one large "
    "tensor instead of many small ones in a loop."
)
_ADVICE_ON_OPERATORS = (
    "Fuse them: `model = torch.compile(model)`, and `fused=True` for an optimizer that has it. A larger batch gives "
    "each call more work."
)
_ADVICE_ON_ITEMS = (
    "Compute on the whole tensor, and read all values with one `values.tolist()`. Keep values that you only log or sum "
    "in a tensor until the end of the epoch."
)
_ADVICE_ON_ITEMS_OF_OPTIMIZER = (
    "Pass a smaller history to LBFGS, which reads some for each direction in it: "
    "`torch.optim.LBFGS(..., history_size=10)`. The optimizer's step reads them."
)


@rule("small_kernels")
def find_small_kernels(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose small kernels, or small operators where there is no device."""
    if evidence.gpu is not None:
        yield _diagnose_kernels(evidence, evidence.gpu)
    else:
        yield from _diagnose_operators(evidence)


def _diagnose_kernels(evidence: Evidence, gpu: GpuEvidence) -> Diagnosis:
    num_kernels, host_ns, empty_ns = gpu.small_kernels()
    return Diagnosis(
        title=lambda _: f"Small kernels: {format_rate(num_kernels)} kernels/step finish faster than they launch",
        advice=_ADVICE,
        cost_ns=min(host_ns, evidence.device_wait_ns) + empty_ns,
        fix=Fix(Change(frozenset(["launch", "transfer"])), variant="only_small_runs"),
        where=Where(modules=evidence.modules.of_costs(SMALL_KERNELS)),
        evidence={
            "num_small_kernels": num_kernels,
            "cpu_ns": host_ns,
            "share_of_operators": evidence.cpu.share_of_operators(num_kernels),
        },
        stalls="small",
        is_on_gpu=True,
        delay=DelayEffect.CONTAINED,
    )


def _diagnose_operators(evidence: Evidence) -> Iterator[Diagnosis]:
    rows = [row for row in evidence.rows.operators if row.mean_ns < SMALL_OPERATOR_NS]
    num_steps = max(1, len(evidence.rows.steps))
    num_calls, self_ns = (sum(getattr(row, name) for row in rows) / num_steps for name in ("num_calls", "self_ns"))
    if num_calls < _MIN_SMALL_OPERATORS:
        return
    names = tuple(dict.fromkeys(row.name for row in rows))
    python_ns = evidence.cpu.python_before_ns(names)
    num_steps_with_python = sum(row.python_ns is not None for row in evidence.rows.steps)
    num_items = _num_items(evidence, rows) / max(1, num_steps_with_python)
    stalls = evidence.stalls("item" if num_items else "small")
    where = stalls.where()

    def title(cost_ns: float) -> str:
        if num_items:
            return f"Small operators: {format_rate(num_items)} .item() calls/step take {format_ms(cost_ns)} ms"
        return f"Small operators: {format_rate(num_calls)}/step under 10 us, {format_ms(cost_ns)} ms/step"

    yield Diagnosis(
        title=title,
        advice=" ".join(
            [_advise_on_items(evidence) if num_items else _ADVICE_ON_OPERATORS, stalls.describe_line()]
        ).rstrip(),
        cost_ns=self_ns + python_ns,
        fix=None,
        where=Where(spans=names[:MAX_NAMED], lines=where.lines, modules=where.modules),
        evidence={
            "num_small_operators": num_calls,
            "share_of_operators": evidence.cpu.share_of_operators(num_calls),
            "num_items": num_items or None,
            "self_ns": self_ns,
            "python_ns": python_ns,
            **stalls.evidence_of_line,
        },
        high_share=2 * OVERHEAD_HIGH_SHARE if num_calls >= _MIN_MANY_OPERATORS else 1.0,
        stalls="small",
        is_on_gpu=True,
        delay=DelayEffect.CONTAINED,
        is_at_line=True,
    )


def _num_items(evidence: Evidence, rows: Sequence[OperatorRow]) -> int:
    """Return the number of values that are read one by one, if that is the purpose of a loop over small operators.

    Some other operators are called in each round of it, such as the one that selects the value.
    """
    num_items = evidence.cpu.num_items
    return num_items if 2 * num_items >= max((row.num_calls for row in rows), default=0) else 0


def _advise_on_items(evidence: Evidence) -> str:
    if evidence.cpu.num_items_of_optimizer >= _MIN_SHARE_OF_ITEMS * evidence.cpu.num_items:
        return _ADVICE_ON_ITEMS_OF_OPTIMIZER
    calls = evidence.stalls("item").by_call.drop_nulls("call").to_dicts()
    of_library = [row["call"] for row in calls if row["share"] >= _MIN_SHARE_OF_ITEMS]
    return _ADVICE_ON_ITEMS + (f" {of_library[0]}, a library, reads them." if of_library else "")
