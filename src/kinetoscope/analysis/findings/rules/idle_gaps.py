"""Rule for unexplained gaps: the GPU idles though its next kernel was launched."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.core.text.wording import format_ms

_ADVICE = (
    "Check `nvidia-smi` for other processes on the GPU. To record waits between streams, pass "
    "`experimental_config=torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)` to `kinetoscope.profile()`."
)
_ADVICE_ON_GRAPHS = (
    "Check the timeline before these gaps: a CUDA graph is launched as a whole, and its kernels wait inside it for "
    "copies, other branches and host callbacks. Capture the graph without these. Replay it once before the loop: the "
    "first launch uploads it to the GPU."
)


@rule("idle_gaps", requires=("gpu",))
def find_idle_gaps(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose the gaps. Confidence is at most medium: kernels from before the recording may run in them."""
    if (gpu := evidence.gpu) is None:
        return
    idle_ns, graphs_ns = gpu.unexplained_idle_ns, gpu.graph_gaps_ns
    is_in_graphs = 2 * graphs_ns > idle_ns
    diagnosis = "GPU idle gaps between kernels of a CUDA graph" if is_in_graphs else "Unexplained GPU idle gaps"
    yield Diagnosis(
        title=lambda cost_ns: f"{diagnosis}: {format_ms(cost_ns)} ms/step",
        advice=_ADVICE_ON_GRAPHS if is_in_graphs else _ADVICE,
        cost_ns=min(idle_ns, gpu.idle_ns),
        fix=None,
        evidence={"idle_other_ns": idle_ns, "graph_gaps_ns": graphs_ns or None},
        is_estimate=True,
        columns=("device_idle_ns",),
        is_on_gpu=True,
    )
