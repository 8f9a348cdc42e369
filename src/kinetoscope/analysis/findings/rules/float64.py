"""Rule for computing in float64: matmuls and other kernels, on the GPU or on the CPU."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kinetoscope.analysis.findings.confidence import OVERHEAD_HIGH_SHARE
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import MAX_NAMED
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.slow_matmuls import diagnose_slow_matmuls, find_kernels
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.core.text.wording import format_ms

_FLOAT64 = r"(?:^|[^A-Za-z])dgemm(?:[^a-z]|$)|f64f64|_d884|<double\b"
"""Case matters: ``BatchedGemm`` and ``GroupedGemm`` contain ``dGemm``."""

_ADVICE = (
    "Convert it with `.float()`. It often comes from numpy, where float64 is the default: `torch.as_tensor(array, "
    "dtype=torch.float32)`."
)
_CPU_ADVICE = " A vector register holds twice as many float32 values."
_GPU_ADVICE = " Most GPUs compute float64 at a fraction of their float32 speed."


@rule("float64")
def find_float64(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose kernels by their names, and operators on the CPU by the types of their inputs."""
    seen = evidence.in_float64
    names = [f"{note.name} ({note.kind}, {note.location})" for note in seen]
    advice = (f"In float64: {'; '.join(names)}. " if names else "") + _ADVICE
    detail = next((f", introduced at {note.line}" for note in seen if note.line is not None), "")
    if evidence.gpu is None:
        yield _diagnose_on_cpu(evidence, advice + _CPU_ADVICE, detail)
        return
    rows = find_kernels(evidence.rows.kernels, _FLOAT64)
    lines = _lines(evidence)
    yield diagnose_slow_matmuls(evidence, rows, "float64 compute", advice + _GPU_ADVICE, detail=detail, lines=lines)


def _diagnose_on_cpu(evidence: Evidence, advice: str, detail: str) -> Diagnosis:
    stalls = evidence.stalls("double")
    where = stalls.where()
    return Diagnosis(
        title=lambda cost_ns: add_detail(f"float64 compute: {format_ms(cost_ns)} ms/step", detail),
        advice=advice,
        cost_ns=stalls.total_ns,
        fix=None,
        where=replace(where, lines=_lines(evidence, where.lines)),
        evidence={"float64_ns": stalls.total_ns},
        high_share=OVERHEAD_HIGH_SHARE,
        stalls="double",
        is_on_gpu=True,
        is_at_line=True,
    )


def _lines(evidence: Evidence, others: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the lines that introduce float64, and then others."""
    lines = [note.line for note in evidence.in_float64 if note.line is not None]
    return tuple(dict.fromkeys((*lines, *others)))[:MAX_NAMED]
