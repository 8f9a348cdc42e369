"""Expected results of an analysis of a simulated run, row by row under the names of the contract.

They come from the simulator's state: the launch of a kernel, the call of a rank's part, the waits of the loop's thread,
the planted faults. Times are true time, that is rank 0's clock; without drift, durations are the same by every clock.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainsim import kineto
from trainsim.cpu_truth import cpu_row, intervals_of
from trainsim.engine import HostSpan, Memory, QueuedSpan, Window
from trainsim.groups import POINT_TO_POINT
from trainsim.intervals import Interval, clip, gaps, length_ns, less_ns, union

if TYPE_CHECKING:
    from trainsim.run import RankRun, SimulatedRun

Row = dict[str, Any]

KERNEL_WAIT_NS = 30_000
MIN_COVERAGE = 0.8
_PRODUCTS = ("aten::mm", "aten::addmm")


class Truth:
    """The rows of every table, each made at its first use."""

    def __init__(self, run: "SimulatedRun") -> None:
        self._run, self._settings = run, run.settings

    @cached_property
    def ranks(self) -> list[Row]:
        """A row per rank: where the time of its device went."""
        return [self._rank_row(rank) for rank in self._run.ranks]

    @cached_property
    def steps(self) -> list[Row]:
        """A row per rank and step, in their order."""
        return [row for rank in self._run.ranks for window in rank.windows for row in self._step_rows(rank, window)]

    @cached_property
    def cycles_ns(self) -> dict[int, list[int]]:
        """Return by rank the time from the first step's start to the last one's end, of each cycle."""
        return {
            rank.rank: [window.steps[-1].end_ns - window.steps[0].begin_ns for window in rank.windows if window.steps]
            for rank in self._run.ranks
        }

    @cached_property
    def collectives(self) -> list[Row]:
        """A row per call that at least one rank has recorded.

        ``num_unnamed`` counts the ranks whose kernel does not say which call it is, and whose launch was not recorded.
        """
        calls: dict[tuple[str, int], list[tuple[int, QueuedSpan]]] = defaultdict(list)
        for rank in self._run.ranks:
            for span in (span for window in rank.windows for span in window.queued if span.kernel.call):
                call = span.kernel.call
                assert call is not None
                calls[call.group, call.sequence].append((rank.rank, span))
        ordered = sorted(calls, key=lambda key: (int(key[0].partition(":")[0]), key))
        return [_call_row(calls[key]) | self._unsaid(calls[key]) for key in ordered]

    def _unsaid(self, parts: list[tuple[int, QueuedSpan]]) -> Row:
        """Return the values of a call that no trace contains."""
        settings = self._settings
        unnamed = [not span.kernel.args and span.launch.window is None for _, span in parts]
        row: Row = {"num_unnamed": sum(unnamed) if settings.has_device else 0}
        if not settings.has_sequence or not settings.has_device:
            row["sequence"] = None
        if not settings.has_shapes and not settings.has_device:
            row |= {"bytes": None, "bandwidth_bytes_per_s": None}
        return row

    @cached_property
    def stragglers(self) -> list[Row]:
        """A row per rank that a fault makes late."""
        return [
            {
                "rank": rank,
                "cause": fault.cause,
                "period": fault.every if fault.every > 1 else None,
                "steps": tuple(step for step in self._recorded_steps() if fault.strikes(rank, step)),
                "cost_ns_per_step": self.waiting_ns_per_step(rank),
                "exposed_cost_ns_per_step": self.waiting_ns_per_step(rank, exposed=True),
            }
            for index, fault in enumerate(self._settings.faults)
            if fault.cause is not None and index not in self._settings.removed
            for rank in fault.ranks
        ]

    def waiting_ns_per_step(self, rank: int, *, exposed: bool = False) -> float:
        """Return the mean wait of the other ranks for one in a step: in the calls that it starts last. Waits in several
        calls at once count once.

        ``exposed`` leaves out the time in which they compute meanwhile.
        """
        waits: defaultdict[int, list[Interval]] = defaultdict(list)
        for row in self.collectives:
            if row["late_rank"] == rank:
                for other in row["starts_ns"].keys() - {rank}:
                    waits[other].append((row["starts_ns"][other], row["starts_ns"][rank]))
        waited_ns = sum(less_ns(waits[other], self._compute[other] if exposed else []) for other in waits)
        waited_ns /= max(1, len(waits))
        return waited_ns / max(1, len(self._recorded_steps()))

    @cached_property
    def _compute(self) -> dict[int, list[Interval]]:
        return {
            rank.rank: union(_of_kind((span for window in rank.windows for span in window.queued), "compute"))
            for rank in self._run.ranks
        }

    @cached_property
    def modules(self) -> dict[tuple[int, str], Row]:
        """A row per rank and module: device time of its kernels in forward, backward and recomputation."""
        rows: dict[tuple[int, str], Row] = {}
        for rank in self._run.ranks:
            for span in (span for window in rank.windows for span in window.queued if span.kernel.module):
                if span.launch.window is not None:
                    name, _, direction = span.kernel.module.partition(" ")
                    row = rows.setdefault((rank.rank, name), dict.fromkeys(("forward", "backward", "recompute"), 0))
                    row[direction] += span.end_ns - span.begin_ns
        return rows

    @cached_property
    def operators(self) -> dict[tuple[str, str], Row]:
        """A row per operator and shape, over all ranks."""
        rows: dict[tuple[str, str], Row] = {}
        durations: dict[tuple[str, str], list[int]] = defaultdict(list)
        own_ns, device_ns = self._own_times(), self._device_times()
        for span in (span for window in self._windows() for span in window.spans if span.category == "cpu_op"):
            key = (span.name, _shapes_of(span))
            durations[key].append(span.end_ns - span.begin_ns)
            row = rows.setdefault(key, {"self_ns": 0, "device_ns": 0})
            row["self_ns"] += own_ns[id(span)]
            row["device_ns"] += device_ns.get(id(span), 0)
        return {key: row | _distribution(durations[key]) | _of_name(key[0], durations) for key, row in rows.items()}

    @cached_property
    def kernels(self) -> dict[str, Row]:
        """A row per kernel or copy, over all ranks."""
        named: dict[str, list[QueuedSpan]] = defaultdict(list)
        for span in (span for window in self._windows() for span in _on_device(window)):
            named[span.kernel.name].append(span)
        return {name: _kernel_row(spans) for name, spans in named.items()}

    @cached_property
    def memory(self) -> list[Row]:
        """A row per rank: how high it went, and what grows."""
        return [self._memory_row(rank) for rank in self._run.ranks if any(window.memory for window in rank.windows)]

    @cached_property
    def findings(self) -> list[str]:
        """The kinds of findings that the planted faults are."""
        settings = self._settings
        present = [fault for index, fault in enumerate(settings.faults) if index not in settings.removed]
        return [fault.finding for fault in present if fault.kind != "leak" or settings.has_memory]

    def _windows(self) -> Iterable[Window]:
        return (window for rank in self._run.ranks for window in rank.windows)

    def _recorded_steps(self) -> list[int]:
        return [step for step in range(self._settings.total_steps) if self._settings.recorded_cycle(step) is not None]

    # -- a rank

    def _rank_row(self, rank: "RankRun") -> Row:
        has_device = self._settings.has_device
        row: Row = {
            "rank": rank.rank,
            "device": rank.device if has_device else None,
            "world_size": self._settings.num_ranks,
            "host": rank.host,
            "device_name": kineto.DEVICE_NAME if has_device else None,
            "num_steps": sum(len(window.steps) for window in rank.windows),
        }
        if not has_device:
            return row | dict.fromkeys(_TIMES)
        parts = [_device_times(_on_device(window)) for window in rank.windows]
        return row | {name: sum(part[name] for part in parts) for name in _TIMES}

    # -- a step

    def _step_rows(self, rank: "RankRun", window: Window) -> list[Row]:
        by_step: dict[int | None, list[HostSpan]] = defaultdict(list)
        device: dict[int | None, list[QueuedSpan]] = defaultdict(list)
        for span in window.spans:
            by_step[span.step].append(span)
        for queued in _on_device(window):
            device[queued.step].append(queued)
        outside = by_step.get(None, [])
        rows = []
        for index, step in enumerate(window.steps):
            number, following = step.step, window.steps[index + 1] if index + 1 < len(window.steps) else None
            before_ns = window.steps[index - 1].end_ns if index else window.begin_ns
            row: Row = {"rank": rank.rank, "step": number, "begin_ns": kineto.START_NS + step.begin_ns}
            row["duration_ns"] = step.end_ns - step.begin_ns
            row |= _gap_row(step, following, outside)
            row |= cpu_row(step, before_ns, by_step[number], outside, window, self._settings)
            next_ns = _first_begin(device.get(following.step, ())) if following else None
            row |= _step_device_row(device.get(number, []), _on_device(window), next_ns, self._settings.has_device)
            row |= _computed_row(by_step[number], device.get(number, []), row, is_last=following is None)
            row["num_launches"] = len({id(queued.launch) for queued in device.get(number, [])})
            row["num_kernels"] = sum(queued.kernel.category == "kernel" for queued in device.get(number, []))
            row["peak_memory_bytes"] = _peak_bytes(step, self._memory(window))
            rows.append(row)
        return rows

    # -- operators

    def _own_times(self) -> dict[int, int]:
        """Return by operator its time without the operators and calls in it."""
        own_ns = {
            id(span): span.end_ns - span.begin_ns
            for window in self._windows()
            for span in window.spans
            if span.category == "cpu_op"
        }
        for span in (span for window in self._windows() for span in window.spans):
            if span.category in ("cpu_op", "cuda_runtime", "user_annotation") and id(span.parent) in own_ns:
                own_ns[id(span.parent)] -= span.end_ns - span.begin_ns
        return own_ns

    def _device_times(self) -> dict[int, int]:
        """Return by operator the time of all launches in it, at any depth."""
        device_ns: dict[int, int] = defaultdict(int)
        for span in (span for window in self._windows() for span in _on_device(window)):
            around = span.launch.parent if span.launch.window is not None else None
            while around is not None:
                device_ns[id(around)] += _length(span)
                around = around.parent
        return device_ns

    # -- memory

    def _memory(self, window: Window) -> list[Memory]:
        """Return the known memory: on the CPU, only allocations of the window, or releases of older memory."""
        if self._settings.has_device or not window.memory:
            return window.memory
        seen: set[int] = set()
        known_bytes = 0
        for event in window.memory:
            known_bytes -= min(0, event.num_bytes) if event.address not in seen else 0
            seen.add(event.address)
        first = window.memory[0]
        less = first.total_bytes - first.num_bytes - known_bytes
        return [event._replace(total_bytes=event.total_bytes - less) for event in window.memory]

    def _memory_row(self, rank: "RankRun") -> Row:
        windows = [self._memory(window) for window in rank.windows]
        events = [event for events in windows for event in events]
        peak = max(events, key=lambda event: event.total_bytes)
        leaks = [fault for fault in self._settings.faults if fault.kind == "leak"]
        growth_bytes = sum(
            fault.num_bytes / fault.every for fault in leaks if not fault.ranks or rank.rank in fault.ranks
        )
        return {
            "rank": rank.rank,
            "device": rank.device if self._settings.has_device else None,
            "peak_bytes": peak.total_bytes,
            "peak_step": peak.step,
            "by_category": _held_at(peak, next(events for events in windows if peak in events)),
            "growth_bytes_per_step": growth_bytes,
            "holders": ("aten::clone",) if growth_bytes else (),
        }


_TIMES = (
    "window_ns",
    "busy_ns",
    "compute_ns",
    "communication_ns",
    "copy_ns",
    "exposed_communication_ns",
    "exposed_copy_ns",
    "idle_ns",
    "idle_host_wait_ns",
    "idle_kernel_wait_ns",
    "idle_other_ns",
)


def _on_device(window: Window) -> list[QueuedSpan]:
    return [span for span in window.queued if span.kernel.kind != "gloo"]


def _interval(span: QueuedSpan) -> Interval:
    assert span.end_ns is not None
    return span.begin_ns, span.end_ns


def _length(span: QueuedSpan) -> int:
    begin_ns, end_ns = _interval(span)
    return end_ns - begin_ns


def _of_kind(spans: Iterable[QueuedSpan], *kinds: str) -> list[Interval]:
    return [_interval(span) for span in spans if span.kernel.kind in kinds]


def _device_times(spans: list[QueuedSpan]) -> Row:
    """Where the time of a device went, from its first event's begin to its last one's end."""
    if not spans:
        return dict.fromkeys(_TIMES, 0)
    busy = union(map(_interval, spans))
    compute, communication, copy = (_of_kind(spans, kind) for kind in ("compute", "communication", "copy"))
    row: Row = {
        "window_ns": busy[-1][1] - busy[0][0],
        "busy_ns": length_ns(busy),
        "compute_ns": length_ns(compute),
        "communication_ns": length_ns(communication),
        "copy_ns": length_ns(copy),
        "exposed_communication_ns": less_ns(communication, compute),
        "exposed_copy_ns": less_ns(copy, [*compute, *communication]),
    }
    row["idle_ns"] = row["window_ns"] - row["busy_ns"]
    return row | _idle_row(spans, gaps(busy))


def _idle_row(spans: list[QueuedSpan], idle: list[Interval]) -> Row:
    row = {"idle_host_wait_ns": 0, "idle_kernel_wait_ns": 0, "idle_other_ns": 0}
    ended_by: dict[int, QueuedSpan] = {}
    for span in spans:
        ended_by.setdefault(span.begin_ns, span)
    for begin_ns, end_ns in idle:
        launch = ended_by[end_ns].launch
        launched_ns = max(begin_ns, launch.begin_ns) if launch.window is not None else None
        rest_ns = end_ns - (begin_ns if launched_ns is None else launched_ns)
        if launched_ns is not None:
            row["idle_host_wait_ns"] += launched_ns - begin_ns
        is_short = launched_ns is not None and rest_ns < KERNEL_WAIT_NS
        row["idle_kernel_wait_ns" if is_short else "idle_other_ns"] += rest_ns
    return row


def _gap_row(step: HostSpan, following: HostSpan | None, outside: list[HostSpan]) -> Row:
    """Return the time between a step and the next one; unknown for the last."""
    if following is None:
        return {"between_ns": None, "evaluation_ns": None}
    begin_ns, end_ns = step.end_ns, following.begin_ns
    evaluation = clip(intervals_of(span for span in outside if span.category == "eval"), begin_ns, end_ns)
    fetch = clip(intervals_of(span for span in outside if span.phase == "data"), begin_ns, end_ns)
    evaluation_ns = length_ns(evaluation)
    return {
        "between_ns": end_ns - begin_ns - evaluation_ns - length_ns(fetch),
        "evaluation_ns": evaluation_ns,
    }


def _first_begin(spans: Sequence[QueuedSpan]) -> int | None:
    return min((span.begin_ns for span in spans), default=None)


def _step_device_row(
    spans: list[QueuedSpan], everything: list[QueuedSpan], next_ns: int | None, has_device: bool
) -> Row:
    """Return the device's work for a step, and its idle time until the next one's work."""
    names = ("busy", "compute", "communication", "exposed_communication", "idle")
    if not has_device:
        return {f"device_{name}_ns": None for name in names}
    times = _device_times(spans)
    row: Row = {f"device_{name}_ns": times[f"{name}_ns"] for name in names}
    begin_ns = _first_begin(spans)
    if begin_ns is None:
        return row | {"device_idle_ns": None, "on_device_ns": None}
    end_ns = next_ns if next_ns is not None else max(_interval(span)[1] for span in everything)
    busy = clip(map(_interval, everything), begin_ns, end_ns)
    return row | {"device_idle_ns": end_ns - begin_ns - length_ns(busy), "on_device_ns": end_ns - begin_ns}


def _computed_row(spans: list[HostSpan], device: list[QueuedSpan], row: Row, *, is_last: bool) -> Row:
    """Return the FLOPs of a step's matmuls, if the shapes of most of their time are recorded, and their rate. On the
    device, a step lasts to the next one's first event, and the last as long as its CPU or its kernels take."""
    shapes = [json.loads(_shapes_of(span) or "[]") for span in spans if span.name in _PRODUCTS]
    products = [span for span in device if "gemm" in span.kernel.name]
    covered_ns = sum(_length(span) for span in products if _has_shapes(span.launch.parent))
    coverage = covered_ns / sum(map(_length, products)) if products else None
    is_reported = row["device_busy_ns"] is None or (coverage is not None and coverage >= MIN_COVERAGE)
    if not shapes or not all(shapes) or not is_reported:
        return {"flops": None, "flops_per_s": None, "mfu_coverage": coverage}
    flops = sum(2 * math.prod(factors[-2]) * factors[-1][-1] for factors in shapes)
    time_ns = row["on_device_ns"] if row["device_busy_ns"] is not None else row["duration_ns"]
    if is_last and row["device_busy_ns"] is not None:
        time_ns = max(row["duration_ns"], _kernels_ns(device))
    return {"flops": flops, "flops_per_s": flops / time_ns * 1e9 if time_ns else None, "mfu_coverage": coverage}


def _kernels_ns(spans: Iterable[QueuedSpan]) -> int:
    return length_ns(_of_kind(spans, "compute", "communication"))


def _has_shapes(operator: HostSpan | None) -> bool:
    return operator is not None and operator.name in _PRODUCTS and bool(_shapes_of(operator))


def _peak_bytes(step: HostSpan, memory: list[Memory]) -> int | None:
    """Return the most that was allocated at any moment of a step, as far as events up to its end say."""
    before = [event.total_bytes for event in memory if event.at_ns <= step.begin_ns]
    inside = [event.total_bytes for event in memory if step.begin_ns <= event.at_ns < step.end_ns]
    return max(before[-1:] + inside, default=None)


def _held_at(peak: Memory, memory: list[Memory]) -> dict[str, int]:
    """Return the live memory after an event, by the phase of the step that allocated it."""
    held: dict[int, tuple[str, int]] = {}
    for event in memory[: memory.index(peak) + 1]:
        held.pop(event.address, None)
        if event.num_bytes > 0:
            held[event.address] = (_phase_of_memory(event), event.num_bytes)
    sums: dict[str, int] = defaultdict(int)
    for phase, num_bytes in held.values():
        sums[phase] += num_bytes
    before = peak.total_bytes - sum(sums.values())
    return sums | ({"before_recording": before} if before else {})


def _phase_of_memory(event: Memory) -> str:
    """Return the allocating phase. Forward is the rest of a step, so it is unknown without a step."""
    phase = _phase_of(event.operator)
    return "other" if phase == "forward" and event.step is None else phase


def _phase_of(span: HostSpan | None) -> str:
    while span is not None and span.phase is None:
        span = span.parent
    return "other" if span is None or span.phase is None else span.phase


def _call_row(parts: list[tuple[int, QueuedSpan]]) -> Row:
    """Return the row of one call. The wait for the last rank and the transfer are unknown for sends and receives, and
    for all-to-alls that do not end together."""
    call = parts[0][1].kernel.call
    assert call is not None
    starts_ns = {rank: span.begin_ns for rank, span in parts}
    ends_ns = {rank: _interval(span)[1] for rank, span in parts}
    last_ns = max(starts_ns.values())
    spread_ns, length_ns = (max(ends_ns.values()) - min(times.values()) for times in (ends_ns, starts_ns))
    is_apart = call.name.startswith("all_to_all") and spread_ns > 0.05 * length_ns
    is_joint = call.name not in POINT_TO_POINT and not is_apart
    transfer_ns = max(ends_ns.values()) - last_ns if is_joint else None
    steps = {span.step for _, span in parts if span.step is not None}
    return {
        "group": call.group,
        "sequence": call.sequence,
        "step": min(steps, default=None),
        "name": call.name,
        "bytes": call.num_bytes,
        "num_ranks": len(parts),
        "starts_ns": starts_ns,
        "ends_ns": ends_ns,
        "skew_ns": last_ns - min(starts_ns.values()) if is_joint else None,
        "transfer_ns": transfer_ns,
        "late_rank": max(starts_ns, key=lambda rank: starts_ns[rank]) if is_joint and len(parts) > 1 else None,
        "bandwidth_bytes_per_s": call.num_bytes * 1e9 / transfer_ns if transfer_ns else None,
    }


def _shapes_of(span: HostSpan) -> str:
    """Return the shapes of an operator's arguments, as they stand in the trace; empty if it has none."""
    return span.args.partition('"Input Dims": ')[2].partition(', "Input type"')[0]


def _kernel_row(spans: list[QueuedSpan]) -> Row:
    kernel = spans[0].kernel
    computed = [span.kernel for span in spans if span.launch.window is not None and span.kernel.flops is not None]
    num_bytes = [span.kernel.num_bytes for span in spans if span.kernel.num_bytes is not None]
    num_bytes += [kernel.least_bytes or 0 for kernel in computed]
    return {
        "kind": kernel.kind,
        "flops": sum(kernel.flops or 0 for kernel in computed) if computed else None,
        "bytes": sum(num_bytes) if num_bytes else None,
        "durations_ns": sorted(map(_length, spans)),
    } | _distribution([_length(span) for span in spans])


def _of_name(name: str, durations_ns: Mapping[tuple[str, str], list[int]]) -> Row:
    """Return the statistics of calls of one name, of any shapes."""
    together = [one for key, own in durations_ns.items() if key[0] == name for one in own]
    found = _distribution(together)
    return {f"name_{one}": found[one] for one in ("num_calls", "p50_ns", "p95_ns")}


def _distribution(durations_ns: list[int]) -> Row:
    """Return the statistics of durations. A percentile is the smallest duration that as many percent do not exceed."""
    ordered = sorted(durations_ns)
    last = len(ordered) - 1
    return {
        "num_calls": len(ordered),
        "total_ns": sum(ordered),
        "mean_ns": sum(ordered) / len(ordered),
        "p50_ns": ordered[min(last, (len(ordered) * 50 + 99) // 100 - 1)],
        "p95_ns": ordered[min(last, (len(ordered) * 95 + 99) // 100 - 1)],
        "max_ns": ordered[last],
    }
