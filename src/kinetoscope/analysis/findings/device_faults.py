"""Rules for faults on devices and between ranks: waits of devices, and computation that costs more than needed."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kinetoscope.analysis.device_peaks import FULL_FLOAT32, TENSOR_FLOAT32
from kinetoscope.analysis.findings.case import MOST_NAMED, Case
from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.finding import OVERHEAD_IS_HIGH, Finding, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.pipeline import exposed_communication_ns, find_waits
from kinetoscope.analysis.findings.signs import InFloat64
from kinetoscope.analysis.findings.titles import add_detail, format_rate
from kinetoscope.analysis.host_time import SMALL_OPERATOR_NS
from kinetoscope.analysis.kernel_names import COPY_OF_PINNED_MEMORY, COPY_TO_DEVICE
from kinetoscope.analysis.kernels import KernelRow
from kinetoscope.analysis.operators import OperatorRow
from kinetoscope.analysis.replay.replay import MOST_UNEXPLAINED, Change
from kinetoscope.texts.wording import format_ms, gaps_in, ranks_named

_LITTLE_NOT_KNOWN, _MUCH_NOT_KNOWN = 0.05, 0.5
"""From which part on of the time of collectives a finding says that its waits are not known, and claims no transfer."""

_TIMES_AS_FAST = 2.0
"""How much faster products of matrices are, at least, with half the bits."""

_FLOAT64 = r"(?:^|[^A-Za-z])dgemm(?:[^a-z]|$)|f64f64|_d884|<double\b"
"""Case matters: ``BatchedGemm`` and ``GroupedGemm`` contain ``dGemm``."""

_FIRST_WITH_TENSOR_FLOAT = 8
"""The compute capability from which on devices have TF32."""

_ADVICE_ON_FLOAT64 = (
    "Convert it with .float(). It often comes from numpy, where float64 is the default: use torch.as_tensor(array, "
    "dtype=torch.float32)."
)
_FEWEST_SMALL_OPERATORS = 100
_SURELY_MANY_OPERATORS = 1000
"""A short step of a small model consists of little else than some hundred small operators."""

_MOST_OF_ITEMS = 0.8
_ADVICE_ON_ITEMS = (
    "Compute on the whole tensor, and read all values with one values.tolist(). Keep values that you only log or sum "
    "in a tensor until the end of the epoch."
)
_ADVICE_ON_ITEMS_OF_OPTIMIZER = (
    "The optimizer's step reads them. LBFGS reads some for each direction in its history: pass a smaller "
    "history_size, as in torch.optim.LBFGS(..., history_size=10)."
)
_ADVICE_ON_SMALL_OPERATORS = (
    "Fuse them: model = torch.compile(model), and fused=True for an optimizer that has it. A larger batch gives each "
    "call more work."
)


_ADVICE_ON_GAPS = (
    "Check nvidia-smi for other processes on the GPU. To record waits between streams, pass "
    "experimental_config=torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)."
)
_ADVICE_ON_GRAPHS = (
    "Check the timeline before these gaps: a CUDA graph is launched as a whole, and its kernels wait inside it for "
    "copies, other branches and host callbacks. Capture the graph without these. Replay it once before the loop: the "
    "first launch uploads it to the GPU."
)


_SMALL_TRANSFERS_BYTES = 1_000_000  # DistributedDataParallel's first bucket is never smaller than about that
_ADVICE_ON_TRANSFERS = (
    "Overlap transfers with the backward pass: DistributedDataParallel(model, bucket_cap_mb=10) starts them earlier; "
    "larger buckets use the network better. Accumulate gradients under model.no_sync() to skip transfers."
)
_ADVICE_ON_SMALL_TRANSFERS = (
    "A step transfers less than 1 MB, so latency dominates, and smaller buckets do not help. Communicate less often: "
    "accumulate gradients under model.no_sync(), or use a larger batch per rank."
)

_ADVICE_ON_PINNING = (
    "Pin the source: DataLoader(..., pin_memory=True). A copy from pinned memory is faster even if it blocks. "
)
_ADVICE_ON_COPIES = (
    "Overlap copies with kernels: batch.to(device, non_blocking=True), and copy the next batch on a second stream "
    "during this step."
)

_MIN_CALLS, _TIMES_USUAL = 8, 2
"""Of so many calls, one that takes twice as long per byte as a quarter of them waits for a rank."""

_ADVICE_ON_MISSING = (
    "The recorded ranks wait for {0}, or transfer data meanwhile. Only the trace of {0} shows which of both. "
    "Analyze the traces of all ranks together, or record the others: kinetoscope record RUN."
)

_ON_HIDDEN_GAPS = (
    " Kernels that need no communication started late as well, for an unknown reason. They may do so without the "
    "transfers, so the saving is unknown."
)


_MIN_CROWDED_SHARE = 0.5


def exposed_communication(case: Case) -> Finding | None:
    """Devices transfer data while they compute nothing; what they wait for late ranks is not counted, as far as that is
    known."""
    of_messages = find_waits(case.graph.as_recorded, case.pipeline).of_messages  # a pipeline's bubble
    exposed_ns = exposed_communication_ns(case) * (1 - of_messages)
    waits_ns, share = case.waits_ns(), _share_not_known(case)
    advice = _ADVICE_ON_SMALL_TRANSFERS if _transfers_little(case) else _ADVICE_ON_TRANSFERS
    is_sure, hidden_ns = share < _MUCH_NOT_KNOWN, case.hidden_gaps_ns()
    is_hiding = hidden_ns > MOST_UNEXPLAINED * exposed_ns
    if is_hiding:
        advice += _ON_HIDDEN_GAPS
    what = "not overlapped with compute" if is_sure else "of transfers, or of waits for ranks"
    if missing := _missing_ranks(case):
        is_waiting = 2 * _long_transfers_ns(case) > exposed_ns
        what = f"{'waiting for' if is_waiting else 'with'} {missing} (not recorded)"
        advice = _ADVICE_ON_MISSING.format(missing)
    found = case.finding(
        "exposed_communication",
        lambda cost_ns: f"Exposed communication: {format_ms(cost_ns)} ms/step {what}",
        advice if share < _LITTLE_NOT_KNOWN or missing else f"{_on_share_not_known(share)} {advice}",
        cost_ns=max(0.0, exposed_ns - waits_ns),
        fix=None if is_hiding or missing else Fix(Change(frozenset(["transfer"]))),
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


def _missing_ranks(case: Case) -> str:
    """Return the ranks whose traces are missing and with which the recorded ones communicate; "" without any."""
    ranks, num_ranks = case.report.run["ranks"], case.report.run["world_size"] or 0
    has_unjoined = case.graph.as_recorded.unjoined_share > MOST_UNEXPLAINED
    return ranks_named(gaps_in(ranks, num_ranks)) if has_unjoined and ranks and len(ranks) < num_ranks else ""


def _long_transfers_ns(case: Case) -> float:
    """Return for how much longer than usual transfers of as many bytes take, in a step of a rank.

    A rank that is late makes the first call after it long, and no other one. Where all calls of a step wait as long,
    this is 0.
    """
    calls = [(max(call.ends_ns) - max(call.starts_ns), call.bytes) for call in case.report.collectives if call.bytes]
    if len(calls) < _MIN_CALLS:
        return 0.0
    usual = sorted(time_ns / num_bytes for time_ns, num_bytes in calls)[len(calls) // 4]
    longer_ns = sum(max(0.0, time_ns - _TIMES_USUAL * usual * num_bytes) for time_ns, num_bytes in calls)
    return longer_ns / max(1, case.num_steps)


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
        f"For {100 * share:.0f} % of this time the wait for stragglers is unknown: analyze the traces of all ranks "
        "together."
    )


def small_kernels(case: Case) -> Finding | None:
    """Many small kernels, each of which takes the host longer than the device; on the CPU many small operators."""
    if not case.has_device:
        return _small_operators(case)
    num_kernels, host_ns, empty_ns = case.small_kernels()
    return case.finding(
        "small_kernels",
        lambda _: f"Small kernels: {format_rate(num_kernels)} kernels/step finish faster than they launch",
        "Fuse them: model = torch.compile(model), and fused=True for an optimizer that has it. Work on one large "
        "tensor instead of many small ones in a loop.",
        cost_ns=min(host_ns, case.without_work_ns()) + empty_ns,
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
        lambda cost_ns: (
            f"Small operators: {format_rate(num_items)} .item() calls/step take {format_ms(cost_ns)} ms"
            if num_items
            else f"Small operators: {format_rate(num_calls)}/step under 10 us, {format_ms(cost_ns)} ms/step"
        ),
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
    return (f"{of_library[0]}, a library, reads them. " if of_library else "") + _ADVICE_ON_ITEMS


def idle_gaps(case: Case) -> Finding | None:
    """The device is idle though its next kernel was launched."""
    idle_ns, graphs_ns = case.device_ns("idle_other_ns"), case.before_graphs_ns()
    is_in_graphs = 2 * graphs_ns > idle_ns
    return case.finding(
        "idle_gaps",
        lambda cost_ns: (
            f"GPU idle gaps between kernels of a CUDA graph: {format_ms(cost_ns)} ms/step"
            if is_in_graphs
            else f"Unexplained GPU idle gaps: {format_ms(cost_ns)} ms/step"
        ),
        _ADVICE_ON_GRAPHS if is_in_graphs else _ADVICE_ON_GAPS,
        cost_ns=min(idle_ns, case.idle_ns()),
        fix=None,
        evidence={"idle_other_ns": idle_ns, "before_graphs_ns": graphs_ns or None},
        is_estimate=True,  # kernels that were launched before the recording may run in them
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
    return case.finding(
        "exposed_copy",
        lambda cost_ns: f"Exposed copy: host-to-device transfers take {format_ms(cost_ns)} ms/step",
        ("" if is_pinned else _ADVICE_ON_PINNING) + _ADVICE_ON_COPIES,
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
        "float32 matmuls without tensor cores",
        'Call torch.set_float32_matmul_precision("high") to use TF32 tensor cores, or run the model under '
        'torch.autocast("cuda", dtype=torch.bfloat16), which is faster still.',
        names,
    )


def float64(case: Case) -> Finding | None:
    """Products of matrices, or other kernels, in float64."""
    advice = f"{_seen_in_float64(case)}{_ADVICE_ON_FLOAT64}"
    if not case.has_device:
        return _float64_on_host(case, f"{advice} A vector register holds twice as many float32 values.")
    advice += " Most GPUs compute float64 at a fraction of their float32 speed."
    rows = _named(case.report.kernels, _FLOAT64)
    found = _slow_products(case, "float64", "float64 compute", advice, rows, _introduced_at(case))
    return found and replace(found, where=replace(found.where, lines=_lines_to_float64(case)))


def _float64_on_host(case: Case, advice: str) -> Finding | None:
    where = case.where(case.stops("double"))
    return case.finding(
        "float64",
        lambda cost_ns: add_detail(f"float64 compute: {format_ms(cost_ns)} ms/step", _introduced_at(case)),
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


def _introduced_at(case: Case) -> str:
    """Return the first line that makes something float64, for titles; "" where it is unknown."""
    return next((f", introduced at {note.line}" for note in _in_float64(case) if note.line is not None), "")


def _lines_to_float64(case: Case, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The lines that make something float64, and then others."""
    lines = [note.line for note in _in_float64(case) if note.line is not None]
    return tuple(dict.fromkeys((*lines, *others)))[:MOST_NAMED]


def _slow_products(
    case: Case, kind: str, diagnosis: str, advice: str, rows: list[KernelRow], detail: str = ""
) -> Finding | None:
    """Return the finding on kernels that would be twice as fast with half the bits."""
    cost_ns = sum(row.total_ns for row in rows) / max(1, len(case.report.steps))
    return case.finding(
        kind,
        lambda cost_ns: add_detail(f"{diagnosis}: {format_ms(cost_ns)} ms/step", detail),
        advice,
        cost_ns=cost_ns,
        fix=Fix(Change(faster={row.name: _TIMES_AS_FAST for row in rows})),
        where=Where(spans=tuple(row.name for row in rows[:MOST_NAMED])),
        evidence={"kernels_ns": cost_ns, "num_calls": sum(row.num_calls for row in rows) / len(case.report.steps)},
    )


def _named(rows: Iterable[KernelRow], pattern: str, *, unless: str | None = None) -> list[KernelRow]:
    found = [row for row in rows if row.kind == "compute" and re.search(pattern, row.name)]
    return [row for row in found if unless is None or not re.search(unless, row.name)]
