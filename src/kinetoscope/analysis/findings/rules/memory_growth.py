"""Rule for a memory leak: allocated memory grows with every step."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.confidence import confidence_if
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import MAX_NAMED, Finding, Where, build_finding
from kinetoscope.analysis.findings.ranking import MAX_URGENT_STEPS
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.memory.memory import MemoryRow
from kinetoscope.analysis.memory.memory_owners import MemoryOwner
from kinetoscope.core.text.wording import format_count, format_memory, sanitize

_MIN_GROWTH_SHARE = 0.0001
_MIN_GROWTH_BYTES = 10_000
"""Slower growth per step, as a share of the peak and in bytes, is not reported."""

_MIN_TOTAL_SHARE = 0.01
"""Less growth in the whole recording, as a share of the peak, is of medium confidence."""

_MIN_SHARE_OF_PART = 0.8
"""Memory that grows is the optimizer's, or that of fetched batches, if these allocated this share of it."""

_MIN_OWNED_SHARE = 0.2
"""Owners of less than this share of the growth are not named."""

_ADVICE_ON_TENSORS = (
    "Keep numbers, not tensors, across steps: `losses.append(loss.item())`, or `loss.detach()` where you need a "
    "tensor. A tensor with a `grad_fn` keeps everything alive that its backward pass needs."
)
_ADVICE_ON_OPTIMIZERS = (
    "Record later steps, or pass a smaller `history_size`: the optimizer's step allocated it, and LBFGS stops growing "
    "when its history is full. If the growth continues, the optimizer retains tensors of old steps."
)
_ADVICE_ON_BATCHES = (
    "Record a later epoch, or limit the dataset's cache: it was allocated while batches were fetched, and a cache "
    "stops growing once all samples are read. If the growth continues, something retains batches of old steps."
)


@rule("memory_growth", requires=("memory",))
def find_memory_growth(evidence: Evidence) -> Iterator[Finding]:
    """Find the largest growth of all ranks and devices."""
    growing = [row for row in evidence.rows.memory if _grows(row)]
    if not growing or evidence.memory is None:
        return
    worst = max(growing, key=lambda row: row.growth_bytes_per_step or 0)
    growth = worst.growth_bytes_per_step or 0
    total, owners = evidence.memory.device_bytes(worst), _plausible_owners(worst)
    retained_by = f", retained by {sanitize(owners[0].name)}" if owners else ""
    is_of_optimizer, is_of_batches = (_is_mostly_of(part, worst) for part in ("optimizer", "data"))
    may_end = is_of_optimizer or (is_of_batches and not any(owner.num_graphs for owner in owners))
    is_certain = growth * evidence.num_steps >= _MIN_TOTAL_SHARE * worst.peak_bytes and not may_end
    of_part = _ADVICE_ON_OPTIMIZERS if is_of_optimizer else _ADVICE_ON_BATCHES
    steps_until_full = None if total is None else max(0, total - worst.peak_bytes) / growth
    title = f"{'Memory growth' if may_end else 'Memory leak'}: +{format_memory(growth)}/step"
    title += " in the optimizer" if is_of_optimizer else ""
    if steps_until_full is not None and steps_until_full < MAX_URGENT_STEPS:
        title += f", out of memory in about {format_count(round(steps_until_full), 'step')}"
    yield build_finding(
        "memory_growth",
        add_detail(title, retained_by),
        f"{of_part if may_end else _ADVICE_ON_TENSORS} {_describe_owners(worst, owners)}".rstrip(),
        confidence=confidence_if(is_certain),
        evidence={
            "bytes_per_step": growth,
            "peak_bytes": worst.peak_bytes,
            "steps_until_full": steps_until_full,
            "tensors_per_step": owners[0].num_tensors / owners[0].num_steps if owners else None,
        },
        where=_locate(growing, worst, owners),
    )


def _grows(row: MemoryRow) -> bool:
    min_bytes = max(_MIN_GROWTH_BYTES, _MIN_GROWTH_SHARE * row.peak_bytes)
    return row.growth_bytes_per_step is not None and row.growth_bytes_per_step >= min_bytes


def _is_mostly_of(category: str, row: MemoryRow) -> bool:
    """Return whether this part of a step allocates most of the growth: a history, or a cache, may be full one day."""
    own = sum(holder.bytes_per_step for holder in row.holders if holder.category == category)
    return own >= _MIN_SHARE_OF_PART * (row.growth_bytes_per_step or 0)


def _plausible_owners(row: MemoryRow) -> list[MemoryOwner]:
    """Return the owners that may retain a good part of the growth: those with graphs, and with tensors as large."""
    min_bytes = _MIN_OWNED_SHARE * (row.growth_bytes_per_step or 0)
    return [owner for owner in row.owners or () if owner.bytes_per_step is None or owner.bytes_per_step >= min_bytes]


def _describe_owners(row: MemoryRow, owners: list[MemoryOwner]) -> str:
    """Return sentences on the owners of growing memory."""
    if owners:
        return " ".join(map(_describe, owners[:MAX_NAMED])) + " "
    if row.owners is None:
        return ""
    return "No object within reach of the loop's functions retains it: a queue, a thread or a library may. "


def _describe(owner: MemoryOwner) -> str:
    graphs = f", {owner.num_graphs:,} of them with their autograd graph" if owner.num_graphs else ""
    gets = f"gained {owner.num_tensors:,} tensors in {owner.num_steps:,} steps{graphs}"
    if owner.kind == "tensor":
        gets = f"retains the autograd graphs of all {owner.num_steps:,} steps"
    return f"{sanitize(owner.name)} ({sanitize(owner.kind)}, {sanitize(owner.location)}) {gets}."


def _locate(growing: list[MemoryRow], worst: MemoryRow, owners: list[MemoryOwner]) -> Where:
    """Return the ranks whose memory grows, and of the worst of them the lines that retain and allocate it."""
    lines = [owner.line for owner in owners] + [holder.line for holder in worst.holders]
    return Where(
        ranks=tuple(sorted({row.rank for row in growing if row.rank is not None})),
        spans=tuple(dict.fromkeys(holder.operator for holder in worst.holders if holder.operator))[:MAX_NAMED],
        lines=tuple(dict.fromkeys(line for line in lines if line))[:MAX_NAMED],
        modules=(worst.growth_module,) if worst.growth_module is not None else (),
    )
