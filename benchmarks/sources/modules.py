"""benchmarks: cost of recording module calls, per call and in a step of a transformer, compared with other ways.

The other ways are torch's empty global hooks, which any profiler by hooks pays; hooks that synchronize and read the
clock, as profilers by hooks do that time GPUs; and torch.profiler with stacks.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any

from benchmarks.interleaved import Candidate, Loop, Timings, measure
from benchmarks.recording.profilers import recorder_name
from benchmarks.suite import Measure, SuiteResult
from benchmarks.torch_suite import on_one_thread
from kinetoscope import ModuleCalls, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

_PLAIN, _OURS, _EMPTY_HOOKS = "without", "module calls", "torch's empty global hooks"
_CLOCK_HOOKS, _WITH_STACK = "global hooks that synchronize and read the clock", "torch.profiler with_stack"
_NUM_LAYERS, _WIDTH, _NUM_TOKENS = 12, 64, 32


def run(*, quick: bool) -> SuiteResult:
    """Measure all ways in turns, for an empty module and for a step of a transformer."""
    return on_one_thread("modules", "recording of module calls", lambda: _measured(quick))


def _measured(quick: bool) -> SuiteResult:
    ways = {_PLAIN: ExitStack, _OURS: _recording, _EMPTY_HOOKS: _empty_hooks, _CLOCK_HOOKS: _clock_hooks}
    calls = [Candidate(name, _in(way, _call_empty_module), over=_PLAIN) for name, way in ways.items()]
    call_times = measure(calls, rounds=8 if quick else 60, round_ms=2 if quick else 10)
    steps = [
        Candidate(name, _in(way, _train), over=_PLAIN) for name, way in (*ways.items(), (_WITH_STACK, _with_stack))
    ]
    step_times = measure(steps, rounds=3 if quick else 40, round_ms=30 if quick else 150, collect_garbage=True)
    costs = {call.name: call_times.median_cost_ns(call) for call in calls}
    return SuiteResult(
        suite="modules",
        title=f"recording of module calls (a step: {step_times.median_ns(_PLAIN) / 1e6:.2f} ms)",
        measures=[
            *(Measure(f"a call, {name}", costs[name], "ns") for name in (_OURS, _EMPTY_HOOKS, _CLOCK_HOOKS)),
            Measure("a call: ours / torch's empty global hooks", costs[_OURS] / costs[_EMPTY_HOOKS], "x"),
            *(_slow_down(step.name, step_times) for step in steps[1:]),
        ],
        recorder=recorder_name(),
        notes=[
            f"A step: {_NUM_LAYERS} layers of torch's TransformerEncoder, forward, backward and SGD, on one thread."
        ],
        times_ns=step_times.summary(),
    )


def _slow_down(name: str, timings: Timings) -> Measure:
    low, high = timings.slow_down_interval(name, _PLAIN)
    return Measure(
        f"a step, {name}", 100 * timings.slow_down(name, _PLAIN), "%", f"{100 * low:+.1f} to {100 * high:+.1f} %"
    )


def _in(way: Callable[[], AbstractContextManager[Any]], loop: Callable[[int], None]) -> Callable[[], Any]:
    @contextmanager
    def one_round() -> Iterator[Loop]:
        with way():
            yield lambda count: _timed(loop, count)

    return one_round


def _timed(loop: Callable[[int], None], count: int) -> int:
    """Return the CPU time of the thread, which does all the work: other processes on the machine do not count."""
    start_ns = time.thread_time_ns()
    loop(count)
    return time.thread_time_ns() - start_ns


@contextmanager
def _recording() -> Iterator[None]:
    with Profiler(
        lambda state: ProfilerAction.ACTIVE,
        MemoryTraceHandler(),
        sources=[ModuleCalls()],
        strict=True,
        spool_folder=False,
    ) as profiler:
        for _ in profiler.batches(range(1)):
            yield


@contextmanager
def _hooks(before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    from torch.nn.modules import module

    handles = [module.register_module_forward_pre_hook(before), module.register_module_forward_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _empty_hooks() -> AbstractContextManager[None]:
    return _hooks(lambda module, arguments: None, lambda module, arguments, output: None)


def _clock_hooks() -> AbstractContextManager[None]:
    from torch.accelerator import is_available, synchronize

    starts, spent_ns = list[int](), dict[int, int]()

    def now_ns() -> int:
        if is_available():
            synchronize()
        return time.perf_counter_ns()

    def after(module: Any, arguments: Any, output: Any) -> None:
        spent_ns[id(module)] = spent_ns.get(id(module), 0) + now_ns() - starts.pop()

    return _hooks(lambda module, arguments: starts.append(now_ns()), after)


def _with_stack() -> AbstractContextManager[Any]:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], with_stack=True)


def _call_empty_module(count: int) -> None:
    module = _empty_module()
    for _ in range(count):
        module(None)


def _train(count: int) -> None:
    step = _step()
    for _ in range(count):
        step()


@cache
def _empty_module() -> Any:
    from torch import nn

    return nn.Identity()


@cache
def _step() -> Callable[[], None]:
    import torch

    layer = torch.nn.TransformerEncoderLayer(_WIDTH, 4, 2 * _WIDTH, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, _NUM_LAYERS)
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(2, _NUM_TOKENS, _WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step
