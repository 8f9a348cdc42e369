"""Modules that a step enters, and the cost of a method in place of the rebound one of counted steps.

Run it with ``python -m benchmarks.recording.step_calls``.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import kinetoscope
from kinetoscope import Profiler, ProfilerAction, cyclic_schedule
from kinetoscope.autoinstrument.instrumentation import AutoInstrumentation, ProcessRuns
from kinetoscope.autoinstrument.settings import AutoSettings
from kinetoscope.testing import MemoryTraceHandler

_ROOT = str(Path(kinetoscope.__file__).parent) + "/"
_NUM_ROUNDS, _NUM_CALLS = 60, 20_000


def count_modules(function: Callable[[], object]) -> tuple[int, int]:
    """Return how many of our modules a call enters, and how often one of them from another file."""
    entered, num_entries = set[str](), 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal num_entries
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(_ROOT) and frame.f_back is not None:
            entered.add(file)
            num_entries += frame.f_back.f_code.co_filename != file

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(entered), num_entries


def count_modules_of_steps() -> dict[str, tuple[int, int]]:
    """Return the counts of an active step, of one that saves, and of one under `kinetoscope run`."""
    found = {}
    options: dict[str, Any] = {"quiet": True, "spool_folder": False}
    with Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), **options) as profiler:
        profiler.step()
        found["active step()"] = count_modules(profiler.step)
    saving = cyclic_schedule(skip_first=1, warmup=0, active=1, per="run")
    with Profiler(saving, MemoryTraceHandler(), **options) as profiler:
        profiler.step()
        found["step() that saves a window"] = count_modules(profiler.step)
    found["skipped step under kinetoscope run"] = _count_modules_under_run()
    return found


def _count_modules_under_run() -> tuple[int, int]:
    import torch
    from torch.utils.data import DataLoader

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = iter(DataLoader([torch.ones(2)] * 20, batch_size=None))

    def step() -> None:
        model(next(loader)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        training = AutoInstrumentation(ProcessRuns(AutoSettings(out=folder, after=10**9)).make, print)
        training.watch()
        for _ in range(5):
            step()
        counts = count_modules(step)
        training.end()
    return counts


class _RebindByMethod:
    """Counted steps with a method in place of the attribute that is rebound."""

    def __init__(self, count_step: Callable[[int, int], bool]) -> None:
        self._is_on, self._count_step = True, count_step

    def end_step(self, samples: int, tokens: int) -> bool:
        return self._is_on and self._count_step(samples, tokens)


def compare_rebound_method() -> dict[str, float]:
    """Return the nanoseconds of a skipped step in a tight loop, the least of many rounds, with either."""
    schedule = cyclic_schedule(skip_first=10**9, per="run")
    times: dict[str, list[float]] = {"rebound": [], "method": []}
    with Profiler(schedule, MemoryTraceHandler(), quiet=True) as profiler:
        for _ in range(3):
            profiler.step()
        counted: Any = profiler._counted  # pyright: ignore[reportPrivateUsage]
        ways: dict[str, Any] = {"rebound": counted, "method": _RebindByMethod(counted.end_step)}
        for _ in range(_NUM_ROUNDS):
            for name, way in ways.items():
                profiler._counted = way  # pyright: ignore[reportPrivateUsage]
                times[name].append(_time_ns(profiler.step))
        profiler._counted = counted  # pyright: ignore[reportPrivateUsage]
    return {name: min(rounds) for name, rounds in times.items()} | {"median": statistics.median(times["rebound"])}


def _time_ns(call: Callable[[], object]) -> float:
    start_ns = time.perf_counter_ns()
    for _ in range(_NUM_CALLS):
        call()
    return (time.perf_counter_ns() - start_ns) / _NUM_CALLS


if __name__ == "__main__":
    for name, (num_modules, num_entries) in count_modules_of_steps().items():
        print(f"{name}: {num_modules} modules, {num_entries} entries")
    times = compare_rebound_method()
    print(f"skipped step, rebound: {times['rebound']:.0f} ns; with a method: {times['method']:.0f} ns", end="")
    print(f", {100 * (times['method'] / times['rebound'] - 1):.0f} % more")
