"""Summaries of traces, computed in the process that reads each, so that little is left to be joined."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import polars as pl

from kinetoscope.analysis.call_sums import CallSums
from kinetoscope.analysis.compressed_pickle import pack
from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.cpu.operators import operator_calls, operator_sums
from kinetoscope.analysis.cpu.throughput import LoopCounts, read_loop_counts
from kinetoscope.analysis.findings.evidence.window import WindowEvidence, find_window_evidence
from kinetoscope.analysis.gpu.flops import WindowWork, estimate_window_work
from kinetoscope.analysis.gpu.kernels import kernel_sums
from kinetoscope.analysis.memory.memory import MemoryRow, memory_rows
from kinetoscope.analysis.modules.calls import ModuleCalls, find_module_calls
from kinetoscope.analysis.modules.module_rows import sum_modules
from kinetoscope.analysis.ranks.clock_alignment import TimeShift
from kinetoscope.analysis.ranks.collectives import MOMENTS, find_collective_calls
from kinetoscope.analysis.ranks.ranks import RankRow, rank_rows
from kinetoscope.analysis.replay.dependencies import Dependencies, find_dependencies
from kinetoscope.analysis.steps.call_times_by_step import times_by_step
from kinetoscope.analysis.steps.cpu_time_by_step import are_recorded_by_torch
from kinetoscope.analysis.steps.step_work import WorkSums, work_by_step
from kinetoscope.analysis.steps.steps import StepRow, num_devices, step_rows
from kinetoscope.analysis.steps.time_breakdown import SequenceBreakdown, sequence_breakdowns, step_to_cpu_ratio
from kinetoscope.analysis.windows.incomplete_traces import (
    drop_unfinished_step,
    is_filtered,
    last_whole_step,
    truncate_after_step,
)
from kinetoscope.analysis.windows.span_names import ANNOTATIONS
from kinetoscope.analysis.windows.step_spans import suggest_step_names
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.analysis.windows.window_reader import read_recorded_windows
from kinetoscope.core.clock.file_clock import FileClock
from kinetoscope.core.text.wording import sanitize
from kinetoscope.errors import SettingsError
from kinetoscope.frames.load import load_one
from kinetoscope.frames.run_state import WrittenTrace
from kinetoscope.frames.trace import Trace

_MAX_SIMILAR_NAMES = 2


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The part of a run to analyze.

    ``ranks`` are None for all; ``last_s`` selects the last seconds that each rank recorded; ``attempt`` is that of a
    run that was restarted, None for the last. ``step`` is the name of the spans that are steps, if not the usual. Steps
    after ``last_step`` are left out. A replay can make ``operators`` faster.
    """

    step: str | None = None
    ranks: frozenset[int] | None = None
    last_s: float | None = None
    last_step: int | None = None
    operators: frozenset[str] = frozenset()
    attempt: int | None = None

    def __post_init__(self) -> None:
        """Raise `SettingsError` for a negative length."""
        if self.last_s is not None and not self.last_s > 0:
            raise SettingsError(f"Cannot analyze the last {self.last_s} s of a run: pass more than 0 seconds.")


@dataclass(frozen=True)
class WindowSummary:
    """Rows and sums of one window of one rank.

    ``calls`` are its collectives. Where it is not replayed, there are neither ``dependencies`` nor ``evidence``, and
    the ``sums`` are packed: then it is one of many. ``has_torch_events`` is true if it has operators, or work of a
    device, and ``has_only_loader_operators`` if all its operators build batches. ``unknown_device_events`` and
    ``inferred_from`` are as in `RankWindow`, ``is_filtered`` is the result of the function.
    """

    rank: int | None
    num_spans: int
    begin_ns: int
    ranks: list[RankRow]
    steps: list[StepRow]
    parts: list[SequenceBreakdown]
    calls: pl.DataFrame
    memory: list[MemoryRow]
    modules: pl.DataFrame | None
    has_torch_events: bool
    has_only_loader_operators: bool
    unknown_device_events: Mapping[str, int]
    is_filtered: bool
    inferred_from: str | None
    work_sums: WorkSums
    sums: CallSums | bytes
    dependencies: Dependencies | None
    evidence: WindowEvidence | None

    @property
    def is_partial(self) -> bool:
        """True if there is unreadable work of devices or of the loop: then nothing is concluded from the window."""
        return bool(self.unknown_device_events) or self.is_filtered

    def shifted(self, shift: TimeShift) -> "WindowSummary":
        """Return the summary on another clock."""
        if shift == TimeShift():
            return self
        graph = self.dependencies
        return replace(
            self,
            begin_ns=shift.apply(self.begin_ns),
            steps=[replace(row, begin_ns=shift.apply(row.begin_ns)) for row in self.steps],
            calls=self.calls.with_columns(map(shift.expression, MOMENTS)),
            dependencies=graph and replace(graph, nodes=graph.nodes.with_columns(shift.expression("time"))),
        )


@dataclass(frozen=True, kw_only=True)
class SummedTrace:
    """The summary of one trace. A merged one is of several ``ranks``, also those whose windows were not selected.

    ``step_name`` is the requested name of steps. Without steps, ``similar_names`` are names of spans like it, or of
    spans that recur. ``last_whole_step`` is that of a truncated file, and ``last_step`` the last one that is used of
    all files then.
    """

    name: str
    step_name: str | None
    similar_names: tuple[str, ...]
    rank: int | None
    ranks: tuple[int, ...]
    world_size: int | None
    run_name: str | None
    hosts: tuple[str, ...]
    notes: tuple[str, ...]
    is_cut: bool
    last_whole_step: int | None
    last_step: int | None
    written: WrittenTrace
    clock: FileClock | None
    counted: LoopCounts
    windows: list[WindowSummary] = field(repr=False)

    @property
    def is_incomplete(self) -> bool:
        """True if the file is truncated, and none of its steps can be used."""
        return self.is_cut and self.last_step is None


def last_common_step(traces: Iterable[SummedTrace]) -> int | None:
    """Return the last step that all truncated files have; None without such files, or if one has no whole step."""
    last = [trace.last_whole_step for trace in traces if trace.is_cut]
    known = [step for step in last if step is not None]
    return min(known) if known and len(known) == len(last) else None


def sum_trace(
    source: Trace | str,
    since_ns: int | None = None,
    *,
    selection: Selection,
    cache: bool = True,
    with_graph: bool = True,
    on_bytes: Callable[[int], None] | None = None,
) -> SummedTrace:
    """Return the summary of a trace, or of the file of that name.

    Args:
        source: a trace, or the name of its file.
        since_ns: with it, spans that began earlier are left out.
        selection: the part of the run to analyze.
        cache: whether the trace is read from the user's cache, and written to it.
        with_graph: whether the window will be replayed.
        on_bytes: called now and then with the number of bytes read since.
    """
    trace = _open_trace(source, cache=cache, on_bytes=on_bytes)
    windows = read_recorded_windows(trace if since_ns is None else trace.since(since_ns), selection.step)
    windows = [drop_unfinished_step(window) for window in windows]
    last_whole = last_whole_step(windows) if trace.is_cut else None
    if selection.last_step is not None:
        windows = [truncate_after_step(window, selection.last_step) for window in windows]
    parts = [window.trace for window in windows]
    wanted = [window for window in windows if selection.ranks is None or window.rank in selection.ranks]
    return SummedTrace(
        name=trace.label if trace.is_anonymous else trace.name,
        step_name=selection.step,
        similar_names=_suggest_names(selection.step, windows),
        rank=trace.rank,
        ranks=tuple(trace.ranks),
        world_size=trace.world_size,
        run_name=next((one.run_name for one in parts if one.run_name), None),
        hosts=tuple(one.host for one in parts if one.host),
        notes=(*trace.notes, *(f"{sanitize(trace.label)}: {repair}" for repair in trace.repairs)),
        is_cut=trace.is_cut,
        last_whole_step=last_whole,
        last_step=selection.last_step,
        written=WrittenTrace(trace.name, trace.starts, trace.is_recovered),
        clock=trace.clock,
        counted=read_loop_counts(trace),
        windows=[_sum_window(window, selection.operators if with_graph else None) for window in wanted],
    )


def _suggest_names(step_name: str | None, windows: Iterable[RankWindow]) -> tuple[str, ...]:
    """Return names for ``--step``, without numbers, if there is no step: those like ``step_name``, or that recur."""
    windows = list(windows)
    if any(len(window.steps) for window in windows):
        return ()
    if step_name is None:
        return suggest_step_names(window.cpu.in_category(*ANNOTATIONS) for window in windows)
    names = {
        name.rstrip("0123456789#_ ") for window in windows for name in window.cpu_spans["name"].drop_nulls().unique()
    }
    return tuple(get_close_matches(step_name, sorted(names), _MAX_SIMILAR_NAMES))


def read_end_of_recording(
    source: Trace | str, *, cache: bool = True, on_bytes: Callable[[int], None] | None = None
) -> tuple[int | None, int | None]:
    """Return the rank of a trace, and the unix ns of the end of its last span."""
    trace = _open_trace(source, cache=cache, on_bytes=on_bytes)
    return trace.rank, trace.spans.select((pl.col("ts") + pl.col("dur")).max()).collect().item()


def starts_of_last_seconds(recorded: Sequence[tuple[int | None, int | None]], last_s: float) -> list[int | None]:
    """Return the unix ns from which each trace is analyzed, ``last_s`` before the last span of its rank.

    None where that is unknown. ``recorded`` has the result of `read_end_of_recording` for each trace.
    """
    last: dict[int | None, int] = {}
    for rank, until_ns in recorded:
        if until_ns is not None:
            last[rank] = max(until_ns, last.get(rank, until_ns))
    return [last[rank] - round(last_s * 1e9) if rank in last else None for rank, _ in recorded]


def _open_trace(source: Trace | str, *, cache: bool, on_bytes: Callable[[int], None] | None) -> Trace:
    return source if isinstance(source, Trace) else load_one(source, cache=cache, on_bytes=on_bytes)


def _sum_window(window: RankWindow, faster: frozenset[str] | None) -> WindowSummary:
    loop, work, modules = TrainingLoop(window), estimate_window_work(window), find_module_calls(window)
    step_work = work_by_step(window, work)
    steps = step_rows(window, loop, step_work)
    filtered = is_filtered(window)
    parts = sequence_breakdowns(window, steps, is_partial=bool(window.unknown_device_events) or filtered)
    sums = _call_sums(window, work, modules, sum(one.steps_ns for one in parts))
    module_sums = None if modules is None else sum_modules(modules, work)
    del work  # the most memory is in use further down
    return WindowSummary(
        rank=window.rank,
        num_spans=len(window.cpu_spans) + len(window.device),
        begin_ns=min((int(frame["begin"][0]) for frame in (window.cpu_spans, window.device) if len(frame)), default=0),
        ranks=rank_rows(window),
        steps=steps,
        parts=parts,
        calls=find_collective_calls(window),
        memory=memory_rows(window, loop, modules),
        modules=module_sums,
        has_torch_events=len(window.cpu.operators) > 0 or len(window.device) > 0,
        has_only_loader_operators=len(window.cpu.operators) > 0 and not loop.python_time.has_loop_operators,
        unknown_device_events=window.unknown_device_events,
        is_filtered=filtered,
        inferred_from=window.inferred_from,
        work_sums=_work_sums(window, loop, step_work),
        sums=pack(sums) if faster is None else sums,
        dependencies=None if faster is None else find_dependencies(window, loop, faster, step_to_cpu_ratio(parts)),
        evidence=None if faster is None else find_window_evidence(window, loop, modules),
    )


def _call_sums(window: RankWindow, work: WindowWork, modules: ModuleCalls | None, steps_ns: float) -> CallSums:
    calls = operator_calls(window)
    by_step = times_by_step(window, calls, modules, steps_ns)
    return CallSums(operator_sums(calls, work), kernel_sums(window, work), by_step)


def _work_sums(window: RankWindow, loop: TrainingLoop, step_work: pl.DataFrame) -> WorkSums:
    if not len(window.steps):
        return WorkSums()
    return WorkSums.of(step_work, are_recorded_by_torch(loop), num_devices(window))
