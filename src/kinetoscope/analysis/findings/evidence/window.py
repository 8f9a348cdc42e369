"""Evidence of one window of one rank that its rows lack: stalls of the loop, samples of stacks, and the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from kinetoscope.analysis.cpu.library_calls import library_calls, lines_in_every_sample
from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.cpu.phases import OPTIMIZER
from kinetoscope.analysis.findings.evidence.window_modules import find_module_costs
from kinetoscope.analysis.findings.evidence.window_stalls import find_items, find_stall_spans, sum_samples, sum_stalls
from kinetoscope.analysis.gpu.idle import idle_before_graphs_ns
from kinetoscope.analysis.modules.calls import ModuleCalls
from kinetoscope.analysis.ranks.contention import MIN_WALL_NS
from kinetoscope.analysis.ranks.phase_stragglers import find_markers
from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.kernel_names import COPY_TO_DEVICE
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import FLOAT64, PROCESSORS
from kinetoscope.frames.trace import Trace

_LAUNCHES = r"^(cuda|hip)(LaunchKernel|MemcpyAsync|MemsetAsync)|^hipExtLaunch|^cuLaunchKernel"
_MIN_READINGS = 3
_MAX_COUNTER = 2**62
"""A damaged trace may have larger numbers."""


class Float64Source(NamedTuple):
    """A ``tensor``, a ``module``, or torch's ``default``, in float64; ``line`` introduces it, None if unknown."""

    name: str
    kind: str
    location: str
    line: str | None


@dataclass(frozen=True)
class WindowLoader:
    """The DataLoader of a window."""

    num_workers: int | None
    """0 where the loop builds its batches; None if unknown."""
    settings: Mapping[str, Any]
    """Settings, as far as the source `LoaderFacts` recorded them."""
    epoch_start_share: float | None
    """The share of first batches of epochs in all waits for data."""


@dataclass(frozen=True)
class WindowCpu:
    """Use of the CPUs in a window, and the loop's operators."""

    has_operators: bool
    num_operators: int
    """The number on all threads."""
    is_sampled: bool
    """True if stacks of the loop's thread were sampled."""
    counters: Mapping[str, int]
    """The sampler's note on CPU time and limits."""
    machine_percent: float | None
    """The use of all cores of the machine."""
    process_percent: float | None
    """The process's use of one core."""
    is_too_short: bool
    """True if a longer recording would show the use of the machine."""
    required_python: Mapping[str, int]
    """Nanoseconds of Python that operators of each name require before them."""
    num_items: int
    """Values that the loop reads with ``.item()``, without those that operators read."""
    num_items_of_optimizer: int
    """The number of them in an optimizer's step."""


@dataclass(frozen=True)
class WindowGpu:
    """The devices of a window."""

    bytes_by_device: Mapping[int, int]
    majors_by_device: Mapping[int, int]
    """The first number of the compute capability."""
    exposed_to_device_ns: float
    """Time with copies from the CPU and no kernel; the mean of several devices."""
    graph_gaps_ns: int
    """Idle time before kernels of CUDA graphs without a visible reason."""
    lost_share: float
    """The share of launches without an event on a device, as in filtered traces."""


@dataclass(frozen=True)
class WindowEvidence:
    """Evidence of one window of one rank that its rows lack."""

    rank: int | None
    stalls: pl.DataFrame
    """Spans in which the loop's thread may stall, as `sum_stalls` returns them.

    Kinds are ``gc``, ``compile``, ``profiler``, ``sync``, ``copy``, ``data``, ``data_sync``, ``python``, ``blocked``,
    ``double``, ``small``, ``item``, ``loop``, and `CPU_OPERATORS`: the GPU's idle time in those.
    """
    sampled: pl.DataFrame
    """Samples in these spans, as `sum_samples` returns them: of ``data`` those of workers, if there are any.

    In samples of ``python`` the thread ran, in those of ``blocked`` it waited. In those of ``loop`` it ran where no
    operators were recorded.
    """
    library_calls: pl.DataFrame
    """The result of the function `library_calls`."""
    lines_in_every_sample: frozenset[str]
    loader: WindowLoader
    cpu: WindowCpu
    gpu: WindowGpu
    float64: tuple[Float64Source, ...]
    """Tensors and modules in float64."""
    group_titles: Mapping[str, str]
    """Descriptions of process groups by name, such as ``tp``."""
    markers: pl.DataFrame
    """The result of `find_markers`."""
    module_costs: pl.DataFrame
    """The result of `find_module_costs`."""


def find_window_evidence(window: RankWindow, loop: TrainingLoop, modules: ModuleCalls | None) -> WindowEvidence:
    """Return the evidence of one window.

    Args:
        window: the window.
        loop: its training loop.
        modules: its calls of modules, if they were recorded.
    """
    items = find_items(window)
    spans = find_stall_spans(window, loop, items)
    notes = [_in_float64(note) for note in window.instants.args_of(FLOAT64)]
    return WindowEvidence(
        rank=window.rank,
        stalls=sum_stalls(window, spans),
        sampled=sum_samples(window, loop, spans),
        library_calls=library_calls(window, spans),
        lines_in_every_sample=lines_in_every_sample(window),
        loader=WindowLoader(loop.loader.num_workers, loop.loader.settings, loop.loader.epoch_start_share),
        cpu=_find_cpu(window, loop, items),
        gpu=_find_gpu(window),
        float64=tuple(note for note in notes if note is not None),
        group_titles=window.trace.group_titles,
        markers=find_markers(loop),
        module_costs=find_module_costs(modules, spans),
    )


def _find_cpu(window: RankWindow, loop: TrainingLoop, items: pl.DataFrame) -> WindowCpu:
    counters = _counters(window.instants.args_of(PROCESSORS))
    return WindowCpu(
        has_operators=loop.python_time.has_loop_operators,
        num_operators=len(window.cpu.operators),
        is_sampled=len(loop.python_time.samples[0]) > 0,
        counters=counters,
        machine_percent=_machine_percent(window, counters),
        process_percent=_mean_percent(window, "process"),
        is_too_short=len(_readings(window)) > 0 or bool(counters),
        required_python=loop.python_time.required_python,
        num_items=len(items),
        num_items_of_optimizer=_num_of_optimizer(items, loop) if len(items) else 0,
    )


def _find_gpu(window: RankWindow) -> WindowGpu:
    return WindowGpu(
        bytes_by_device=_numbers_of_devices(window.trace, "totalGlobalMem"),
        majors_by_device=_numbers_of_devices(window.trace, "computeMajor"),
        exposed_to_device_ns=_exposed_to_device_ns(window),
        graph_gaps_ns=sum(map(idle_before_graphs_ns, window.devices.frames)),
        lost_share=_lost_share(window),
    )


def _counters(notes: list[dict[str, Any]]) -> dict[str, int]:
    """Return the numbers of the last note, without impossible ones."""
    last = notes[-1] if notes else {}
    return {name: value for name, value in last.items() if isinstance(value, int) and 0 <= value < _MAX_COUNTER}


def _in_float64(note: dict[str, Any]) -> Float64Source | None:
    name, kind, location, line = (note.get(key) for key in ("holder", "kind", "location", "line"))
    if not (isinstance(name, str) and isinstance(kind, str) and isinstance(location, str)):
        return None
    return Float64Source(name, kind, location, line if isinstance(line, str) else None)


def _num_of_optimizer(items: pl.DataFrame, loop: TrainingLoop) -> int:
    """Return how many of these are in an optimizer's own step, not in a closure that it calls."""
    pieces = loop.phases.pieces
    of_optimizer = IntervalUnion(filter_rows(pieces, pieces["phase"] == OPTIMIZER))
    return int((of_optimizer.overlap_ns(items["begin"], items["end"]) > 0).sum())


def _exposed_to_device_ns(window: RankWindow) -> float:
    exposed_ns = 0
    for device, time in zip(window.devices.frames, window.devices.times, strict=True):
        is_copy = device["name"].str.contains(COPY_TO_DEVICE)
        if is_copy.any():
            copies = filter_rows(device[["begin", "end"]], is_copy)
            exposed_ns += time.kernels.union(copies).total_ns - time.kernels.total_ns
    return exposed_ns / max(1, len(window.devices.frames))


def _lost_share(window: RankWindow) -> float:
    if not len(window.device):
        return 0.0
    calls = window.cpu.runtime_calls
    is_launch = (calls["correlation"] > 0) & calls["name"].str.contains(_LAUNCHES)
    share: Any = (~window.has_launched).filter(is_launch).mean()
    return share or 0.0


def _machine_percent(window: RankWindow, counters: dict[str, int]) -> float | None:
    """Return the use of the machine's cores in the whole window; else the mean of the system profiler's readings."""
    busy_ns, wall_ns, cores = (counters.get(name) for name in ("busy_ns", "wall_ns", "cores"))
    if busy_ns is None or not cores or (wall_ns or 0) < MIN_WALL_NS:
        return _mean_percent(window, "cpu")
    return min(100.0, 100 * busy_ns / ((wall_ns or 1) * cores))  # Linux counts in ticks, and may count one too many


def _mean_percent(window: RankWindow, name: str) -> float | None:
    """Return the mean reading of the system profiler; None of too few readings.

    The first reading of older recordings is a meaningless 0.
    """
    readings = _readings(window)
    values = filter_rows(readings, (readings["name"] == name) & (readings["series"] == "percent")).sort("ts")["value"]
    values = values[1:] if len(values) and not values[0] else values
    mean: Any = values.mean() if len(values) >= _MIN_READINGS else None
    return mean


def _readings(window: RankWindow) -> pl.DataFrame:
    """Return the system profiler's readings of CPU use, of the machine and of the process."""
    counters = window.instants.counters[["ts", "name", "series", "value"]]
    return filter_rows(counters, counters["name"].is_in(["cpu", "process"]))


def _numbers_of_devices(trace: Trace, name: str) -> dict[int, int]:
    """Return a number that Kineto recorded of each device, without impossible ones."""
    numbers = {device: about.get(name) for device, about in trace.devices.items()}
    return {device: number for device, number in numbers.items() if isinstance(number, int) and 0 < number < 2**63}
