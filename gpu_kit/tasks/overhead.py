"""The cost of each way to profile in a training step of some milliseconds; all ways take turns in one process."""

import contextlib
import io
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.interleaved import Timings

import kinetoscope
from gpu_kit.faults.layers import make_transformer
from gpu_kit.tasks.task import TaskRun
from kinetoscope.autoinstrument.instrumentation import AutoInstrumentation, ProcessRuns
from kinetoscope.autoinstrument.settings import AutoSettings

NUM_BLOCKS = {5: 4, 20: 12, 100: 24}
"""Blocks of the transformer: the CPU launches kernels for about half of a short step, and a fifth of a long one."""

MAX_ROWS = 1 << 16
NUM_WARM_UP = 3
MIN_ROUNDS, MAX_ROUNDS = 2, 12
_ROUND_S = 0.25  # of one way's timed steps in a round
_RESERVE_S = 3.0

EndStep = Callable[[], object]
OpenLoop = Callable[[Path], AbstractContextManager[EndStep]]


def main() -> None:
    run = TaskRun()
    target_ms = int(run.names[0])
    torch.manual_seed(0)
    step, step_ns = make_step(target_ms, run.device)
    num_steps = max(4, round(_ROUND_S * 1e9 / step_ns))
    run.add(target_ms=target_ms, calibrated_ns=step_ns, steps_per_round=num_steps)
    rounds: dict[str, list[float]] = {name: [] for name in LOOPS}
    longest_s = 0.0
    for number in range(MIN_ROUNDS if run.cpu else MAX_ROUNDS):
        begin = time.monotonic()
        for name in random.Random(number).sample(list(LOOPS), len(LOOPS)):
            with tempfile.TemporaryDirectory() as folder:
                rounds[name].append(_measure_ns(LOOPS[name], Path(folder), step, num_steps, run.device))
        run.add(**_summarize(rounds))
        longest_s = max(longest_s, time.monotonic() - begin)
        if number + 1 >= MIN_ROUNDS and run.seconds_left() < longest_s + _RESERVE_S:
            break


def _summarize(rounds: dict[str, list[float]]) -> dict[str, Any]:
    timings = Timings(rounds)
    slow_down = {name: timings.slow_down(name, "plain") for name in LOOPS if name != "plain"}
    interval = {name: timings.slow_down_interval(name, "plain") for name in slow_down}
    medians = {name: timings.median_ns(name) for name in LOOPS}
    return {"rounds_ns": rounds, "median_ns": medians, "slow_down": slow_down, "interval": interval}


# -- the step


def make_step(target_ms: int, device: str) -> tuple[Callable[[], None], float]:
    """Make a training step that takes about so long; return it with its time in ns."""
    width, length, rows = (1024, 256, 1) if device == "cuda" else (64, 16, 1)
    num_blocks = NUM_BLOCKS[target_ms] if device == "cuda" else max(1, target_ms // 5)
    model = make_transformer(width, num_blocks, device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)

    def make_step_of_rows(num_rows: int) -> Callable[[], None]:
        inputs = torch.randn(num_rows, length, width, device=device)

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()

        return step

    step_ns = _measure_short_ns(make_step_of_rows(rows), device)
    while step_ns < target_ms * 0.8e6 and rows < MAX_ROWS:
        rows = min(MAX_ROWS, max(rows + 1, round(rows * min(4.0, target_ms * 1e6 / step_ns))))
        step_ns = _measure_short_ns(make_step_of_rows(rows), device)
    return make_step_of_rows(rows), step_ns


def _measure_short_ns(step: Callable[[], None], device: str) -> float:
    for _ in range(3):
        step()
    return time_steps(step, lambda: None, 4, device)


def time_steps(step: Callable[[], None], end_step: EndStep, num_steps: int, device: str) -> float:
    """Return the time of a step in ns, from an idle device to an idle device."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    begin = time.perf_counter_ns()
    for _ in range(num_steps):
        step()
        end_step()
    synchronize()
    return (time.perf_counter_ns() - begin) / num_steps


def _measure_ns(open_loop: OpenLoop, folder: Path, step: Callable[[], None], num_steps: int, device: str) -> float:
    with contextlib.redirect_stderr(io.StringIO()), open_loop(folder) as end_step:  # a run reports its end there
        for _ in range(NUM_WARM_UP):
            step()
            end_step()
        return time_steps(step, end_step, num_steps, device)


# -- the ways to profile it


@contextlib.contextmanager
def _plain(folder: Path) -> Iterator[EndStep]:
    yield lambda: None


@contextlib.contextmanager
def _run_outside_of_window(folder: Path) -> Iterator[EndStep]:
    """Run as under ``kinetoscope run``, which finds the steps itself and records only their times."""
    settings = AutoSettings(out=str(folder / "run"), after=10**9)
    training = AutoInstrumentation(ProcessRuns(settings).make, print)
    training.watch()
    try:
        yield lambda: None
    finally:
        training.end()


@contextlib.contextmanager
def _window(folder: Path, **options: Any) -> Iterator[EndStep]:
    schedule = kinetoscope.cyclic_schedule(warmup=1, active=10_000, per="run")
    with kinetoscope.profile(folder / "run", schedule=schedule, quiet=True, **options) as profiler:
        yield profiler.step


@contextlib.contextmanager
def _torch(folder: Path) -> Iterator[EndStep]:
    """Record with torch.profiler, with the options that `kinetoscope.profile` has by default."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=10_000)
    with torch.profiler.profile(schedule=schedule, profile_memory=True, with_flops=True) as profiler:
        yield profiler.step


LOOPS: dict[str, OpenLoop] = {
    "plain": _plain,
    "plain once more": _plain,
    "kinetoscope run, outside of its window": _run_outside_of_window,
    "kinetoscope, in its window": _window,
    "kinetoscope, in its window, with diagnose": partial(_window, diagnose=True),
    "torch.profiler, with memory and FLOPs": _torch,
}

if __name__ == "__main__":
    main()
