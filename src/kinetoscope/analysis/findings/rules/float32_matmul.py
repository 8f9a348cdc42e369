"""Rule for matmuls in full float32 on a GPU with tensor cores."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.slow_matmuls import diagnose_slow_matmuls, find_kernels
from kinetoscope.analysis.gpu.device_peaks import FULL_FLOAT32, TENSOR_FLOAT32

_FIRST_MAJOR_WITH_TF32 = 8
"""The compute capability of the first GPUs with TF32."""


@rule("float32_matmul", requires=("gpu",))
def find_float32_matmul(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose kernels by their names."""
    majors = evidence.gpu.majors if evidence.gpu is not None else []
    if majors and max(majors) < _FIRST_MAJOR_WITH_TF32:
        return
    yield diagnose_slow_matmuls(
        evidence,
        find_kernels(evidence.rows.kernels, FULL_FLOAT32, unless=TENSOR_FLOAT32),
        "float32 matmuls without tensor cores",
        'Use TF32 tensor cores: `torch.set_float32_matmul_precision("high")`. Or run the model under '
        '`torch.autocast("cuda", dtype=torch.bfloat16)`, which is faster still.',
    )
