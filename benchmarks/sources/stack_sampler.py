"""benchmarks: by how much the stack sampler slows a torch step of about 3 ms down, in time and in processor time."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, islice

from benchmarks.interleaved import Candidate, Loop, measure
from benchmarks.suite import Measure, SuiteResult
from kinetoscope import Profiler, ProfilerAction, StackSampler
from kinetoscope.testing import MemoryTraceHandler

_OFF = "off"
_INTERVALS_MS = {_OFF: None, "off, once more (the noise)": None, "every 10 ms": 10.0, "every 20 ms": 20.0}
_STEP_MS = 3
_WIDTH, _NUM_LAYERS = 128, 12
_TITLE = "the stack sampler beside a step of torch: slow-down"


def run(*, quick: bool) -> SuiteResult:
    """Measures a small training loop under a Profiler, without and with the sampler, in turns."""
    try:
        import torch
    except ImportError:
        return SuiteResult(
            suite="stack_sampler", title=_TITLE, measures=[], notes=["torch is not installed: left out."]
        )
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measured(quick)
    finally:
        torch.set_num_threads(num_threads)


def _measured(quick: bool) -> SuiteResult:
    step = _step()
    processor_ns: dict[str, list[float]] = defaultdict(list)
    candidates = [
        Candidate(name, partial(_round, step, interval_ms, processor_ns[name]), over=_OFF)
        for name, interval_ms in _INTERVALS_MS.items()
    ]
    timings = measure(candidates, rounds=3 if quick else 40, round_ms=100 if quick else 500, collect_garbage=True)
    usual_ns = statistics.median(processor_ns[_OFF])
    measures = []
    for name in list(_INTERVALS_MS)[1:]:
        processor = statistics.median(processor_ns[name]) / usual_ns - 1
        measures.append(Measure(name, 100 * timings.slow_down(name, _OFF), "%"))
        measures.append(Measure(f"{name}, processor time", 100 * processor, "%"))
    return SuiteResult(
        suite="stack_sampler",
        title=f"{_TITLE} (a step: {timings.median_ns(_OFF) / 1e6:.1f} ms)",
        measures=measures,
        times_ns=timings.summary(),
    )


@contextmanager
def _round(step: Callable[[], object], interval_ms: float | None, processor_ns: list[float]) -> Iterator[Loop]:
    sources = [] if interval_ms is None else [StackSampler(interval_ms=interval_ms)]
    profiler = Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), sources=sources, live_folder=False)
    with profiler:
        batches = profiler.batches(count())
        next(batches)

        def loop(num_steps: int) -> int:
            processor, begin = time.process_time_ns(), time.perf_counter_ns()
            for _ in islice(batches, num_steps):
                step()
            took = time.perf_counter_ns() - begin
            processor_ns.append((time.process_time_ns() - processor) / num_steps)
            return took

        yield loop


def _step() -> Callable[[], object]:
    """A step of a small model, with so large a batch that it takes about 3 ms."""
    import torch

    layers = [layer for _ in range(_NUM_LAYERS) for layer in (torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(16, _WIDTH)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    while True:
        took_ms = min(_timed_ms(step) for _ in range(5))
        if took_ms > _STEP_MS * 0.75:
            return step
        batch = torch.randn(2 * len(batch), _WIDTH)


def _timed_ms(step: Callable[[], object]) -> float:
    begin = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - begin)
