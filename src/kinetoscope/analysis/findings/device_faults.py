"""analysis: faults of devices and between ranks: what devices wait for, and what they compute at a needless cost."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kinetoscope.analysis.device_peaks import FULL_FLOAT32, TENSOR_FLOAT32
from kinetoscope.analysis.findings.case import MOST_NAMED, Case
from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.finding import OVERHEAD_IS_HIGH, Finding, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.signs import InFloat64
from kinetoscope.analysis.host_time import SMALL_OPERATOR_NS
from kinetoscope.analysis.kernel_names import COPY_OF_PINNED_MEMORY, COPY_TO_DEVICE
from kinetoscope.analysis.kernels import KernelRow
from kinetoscope.analysis.operators import OperatorRow
from kinetoscope.analysis.replay.replay import MOST_UNEXPLAINED, Change

_LITTLE_NOT_KNOWN, _MUCH_NOT_KNOWN = 0.05, 0.5
"""From which part on of the time of collectives a finding says that its waits are not known, and claims no transfer."""

_TIMES_AS_FAST = 2.0
"""How much faster products of matrices are, at least, with half the bits."""

_FLOAT64 = r"(?:^|[^A-Za-z])dgemm(?:[^a-z]|$)|f64f64|_d884|<double\b"
"""Case matters: ``BatchedGemm`` and ``GroupedGemm`` contain ``dGemm``."""

_FIRST_WITH_TENSOR_FLOAT = 8
"""The compute capability from which on devices have TF32."""

_ADVICE_ON_FLOAT64 = (
    "Convert with .float() what became float64, often by way of numpy, whose default it is: pass "
    "dtype=torch.float32 to torch.as_tensor."
)
_FEWEST_SMALL_OPERATORS = 100
_SURELY_MANY_OPERATORS = 1000
"""A short step of a small model consists of little else than some hundred small operators."""

_MOST_OF_ITEMS = 0.8
_ADVICE_ON_ITEMS = (
    "Compute on the whole tensor, and read all values at once with one .tolist(). What you only log or add up can stay "
    "in a tensor until the end of the epoch."
)
_ADVICE_ON_ITEMS_OF_OPTIMIZER = (
    "The optimizer's own step reads them. One that keeps a history, as LBFGS does, reads some for each direction in "
    "it: a smaller history_size makes them fewer."
)
_ADVICE_ON_SMALL_OPERATORS = (
    "Let torch.compile(model) fuse them, or use the foreach=True or fused=True form of the optimizer, if it has one. "
    "A larger batch gives each call more to do."
)


_ADVICE_ON_GAPS = (
    "Look with nvidia-smi for other processes on the device. To see waits of one stream for another, record with "
    "experimental_config=torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)."
)
_ADVICE_ON_GRAPHS = (
    "Look in the timeline at what comes before these gaps: a graph is launched as a whole, and its kernels wait inside "
    "of it for its copies, its other branches and its calls of the host. Capture it without these. Call it once before "
    "the loop: its first launch loads it onto the device."
)


_SMALL_TRANSFERS_BYTES = 1_000_000  # DistributedDataParallel's first bucket is never smaller than about that
_ADVICE_ON_TRANSFERS = (
    "Let transfers overlap with the backward pass: smaller buckets (bucket_cap_mb=10 in DistributedDataParallel) "
    "begin earlier, and larger ones waste less. model.no_sync() while gradients are accumulated leaves them out."
)
_ADVICE_ON_SMALL_TRANSFERS = (
    "A step transfers less than 1 MB in all, so its calls take the time, not their bytes: smaller buckets would not "
    "help. Call less often: model.no_sync() while gradients are accumulated, or a larger batch on each rank."
)

_ON_HIDDEN_GAPS = (
    " Kernels that need no communication began late as well, for no reason that the recording shows. They may do so "
    "without the transfers too, so it is not known what a step would gain."
)


_MIN_CROWDED_SHARE = 0.5


def exposed_communication(case: Case) -> Finding | None:
    """Devices transfer data while they compute nothing; what they wait for late ranks is not counted, as far as that is
    known."""
    name = "device_exposed_communication_ns" if case.has_device else "communication_wait_ns"
    exposed_ns, waits_ns, share = case.mean_ns(name), case.waits_ns(), _share_not_known(case)
    advice = _ADVICE_ON_SMALL_TRANSFERS if _transfers_little(case) else _ADVICE_ON_TRANSFERS
    is_sure, hidden_ns = share < _MUCH_NOT_KNOWN, case.hidden_gaps_ns()
    is_hiding = hidden_ns > MOST_UNEXPLAINED * exposed_ns
    if is_hiding:
        advice += _ON_HIDDEN_GAPS
    found = case.finding(
        "exposed_communication",
        "Ranks transfer data while nothing is computed" if is_sure else "Ranks communicate while nothing is computed",
        advice if share < _LITTLE_NOT_KNOWN else f"{_on_share_not_known(share)} {advice}",
        cost_ns=max(0.0, exposed_ns - waits_ns),
        fix=None if is_hiding else Fix(Change(frozenset(["transfer"]))),
        is_estimate=is_hiding or _is_slowed_by_others(case),
        evidence={
            "exposed_communication_ns": exposed_ns,
            "waits_for_late_ranks_ns": waits_ns if share < 1 else None,
            "share_not_known": share,
            "hidden_gaps_ns": hidden_ns if is_hiding else None,
        },
    )
    if found is None or is_sure or found.confidence != "high":
        return found
    return replace(found, confidence="medium")


def _is_slowed_by_others(case: Case) -> bool:
    """Return whether collectives run on CPUs that other processes use most of: their threads wait for them, too."""
    is_crowded = (case.cpu_use.others_share or 0.0) >= _MIN_CROWDED_SHARE
    return not case.has_device and is_crowded and not case.cpu_use.is_own_fault


def _transfers_little(case: Case) -> bool:
    """Whether the calls of no step transfer much. Unknown bytes may be many."""
    sizes: defaultdict[int | None, int] = defaultdict(int)
    for call in case.report.collectives:
        if call.bytes is None:
            return False
        sizes[call.step] += call.bytes
    return 0 < max(sizes.values(), default=0) < _SMALL_TRANSFERS_BYTES


def _share_not_known(case: Case) -> float:
    """Of the time in collectives, the part of calls of which nobody knows who waited for whom."""
    calls = [call for call in case.report.collectives if call.step is not None]
    lengths = [sum(call.ends_ns) - sum(call.starts_ns) for call in calls]
    not_known = [length for call, length in zip(calls, lengths, strict=True) if call.waits_ns is None]
    return sum(not_known) / sum(lengths) if sum(lengths) else 1.0


def _on_share_not_known(share: float) -> str:
    return (
        f"For {100 * share:.0f} % of this time it is not known how much is waiting for late ranks: the traces of all "
        "ranks together show that of most collectives."
    )


def small_kernels(case: Case) -> Finding | None:
    """Many small kernels, each of which takes the host longer than the device; on the CPU many small operators."""
    if not case.has_device:
        return _small_operators(case)
    num_kernels, host_ns = case.small_kernels()
    return case.finding(
        "small_kernels",
        "Many small kernels run one after the other",
        "Let torch.compile(model) fuse them into one, or use the foreach=True or fused=True form of the optimizer, if "
        "it has one. Work on one large tensor, not on many small ones in a loop.",
        cost_ns=host_ns,
        fix=Fix(Change(frozenset(["launch", "transfer"])), variant=FaultGraph.only_small_runs),
        evidence={
            "num_small_kernels": num_kernels,
            "host_ns": host_ns,
            "share_of_operators": case.share_of_operators(num_kernels),
        },
    )


def _small_operators(case: Case) -> Finding | None:
    rows = [row for row in case.report.operators if row.mean_ns < SMALL_OPERATOR_NS]
    num_rank_steps = max(1, len(case.report.steps))
    num_calls, own_ns = (sum(getattr(row, name) for row in rows) / num_rank_steps for name in ("num_calls", "self_ns"))
    if num_calls < _FEWEST_SMALL_OPERATORS:
        return None
    names = tuple(dict.fromkeys(row.name for row in rows))
    python_ns = case.python_before_ns(names)
    num_items = _num_items(case, rows) / max(1, sum(row.python_ns is not None for row in case.report.steps))
    is_surely_many = num_calls >= _SURELY_MANY_OPERATORS
    kind = "item" if num_items else "small"
    return case.finding(
        "small_kernels",
        f"{num_items:,.0f} values a step are read one by one with .item()"
        if num_items
        else "Many small operators run one after the other",
        case.on_line(kind) + (_advice_on_items(case) if num_items else _ADVICE_ON_SMALL_OPERATORS),
        cost_ns=own_ns + python_ns,
        fix=None,
        where=Where(spans=names[:MOST_NAMED], lines=case.where(case.stops(kind)).lines),
        evidence={
            "num_small_operators": num_calls,
            "share_of_operators": case.share_of_operators(num_calls),
            "num_items": num_items or None,
            "self_ns": own_ns,
            "python_ns": python_ns,
            **case.evidence_of_line(kind),
        },
        high_share=2 * OVERHEAD_IS_HIGH if is_surely_many else 1.0,
    )


def _num_items(case: Case, rows: Sequence[OperatorRow]) -> int:
    """How many values are read one by one, if that is what a loop over small operators is for: some other operators are
    called in each round of it, such as the one that selects the value."""
    num_items = sum(one.items for one in case.signs)
    return num_items if 2 * num_items >= max((row.num_calls for row in rows), default=0) else 0


def _advice_on_items(case: Case) -> str:
    num_items, of_optimizer = (
        sum(getattr(one, name) for one in case.signs) for name in ("items", "items_of_optimizer")
    )
    if of_optimizer >= _MOST_OF_ITEMS * num_items:
        return _ADVICE_ON_ITEMS_OF_OPTIMIZER
    calls = case.sampled("item").drop_nulls("call").to_dicts()
    of_library = [row["call"] for row in calls if row["share"] >= _MOST_OF_ITEMS]
    return (f"They are read in {of_library[0]}, a library. " if of_library else "") + _ADVICE_ON_ITEMS


def idle_gaps(case: Case) -> Finding | None:
    """The device is idle though its next kernel was launched."""
    idle_ns, graphs_ns = case.device_ns("idle_other_ns"), case.before_graphs_ns()
    is_in_graphs = 2 * graphs_ns > idle_ns
    return case.finding(
        "idle_gaps",
        "The device is idle between the kernels of a CUDA graph"
        if is_in_graphs
        else "The device is idle although its next kernel is launched",
        _ADVICE_ON_GRAPHS if is_in_graphs else _ADVICE_ON_GAPS,
        cost_ns=min(idle_ns, case.idle_ns()),
        fix=None,
        evidence={"idle_other_ns": idle_ns, "before_graphs_ns": graphs_ns or None},
    )


def exposed_copy(case: Case) -> Finding | None:
    """Copies to the device stop the loop, or the device."""
    copies = [row for row in case.report.kernels if row.kind == "copy" and re.search(COPY_TO_DEVICE, row.name)]
    if not copies:
        return None
    stops = case.stops("copy")
    copy_ns = max(case.total_ns("copy"), case.exposed_to_device_ns())
    pageable_ns = sum(row.total_ns for row in copies if "Pageable" in row.name)
    are_pinned = all(re.search(COPY_OF_PINNED_MEMORY, row.name) for row in copies)
    is_pinned = are_pinned or any(one.loader.get("pin_memory") is True for one in case.signs)
    pin = "Pass" if is_pinned else "Pass pin_memory=True to the DataLoader and"
    return case.finding(
        "exposed_copy",
        "Copies to the device hold the step up",
        f"{pin} non_blocking=True to .to(device), so that copies run beside "
        "kernels. Copy the next batch on a stream of its own while this one is computed.",
        cost_ns=copy_ns,
        fix=Fix(
            Change(frozenset(["sync"]), {row.name: float("inf") for row in copies}),
            variant=FaultGraph.only_copies_that_block,
        ),
        where=case.where(stops),
        evidence={"copy_ns": copy_ns, "pageable_ns": pageable_ns / max(1, len(case.report.steps))},
    )


def float32_matmul(case: Case) -> Finding | None:
    """Products of matrices in full float32, on a device that has something faster."""
    majors = [major for one in case.signs for major in one.device_majors.values()]
    if majors and max(majors) < _FIRST_WITH_TENSOR_FLOAT:
        return None
    names = _named(case.report.kernels, FULL_FLOAT32, unless=TENSOR_FLOAT32)
    return _slow_products(
        case,
        "float32_matmul",
        "Products of matrices run in full float32",
        'Call torch.set_float32_matmul_precision("high") to use the tensor cores with TF32. '
        "torch.autocast(device_type, dtype=torch.bfloat16) is faster still.",
        names,
    )


def float64(case: Case) -> Finding | None:
    """Products of matrices, or other kernels, in float64."""
    advice = f"{_seen_in_float64(case)}{_ADVICE_ON_FLOAT64}"
    if not case.has_device:
        return _float64_on_host(case, f"{advice} Twice as many float32 fit into a vector register.")
    advice += " Most devices have a fraction of their speed in float64."
    rows = _named(case.report.kernels, _FLOAT64)
    found = _slow_products(case, "float64", "Kernels compute in float64", advice, rows)
    return found and replace(found, where=replace(found.where, lines=_lines_to_float64(case)))


def _float64_on_host(case: Case, advice: str) -> Finding | None:
    where = case.where(case.stops("double"))
    return case.finding(
        "float64",
        "Products of matrices run in float64",
        advice,
        cost_ns=case.total_ns("double"),
        fix=None,
        where=replace(where, lines=_lines_to_float64(case, where.lines)),
        evidence={"float64_ns": case.total_ns("double")},
        high_share=OVERHEAD_IS_HIGH,
    )


def _in_float64(case: Case) -> list[InFloat64]:
    """What was seen to be in float64 on any rank, those first of which the line is known."""
    seen = dict.fromkeys(note for one in case.signs for note in one.float64)
    return sorted(seen, key=lambda note: note.line is None)[:MOST_NAMED]


def _seen_in_float64(case: Case) -> str:
    """What was seen to be in float64, as a sentence; empty if nothing was."""
    names = [f"{note.name} ({note.kind}, {note.place})" for note in _in_float64(case)]
    return f"In float64: {'; '.join(names)}. " if names else ""


def _lines_to_float64(case: Case, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The lines that make something float64, and then others."""
    lines = [note.line for note in _in_float64(case) if note.line is not None]
    return tuple(dict.fromkeys((*lines, *others)))[:MOST_NAMED]


def _slow_products(case: Case, kind: str, title: str, advice: str, rows: list[KernelRow]) -> Finding | None:
    """Kernels that would be twice as fast with half the bits."""
    cost_ns = sum(row.total_ns for row in rows) / max(1, len(case.report.steps))
    return case.finding(
        kind,
        title,
        advice,
        cost_ns=cost_ns,
        fix=Fix(Change(faster={row.name: _TIMES_AS_FAST for row in rows})),
        where=Where(spans=tuple(row.name for row in rows[:MOST_NAMED])),
        evidence={"kernels_ns": cost_ns, "num_calls": sum(row.num_calls for row in rows) / len(case.report.steps)},
    )


def _named(rows: Iterable[KernelRow], pattern: str, *, unless: str | None = None) -> list[KernelRow]:
    found = [row for row in rows if row.kind == "compute" and re.search(pattern, row.name)]
    return [row for row in found if unless is None or not re.search(unless, row.name)]
