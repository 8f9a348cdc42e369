"""Advice on cheap batches: sending one from a worker costs about as much as building it."""

from dataclasses import replace

from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.recording_options import LINE_ADVICE

MIN_TRANSFER_COSTS = 3
"""A batch that is built in less than so many times the cost of sending it is cheap: workers gain less than 70 %."""

VECTORIZE = (
    "Read all samples of a batch at once: `DataLoader(dataset, batch_size=None, "
    "sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False))` passes lists of indices to the "
    "dataset. TensorDataset accepts them; in your own dataset, index whole tensors in `__getitem__`."
)
BUILT_BY_LOOP = "The loop builds its batches itself, in "


def remove_recording_cost_of_batches(finding: Finding, fetch_ratio: float) -> Finding:
    """Return the finding with advice for cheap batches, if only recording makes them expensive.

    Args:
        finding: a finding of kind ``input_bound``.
        fetch_ratio: median time to fetch a batch in unrecorded steps, divided by that in recorded ones.
    """
    evidence = dict(finding.evidence)
    batch_ns, sending_ns = evidence.get("median_batch_ns"), evidence.get("batch_transfer_ns")
    before, is_built, _ = finding.advice.partition(BUILT_BY_LOOP)
    if (
        not is_built
        or batch_ns is None
        or sending_ns is None
        or batch_ns * fetch_ratio >= MIN_TRANSFER_COSTS * sending_ns
    ):
        return finding
    evidence["median_batch_ns"] = batch_ns = min(1.0, fetch_ratio) * batch_ns
    evidence.pop("reachable_saving_ns", None)  # of workers, which are no longer advised
    on_line = f" {LINE_ADVICE}" if LINE_ADVICE in finding.advice else ""
    return replace(
        finding,
        advice=before + describe_cheap_batches(batch_ns, sending_ns) + on_line,
        evidence=tuple(evidence.items()),
        confidence="medium" if finding.confidence == "high" else finding.confidence,
    )


def describe_cheap_batches(batch_ns: float, sending_ns: float) -> str:
    """Return the advice for batches that the loop builds in ``batch_ns``."""
    return (
        f"{BUILT_BY_LOOP}{batch_ns / 1e6:.2f} ms each. A worker takes about {sending_ns / 1e6:.1f} ms to send a "
        f"batch, so workers would save little. {VECTORIZE}"
    )
