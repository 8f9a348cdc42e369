"""Cost of the profiler between real steps that it skips, where caches are cold."""

import contextlib
import io
import itertools
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.data.dataloader import _BaseDataLoaderIter

import kinetoscope
from benchmarks.interleaved import make_statement, measure
from benchmarks.recording.profilers import recorder_name
from benchmarks.suite import Measure, SuiteResult
from kinetoscope import cyclic_schedule
from kinetoscope.autoinstrument.instrumentation import AutoInstrumentation, ProcessRuns
from kinetoscope.autoinstrument.settings import AutoSettings
from kinetoscope.native import native
from kinetoscope.pulse.layout import FILE_BYTES, Phase
from kinetoscope.recording.profiler import active_profiler

_LOOPS = {"0.3 ms": (32, 2, 8), "3 ms": (384, 4, 64), "30 ms": (1024, 6, 256)}
"""Width, layers and batch of models whose steps take about so long."""

_NUM_CALLS = 3000
_MIN_CALLS = 300
_MAX_S = 12.0


def run(*, quick: bool) -> SuiteResult:
    """Time the call itself in the loop, less an empty call that is timed in the same way."""
    torch.set_num_threads(1)
    measures = []
    for name, shape in _LOOPS.items():
        step, optimizer = _make_training_step(*shape)
        step_ns = _median_step_ns(step, 20)
        most = max(_MIN_CALLS, int(_MAX_S * 1e9 / step_ns))
        count = _MIN_CALLS if quick else min(_NUM_CALLS, most)
        empty_ns = _measure_call_ns(step, lambda: None, count)
        with tempfile.TemporaryDirectory() as folder:
            never = cyclic_schedule(skip_first=10**9, per="run")
            with kinetoscope.profile(folder, schedule=never, quiet=True) as profiler:
                cost_ns = _measure_call_ns(step, profiler.step, count) - empty_ns
            with kinetoscope.profile(folder, schedule=never, quiet=True, slow_steps=True) as profiler:
                compared_ns = _measure_call_ns(step, profiler.step, count) - empty_ns
            with _hooks_without_work(optimizer) as call:
                plain_ns = _measure_call_ns(step, call, count)
                with kinetoscope.profile(folder, schedule=never, quiet=True) as profiler:
                    hooks_ns = _measure_call_ns(step, call, count, profiler.step) - plain_ns
                with _autoinstrumented(step, call, Path(folder) / "run"):
                    unmodified_ns = _measure_call_ns(step, call, count) - plain_ns
        detail = f"a step takes {step_ns / 1e6:.2f} ms; median of {count:,}"
        measures += [
            Measure(f"step() with its pulse, skipped, in a loop of {name}", cost_ns / 1e3, "us", detail),
            Measure(f"step() that looks for slow steps, likewise: {name}", compared_ns / 1e3, "us"),
            Measure(f"hooks of a fetch, a backward and an optimizer's step, likewise: {name}", hooks_ns / 1e3, "us"),
            Measure(f"these and the step under kinetoscope run: {name}", unmodified_ns / 1e3, "us"),
        ]
    rounds = 8 if quick else 80
    measures += [_measure_whole_loop(rounds), _measure_slow_steps(rounds // 2), *_measure_writer()]
    return SuiteResult(
        suite="step_in_loop",
        title="one call between real steps",
        measures=measures,
        recorder=recorder_name(),
        times_ns={},
    )


def _measure_whole_loop(rounds: int) -> Measure:
    """Return the additional time per step of the whole loop of 0.3 ms with a DataLoader."""
    (step, _), never = _make_training_step(*_LOOPS["0.3 ms"]), cyclic_schedule(skip_first=10**9, per="run")

    @contextlib.contextmanager
    def plain() -> Iterator[Mapping[str, Any]]:
        loader = torch.utils.data.DataLoader(range(10**7), batch_size=None)
        yield {"fetch": iter(loader).__next__, "step": step, "end": lambda: None}

    @contextlib.contextmanager
    def profiled() -> Iterator[Mapping[str, Any]]:
        with (
            plain() as variables,
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stderr(io.StringIO()),  # its end reports that nothing was recorded
            kinetoscope.profile(folder, schedule=never) as profiler,
        ):
            yield {**variables, "end": profiler.step}

    text = "fetch()\nstep()\nend()"
    candidates = [make_statement("plain", text, plain), make_statement("profiled", text, profiled)]
    timings = measure(candidates, rounds=rounds, round_ms=150, collect_garbage=True)
    low, high = (100 * end for end in timings.slow_down_interval("profiled", "plain"))
    slow_down = 100 * timings.slow_down("profiled", "plain")
    name = "the whole loop of 0.3 ms, with a DataLoader, is slower by"
    return Measure(name, slow_down, "%", f"between {low:.1f} and {high:.1f} %; {rounds} rounds, interleaved")


def _measure_slow_steps(rounds: int) -> Measure:
    """Return the additional time per step of the whole loop of 3 ms with the detection and sampling of slow steps."""
    (step, _), never = _make_training_step(*_LOOPS["3 ms"]), cyclic_schedule(skip_first=10**9, per="run")

    @contextlib.contextmanager
    def profiled(*, slow_steps: bool) -> Iterator[Mapping[str, Any]]:
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stderr(io.StringIO()),
            kinetoscope.profile(folder, schedule=never, slow_steps=slow_steps) as profiler,
        ):
            yield {"step": step, "end": profiler.step}

    both = {"with": partial(profiled, slow_steps=True), "without": partial(profiled, slow_steps=False)}
    candidates = [make_statement(name, "step()\nend()", setting) for name, setting in both.items()]
    timings = measure(candidates, rounds=rounds, round_ms=1000, collect_garbage=True)
    low, high = (100 * end for end in timings.slow_down_interval("with", "without"))
    slow_down = 100 * timings.slow_down("with", "without")
    name = "the whole loop of 3 ms that looks for slow steps is slower by"
    return Measure(name, slow_down, "%", f"between {low:.1f} and {high:.1f} %; {rounds} rounds, interleaved")


def _measure_writer() -> list[Measure]:
    """Return the cost of the pulse itself in a tight loop: the end of a step and the start of a phase."""
    writer = native.PulseWriter(bytearray(FILE_BYTES), None)
    calls = {"end of a step": lambda: writer.end_step(7, 0), "begin of a phase": lambda: writer.enter(Phase.FORWARD)}
    return [
        Measure(f"pulse alone: {name}", min(timeit.repeat(call, number=20_000, repeat=15)) / 20_000 * 1e6, "us")
        for name, call in calls.items()
    ]


def _make_training_step(width: int, num_layers: int, batch: int) -> tuple[Callable[[], None], torch.optim.Optimizer]:
    layers = [layer for _ in range(num_layers) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        model(samples).sum().backward()
        optimizer.step()

    return step, optimizer


@contextlib.contextmanager
def _hooks_without_work(optimizer: torch.optim.Optimizer) -> Iterator[Callable[[], object]]:
    """Yield a fetch, a backward pass and an optimizer's step without their work, which leaves the hooks of each."""
    autograd: Any = torch.autograd
    kind: Any = _BaseDataLoaderIter
    engine, fetches = autograd._engine_run_backward, kind.__next__
    hooks: tuple[dict[int, Any], ...] = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)
    autograd._engine_run_backward = lambda *tensors, **options: engine(*tensors, **options) if tensors else 0
    kind.__next__ = lambda iterator: 0
    iterator = object.__new__(kind)

    def call() -> None:
        iterator.__next__()
        autograd._engine_run_backward()
        for hook in itertools.chain.from_iterable(each.values() for each in hooks):
            hook(optimizer, (), {})

    try:
        yield call
    finally:
        autograd._engine_run_backward, kind.__next__ = engine, fetches


@contextlib.contextmanager
def _autoinstrumented(step: Callable[[], None], call: Callable[[], object], folder: Path) -> Iterator[None]:
    """Keep an uninstrumented training run active that skips all its steps."""
    hooks: tuple[dict[int, Any], ...] = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)
    before = [dict(each) for each in hooks]
    settings = AutoSettings(out=str(folder), after=10**9)
    training = AutoInstrumentation(ProcessRuns(settings).make, print)
    training.watch()
    for _ in range(3):
        call()  # a fetch comes first, so fetches end steps
        step()
    try:
        yield
    finally:
        with contextlib.redirect_stderr(io.StringIO()):  # it reports that nothing was recorded
            active = active_profiler()
            assert active is not None
            active.close()
        for each, kept in zip(hooks, before, strict=True):
            each.clear()
            each.update(kept)


def _median_step_ns(step: Callable[[], None], count: int) -> float:
    times = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - begin)
    return median(times)


def _measure_call_ns(
    step: Callable[[], None], call: Callable[[], object], count: int, end_step: Callable[[], object] = lambda: None
) -> float:
    """Return the median time of a call after each step."""
    now, times = time.perf_counter_ns, []
    for _ in range(count):
        step()
        begin = now()
        call()
        times.append(now() - begin)
        end_step()
    return median(times)
