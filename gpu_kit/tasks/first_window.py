"""The time that the first window of a process takes from training: to open it, to close it, and at the end."""

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

import torch

import kinetoscope
from gpu_kit.tasks.overhead import make_step
from gpu_kit.tasks.task import TaskRun

SKIPPED, RECORDED, AFTER = 10, 10, 10
OPENING = range(SKIPPED - 1, SKIPPED + 2)
"""The steps at whose end the profiler prepares and starts, and the first recorded one."""

CLOSING = range(SKIPPED + RECORDED, SKIPPED + RECORDED + 2)
"""The last recorded step, at whose end the window closes, and the one after it."""


def main() -> None:
    run = TaskRun()
    (name,) = run.names
    step, _ = make_step(5, run.device)
    begin = time.perf_counter_ns()
    context = {"kinetoscope": _kinetoscope, "torch": _torch}[name](run.folder / "run")
    steps: list[int] = []
    with context as profiler:
        entered = time.perf_counter_ns()
        for _ in range(SKIPPED + 1 + RECORDED + AFTER):
            start = time.perf_counter_ns()
            step()
            if run.device == "cuda":
                torch.cuda.synchronize()
            profiler.step()
            steps.append(time.perf_counter_ns() - start)
        leaving = time.perf_counter_ns()
    left = time.perf_counter_ns()
    typical = median(steps[:SKIPPED])
    run.add(
        steps_ns=steps,
        typical_ns=typical,
        enter_ns=entered - begin,
        open_ns=sum(max(0, steps[index] - typical) for index in OPENING),
        recorded_step_ns=median(steps[SKIPPED + 2 : SKIPPED + RECORDED]),
        close_ns=sum(max(0, steps[index] - typical) for index in CLOSING),
        exit_ns=left - leaving,
    )
    shutil.rmtree(run.folder / "run")  # only its times are of interest


def _kinetoscope(folder: Path) -> AbstractContextManager[Any]:
    schedule = kinetoscope.cyclic_schedule(skip_first=SKIPPED, warmup=1, active=RECORDED, per="run")
    return kinetoscope.profile(folder, schedule=schedule, quiet=True)


def _torch(folder: Path) -> AbstractContextManager[Any]:
    save: Callable[[Any], object] = torch.profiler.tensorboard_trace_handler(str(folder))
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=SKIPPED, warmup=1, active=RECORDED, repeat=1),
        on_trace_ready=save,
        profile_memory=True,
        with_flops=True,
    )


if __name__ == "__main__":
    main()
