"""Costs of the installed Kinetoscope, as one JSON object of seconds by name.

It uses only names that old and new versions have in common.
"""

import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

_START_S = time.process_time()
import kinetoscope  # noqa: E402

_IMPORT_S = time.process_time() - _START_S
_ROUNDS = 30
_NUM_CALLS = 5_000
_NUM_WINDOWS = 20
_NUM_SPANS = 400_000
_ACTIVE, _SKIP = kinetoscope.ProfilerAction.ACTIVE, kinetoscope.ProfilerAction.SKIP


def main() -> None:
    """Print the costs; the arguments are a folder to write to, and traces to merge and to load."""
    folder, *traces = map(Path, sys.argv[1:])
    gc.disable()
    costs = {
        "import": _IMPORT_S,
        "active span": _span_s(_ACTIVE),
        "skipped span": _span_s(_SKIP),
        "skipped step": _skipped_step_s(),
        "step that closes a window": _closing_step_s(folder / "windows"),
        "save of 400,000 spans, CPU": _save_s(folder / "saved"),
        "save of 50,000 operators with torch's, CPU": _save_operators_s(folder / "operators"),
        "merge of 4 ranks, CPU": _command_s("merge", *traces, "-o", folder / "merged.json"),
        "merge of 4 ranks to .json.gz, CPU": _command_s("merge", *traces, "-o", folder / "merged.json.gz"),
        "load without its cache, CPU": _load_s(folder / "merged.json"),
        "summary of 4 ranks, CPU": _command_s("summary", *traces),
    }
    print(json.dumps(costs))


def _best_s(task: Callable[[], object]) -> float:
    """Return the seconds per call of the fastest round."""
    rounds = []
    for _ in range(_ROUNDS):
        start_ns = time.perf_counter_ns()
        task()
        rounds.append(time.perf_counter_ns() - start_ns)
    return min(rounds) / _NUM_CALLS / 1e9


def _span_s(action: kinetoscope.ProfilerAction) -> float:
    profiler = kinetoscope.Profiler(lambda state: action)
    marker = profiler.marker("span")

    def enter(span: AbstractContextManager[object]) -> None:
        for _ in range(_NUM_CALLS):
            with span:
                pass

    cost_s = 0.0
    with profiler:
        for _ in profiler.batches(range(1)):
            cost_s = _best_s(lambda: enter(marker))
    return cost_s


def _skipped_step_s() -> float:
    with kinetoscope.Profiler(lambda state: _SKIP) as profiler:

        def loop() -> None:
            for _ in profiler.batches(range(_NUM_CALLS)):
                pass

        def loop_alone() -> None:
            for _ in range(_NUM_CALLS):
                pass

        return _best_s(loop) - _best_s(loop_alone)


def _closing_step_s(folder: Path) -> float:
    """Return the median time of a step at whose end a window of 1,000 spans closes."""
    schedule = kinetoscope.cyclic_schedule(skip_first=0, wait=1, warmup=0, active=1, repeat=_NUM_WINDOWS)
    handler = kinetoscope.JSONTraceHandler(str(folder))
    times = []
    with kinetoscope.Profiler(schedule, handler) as profiler:
        marker = profiler.marker("span")
        start_ns = 0
        for batch in profiler.batches(range(2 * _NUM_WINDOWS)):
            if start_ns and batch % 2 == 0:
                times.append(time.perf_counter_ns() - start_ns)
            if batch % 2:
                for _ in range(1000):
                    with marker:
                        pass
                time.sleep(0.01)
            start_ns = time.perf_counter_ns()
    return statistics.median(times) / 1e9


def _save_s(folder: Path) -> float:
    """Return the CPU time from the last span until the process has its trace, jobs included."""
    handler = kinetoscope.JSONTraceHandler(str(folder))
    with kinetoscope.Profiler(lambda state: _ACTIVE, handler) as profiler:
        marker = profiler.marker("span")
        for _ in profiler.batches(range(1)):
            for _ in range(_NUM_SPANS):
                with marker:
                    pass
            start_s = _cpu_s()
    return _cpu_s() - start_s


def _save_operators_s(folder: Path) -> float:
    """Return the CPU time of the end of a run that `kinetoscope.profile` records, its merge included."""
    import torch

    with kinetoscope.profile(folder, schedule=lambda state: _ACTIVE, quiet=True) as profiler:
        for _ in profiler.batches(range(1)):
            ones = torch.ones(1)
            for _ in range(50_000):
                ones = ones * 1.0
            start_s = _cpu_s()
    return _cpu_s() - start_s


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _load_s(trace: Path) -> float:
    start_s = time.process_time()
    kinetoscope.load(trace, cache=False).spans.collect()
    return time.process_time() - start_s


def _command_s(*arguments: str | Path) -> float:
    start_s = _cpu_s()
    subprocess.run(
        [sys.executable, "-m", "kinetoscope", *map(str, arguments)], check=True, capture_output=True, timeout=600
    )
    return _cpu_s() - start_s


if __name__ == "__main__":
    main()
