"""Rules for memory that grows from step to step, and for memory that is nearly full."""

from kinetoscope.analysis.findings.case import MOST_NAMED, Case
from kinetoscope.analysis.findings.finding import Finding, Where, build_finding
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.memory import MemoryRow
from kinetoscope.analysis.memory_owners import MemoryOwner
from kinetoscope.texts.wording import counted, in_percent, memory_size, shown

SOON_STEPS = 1000
"""Memory that will run out within so many steps comes before all other findings."""

_LEAST_GROWTH_SHARE = 0.0001
_LEAST_GROWTH_BYTES = 10_000
_FULL_SHARE = 0.95

_OF_ONE_PART = 0.8
"""Memory that grows is the optimizer's own, or that of fetched batches, if these allocated this part of it."""

_LEAST_OWNED_SHARE = 0.2
"""What holds less than this part of what grows is not named."""


_ADVICE_ON_TENSORS = (
    "Keep numbers, not tensors, across steps: losses.append(loss.item()), or loss.detach() where you need a tensor. A "
    "tensor with a grad_fn keeps everything alive that its backward pass needs."
)
_ADVICE_ON_OPTIMIZERS = (
    "The optimizer's step allocated it. LBFGS keeps its last history_size directions and stops growing when its "
    "history is full: record later steps to check, or pass a smaller history_size. If the growth continues, the "
    "optimizer retains tensors of old steps."
)
_ADVICE_ON_BATCHES = (
    "It was allocated while batches were fetched. A dataset with a cache stops growing once it has read all samples: "
    "record a later epoch to check, or limit the cache. If the growth continues, something retains batches of old "
    "steps."
)


def memory_growth(case: Case) -> Finding | None:
    """What is allocated grows with every step."""
    growing = [row for row in case.report.memory if _grows(row)]
    if not growing:
        return None
    worst = max(growing, key=lambda row: row.growth_bytes_per_step or 0)
    growth = worst.growth_bytes_per_step or 0
    total, owners = _device_bytes(case, worst), _plausible_owners(worst)
    retained_by = f", retained by {shown(owners[0].name)}" if owners else ""
    is_of_optimizer, is_of_batches = (_is_mostly_of(part, worst) for part in ("optimizer", "data"))
    may_end = is_of_optimizer or (is_of_batches and not any(owner.num_graphs for owner in owners))
    is_sure = growth * case.num_steps >= 0.01 * worst.peak_bytes and not may_end
    of_part = _ADVICE_ON_OPTIMIZERS if is_of_optimizer else _ADVICE_ON_BATCHES
    steps_until_full = None if total is None else max(0, total - worst.peak_bytes) / growth
    title = f"{'Memory growth' if may_end else 'Memory leak'}: +{memory_size(growth)}/step"
    title += " in the optimizer" if is_of_optimizer else ""
    if steps_until_full is not None and steps_until_full < SOON_STEPS:
        title += f", out of memory in about {counted(round(steps_until_full), 'step')}"
    return build_finding(
        "memory_growth",
        add_detail(title, retained_by),
        _who_holds_it(worst, owners) + (of_part if may_end else _ADVICE_ON_TENSORS),
        confidence="high" if is_sure else "medium",
        evidence={
            "bytes_per_step": growth,
            "peak_bytes": worst.peak_bytes,
            "steps_until_full": steps_until_full,
            "tensors_per_step": owners[0].num_tensors / owners[0].num_steps if owners else None,
        },
        where=_held(growing, worst, owners),
    )


def memory_limit(case: Case) -> Finding | None:
    """The memory of a device is nearly full."""
    shares = [(row.peak_bytes / total, row) for row in case.report.memory if (total := _device_bytes(case, row))]
    full = [(share, row) for share, row in shares if share >= _FULL_SHARE]
    if not full:
        return None
    share, row = max(full, key=lambda pair: pair[0])
    return build_finding(
        "memory_limit",
        f"Memory limit: the GPU's memory is {in_percent(share)} full at its peak",
        "Use smaller batches, or recompute activations: torch.utils.checkpoint.checkpoint(block, x, "
        "use_reentrant=False). Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older "
        "versions) to reduce fragmentation.",
        confidence="high",
        evidence={"peak_bytes": row.peak_bytes, "share_of_device": share},
        where=Where(ranks=_ranks([row for _, row in full]), steps=() if row.peak_step is None else (row.peak_step,)),
    )


def runs_out_soon(finding: Finding) -> bool:
    """Whether it is memory that will run out within `SOON_STEPS` steps."""
    return dict(finding.evidence).get("steps_until_full", SOON_STEPS) < SOON_STEPS


def _grows(row: MemoryRow) -> bool:
    least = max(_LEAST_GROWTH_BYTES, _LEAST_GROWTH_SHARE * row.peak_bytes)
    return row.growth_bytes_per_step is not None and row.growth_bytes_per_step >= least


def _is_mostly_of(category: str, row: MemoryRow) -> bool:
    """Whether this part of a step allocates most of what grows. An optimizer's history, or a dataset's cache, may be
    full one day."""
    own = sum(holder.bytes_per_step for holder in row.holders if holder.category == category)
    return own >= _OF_ONE_PART * (row.growth_bytes_per_step or 0)


def _plausible_owners(row: MemoryRow) -> list[MemoryOwner]:
    """Those owners that may hold a good part of what grows: those with graphs, and those whose tensors are as large."""
    least = _LEAST_OWNED_SHARE * (row.growth_bytes_per_step or 0)
    return [owner for owner in row.owners or () if owner.bytes_per_step is None or owner.bytes_per_step >= least]


def _who_holds_it(row: MemoryRow, owners: list[MemoryOwner]) -> str:
    """Return sentences on the owners of growing memory."""
    if owners:
        return " ".join(map(_described, owners[:MOST_NAMED])) + " "
    if row.owners is None:
        return ""
    return "No object within reach of the loop's functions retains it: a queue, a thread or a library may. "


def _described(owner: MemoryOwner) -> str:
    graphs = f", {owner.num_graphs:,} of them with their autograd graph" if owner.num_graphs else ""
    gets = f"gained {owner.num_tensors:,} tensors in {owner.num_steps:,} steps{graphs}"
    if owner.kind == "tensor":
        gets = f"retains the autograd graphs of all {owner.num_steps:,} steps"
    return f"{shown(owner.name)} ({shown(owner.kind)}, {shown(owner.place)}) {gets}."


def _held(growing: list[MemoryRow], worst: MemoryRow, owners: list[MemoryOwner]) -> Where:
    """The ranks whose memory grows, and on the worst of them the lines of those who hold it, and of those who allocate
    it."""
    lines = [owner.line for owner in owners] + [holder.line for holder in worst.holders]
    return Where(
        ranks=_ranks(growing),
        spans=tuple(dict.fromkeys(holder.operator for holder in worst.holders if holder.operator))[:MOST_NAMED],
        lines=tuple(dict.fromkeys(line for line in lines if line))[:MOST_NAMED],
    )


def _ranks(rows: list[MemoryRow]) -> tuple[int, ...]:
    return tuple(sorted({row.rank for row in rows if row.rank is not None}))


def _device_bytes(case: Case, row: MemoryRow) -> int | None:
    """How much memory the device of a row has, if the trace says so."""
    if row.device is None:
        return None
    return next((one.device_bytes[row.device] for one in case.signs if row.device in one.device_bytes), None)
