"""Slowdown of a training step of 3 ms by sources, each alone and all of `diagnose=True` together.

Every candidate runs the same loop under a recording profiler; only the sources differ. The loop without sources runs
twice, which shows the noise.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain, repeat
from typing import Any

import kinetoscope
from benchmarks.interleaved import Candidate, Loop, Timings, measure
from benchmarks.recording.profilers import recorder_name
from benchmarks.suite import Measure, SuiteResult
from benchmarks.torch_suite import on_one_thread
from kinetoscope import Float64Tensors, GrowingMemory, Profiler, ProfilerAction, cyclic_schedule
from kinetoscope.testing import MemoryTraceHandler

_STEP_NS = 3_000_000
_OFF, _OFF_AGAIN = "no sources", "no sources, once more (the noise)"
_ALL = "all of diagnose=True"
_WIDTH, _BATCH_SIZE = 128, 64
_WINDOW = 5  # batches of each window with looks


def run(*, quick: bool) -> SuiteResult:
    """Measure the loop without sources, with each, and with all of them, in one interleaved run."""
    return on_one_thread("sources", _TITLE, lambda: _measure(quick))


_TITLE = "a step with sources: slow-down"


def _measure(quick: bool) -> SuiteResult:
    together: list[Any] = kinetoscope.profile(torch=False, system=False, diagnose=True).run.sources
    tried: dict[str, list[Any]] = {_OFF: [], _OFF_AGAIN: [], **{_format_name(source): [source] for source in together}}
    tried[_ALL] = together
    candidates = [Candidate(name, _make_round(sources), over=_OFF) for name, sources in tried.items()]
    rounds, round_ms = (3, 15) if quick else (200, 150)
    timings = measure(candidates, rounds=rounds, round_ms=round_ms, collect_garbage=True)
    return SuiteResult(
        suite="sources",
        title=f"{_TITLE} (a step: {timings.median_ns(_OFF) / 1e6:.2f} ms)",
        measures=[*(_make_slowdown(candidate, timings) for candidate in candidates[1:]), _measure_scans(rounds)],
        recorder=recorder_name(),
        notes=[
            "Median over the rounds of the ratio to the loop without sources, and its 95 % interval. A window opens",
            "before each round; the looks at memory, two in a window, are not in these times.",
        ],
        times_ns=timings.summary(),
    )


def _make_slowdown(candidate: Candidate, timings: Timings) -> Measure:
    low, high = timings.slow_down_interval(candidate.name, candidate.over)
    detail = f"{100 * low:+.1f} to {100 * high:+.1f} %; {timings.median_cost_ns(candidate) / 1e3:+.1f} us a step"
    return Measure(candidate.name, 100 * timings.slow_down(candidate.name, candidate.over), "%", detail)


def _measure_scans(num_windows: int) -> Measure:
    """Return the time in which `GrowingMemory` and `Float64Tensors` scan the loop's tensors at the ends of a window."""
    handler = MemoryTraceHandler()
    windows = cyclic_schedule(skip_first=0, wait=0, warmup=0, active=_WINDOW, repeat=0)
    with Profiler(windows, handler, sources=[GrowingMemory(), Float64Tensors()], spool_folder=False) as profiler:
        _train(profiler, _make_step(), _WINDOW * num_windows)
    scans = [event for event in handler.events("kinetoscope") if event.name == "kinetoscope/scan live tensors"]
    took_us = [((look.end_ns or 0) - look.begin_ns) / 1e3 for look in scans]
    return Measure("a scan of live tensors, median", statistics.median(took_us), "us", f"of {len(scans)}")


def _format_name(source: Any) -> str:
    interval_ms = getattr(source, "interval_ms", None)
    return type(source).__name__ + (f", every {interval_ms:g} ms" if interval_ms else "")


def _make_round(sources: list[Any]) -> Callable[[], Any]:
    @contextmanager
    def open_round() -> Iterator[Loop]:
        profiler = Profiler(
            lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), sources=sources, strict=True, spool_folder=False
        )
        step = _make_step()
        with profiler:
            yield lambda count: _train(profiler, step, count)

    return open_round


def _train(profiler: Profiler, step: Callable[[Any], object], count: int) -> int:
    loader = _make_loader(count)
    begin = time.perf_counter_ns()
    for batch in profiler.batches(loader):
        step(batch)
    return time.perf_counter_ns() - begin


def _make_loader(count: int) -> Any:
    """Return a DataLoader of that many batches, which costs little itself."""
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return repeat(_make_batch(), count)

    return DataLoader(Batches(), batch_size=None)


@cache
def _make_batch() -> Any:
    import torch

    return torch.randn(_BATCH_SIZE, _WIDTH)


@cache
def _make_step() -> Callable[[Any], object]:
    """Return a training step of about 3 ms: forward, backward, optimizer."""
    num_layers = 2
    while (took_ns := _measure_step(step := _make_step_of_depth(num_layers))) < 0.9 * _STEP_NS:
        num_layers = max(num_layers + 1, round(num_layers * _STEP_NS / took_ns))
    return step


def _make_step_of_depth(num_layers: int) -> Callable[[Any], object]:
    import torch

    torch.manual_seed(0)
    layers = [[torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU()] for _ in range(num_layers)]
    model = torch.nn.Sequential(*chain.from_iterable(layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> object:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        return optimizer.step()

    return step


def _measure_step(step: Callable[[Any], object]) -> int:
    def once() -> int:
        begin = time.perf_counter_ns()
        step(_make_batch())
        return time.perf_counter_ns() - begin

    return min(once() for _ in range(20))
