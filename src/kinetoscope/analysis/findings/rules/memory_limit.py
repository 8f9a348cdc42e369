"""Rule for the memory of a device that is nearly full."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.confidence import confidence_if
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Finding, Where, build_finding
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.core.text.wording import format_percent

_MIN_FULL_SHARE = 0.95


@rule("memory_limit", requires=("memory",))
def find_memory_limit(evidence: Evidence) -> Iterator[Finding]:
    """Find the fullest device."""
    if (memory := evidence.memory) is None:
        return
    shares = [(row.peak_bytes / total, row) for row in memory.rows if (total := memory.device_bytes(row))]
    full = [(share, row) for share, row in shares if share >= _MIN_FULL_SHARE]
    if not full:
        return
    share, row = max(full, key=lambda pair: pair[0])
    yield build_finding(
        "memory_limit",
        f"Memory limit: the GPU's memory is {format_percent(share)} full at its peak",
        "Use smaller batches, or recompute activations: `torch.utils.checkpoint.checkpoint(block, x, "
        "use_reentrant=False)`. Set `PYTORCH_ALLOC_CONF=expandable_segments:True` (`PYTORCH_CUDA_ALLOC_CONF` in older "
        "versions) to reduce fragmentation.",
        confidence=confidence_if(True),
        evidence={"peak_bytes": row.peak_bytes, "share_of_device": share},
        where=Where(
            ranks=tuple(sorted({one.rank for _, one in full if one.rank is not None})),
            steps=() if row.peak_step is None else (row.peak_step,),
        ),
    )
