"""Cost of `kinetoscope.profile` in a plain training loop, compared with torch.profiler alone.

Loops with different profilers take turns. A step is from one batch to the next, and the median of the steps of a loop
counts, so neither the start of a recording nor its end is in it. Torch computes on the CPU, with one thread. The CPU
time of the loop's thread is measured too, since it depends less on other load.

Rows without some sources show the cost of each part. Both traces must have the same operators, allocations and FLOPs.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import kinetoscope
from benchmarks.recording.profilers import recorder_name
from benchmarks.suite import Measure, SuiteResult
from benchmarks.torch.same_trace import compare_contents
from benchmarks.torch_suite import on_one_thread

_NO_PROFILER = "no profiler"
_NO_PROFILER_AGAIN = "no profiler, once more (the noise)"
_WIDTH, _NUM_LAYERS, _BATCH_SIZE = 128, 6, 32
_FIRST_TIMED = 6
_NUM_COMPARED = 20


def run(*, quick: bool) -> SuiteResult:
    """Measure the loop with no profiler, under torch's, and under ours within its window and outside of it."""
    return on_one_thread("plain_loop", "a plain loop: a step is slower by", lambda: _measure(quick))


def _measure(quick: bool) -> SuiteResult:
    num_rounds, num_steps = (2, 30) if quick else (20, 120)
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in _PROFILERS}
    for _ in range(num_rounds):
        for name in random.sample(list(_PROFILERS), len(_PROFILERS)):
            with tempfile.TemporaryDirectory() as folder:
                rounds[name].append(_step_ms(_PROFILERS[name](folder), num_steps))
    elapsed, processor = ({name: [step[column] for step in of] for name, of in rounds.items()} for column in (0, 1))
    base = statistics.median(elapsed[_NO_PROFILER])
    return SuiteResult(
        suite="plain_loop",
        title=f"a plain loop: a step of {base:.2f} ms is slower by",
        measures=[*_compare_steps(elapsed, ""), *_compare_steps(processor, ", processor time"), *_compare_contents()],
        recorder=recorder_name(),
        times_ns={**_summarize_times(elapsed, ""), **_summarize_times(processor, ", processor time")},
    )


def _compare_steps(steps_ms: dict[str, list[float]], what: str) -> Iterator[Measure]:
    """Return the median share by which a step was longer than in the loop without a profiler of the same round."""
    plain = steps_ms[_NO_PROFILER]
    for name in list(_PROFILERS)[1:]:
        part = statistics.median(profiled / base - 1 for profiled, base in zip(steps_ms[name], plain, strict=True))
        detail = f"{statistics.median(plain):.2f} ms became {statistics.median(steps_ms[name]):.2f}"
        yield Measure(f"{name}{what}", 100 * part, "%", detail)


def _summarize_times(steps_ms: dict[str, list[float]], what: str) -> dict[str, dict[str, float]]:
    return {
        f"{name}{what}": {"best": 1e6 * min(times), "median": 1e6 * statistics.median(times)}
        for name, times in steps_ms.items()
    }


def _compare_contents() -> Iterator[Measure]:
    """Compare the traces of a short window."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = Path(folder) / "torch.json"
        _step_ms(
            _torch_profiler(folder, on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(theirs))),
            _NUM_COMPARED,
        )
        _step_ms(_profile_in_window(folder), _NUM_COMPARED)
        yield from compare_contents(Path(folder) / "run" / "traces" / "merged_trace.json.gz", theirs)


def _torch_profiler(folder: str, **options: Any) -> AbstractContextManager[Any]:
    import torch.profiler

    return _make_profile(torch.profiler, **options)


def _kinetoscope_torch(folder: str) -> AbstractContextManager[Any]:
    import kinetoscope.torch

    return _make_profile(kinetoscope.torch)


def _make_profile(module: Any, **options: Any) -> AbstractContextManager[Any]:
    return module.profile(
        activities=[module.ProfilerActivity.CPU],
        schedule=module.schedule(wait=0, warmup=1, active=10_000),
        profile_memory=True,
        with_flops=True,
        **options,
    )


def _profile_in_window(folder: str, **options: Any) -> AbstractContextManager[Any]:
    schedule = kinetoscope.cyclic_schedule(warmup=1, active=10_000, per="run")
    return kinetoscope.profile(f"{folder}/run", schedule=schedule, quiet=True, **options)


def _profile_outside_window(folder: str) -> AbstractContextManager[Any]:
    schedule = kinetoscope.cyclic_schedule(skip_first=1_000_000, per="run")
    return kinetoscope.profile(f"{folder}/run", schedule=schedule, quiet=True)


_PROFILERS: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    _NO_PROFILER: lambda folder: nullcontext(),
    _NO_PROFILER_AGAIN: lambda folder: nullcontext(),
    "torch.profiler, with memory and FLOPs as ours": _torch_profiler,
    "kinetoscope.torch, with the same options": _kinetoscope_torch,
    "kinetoscope, in its window": _profile_in_window,
    "kinetoscope, in its window, without torch's operators": lambda folder: _profile_in_window(folder, torch=False),
    "kinetoscope, in its window, without torch's operators and the machine's counters": lambda folder: (
        _profile_in_window(folder, torch=False, system=False)
    ),
    "kinetoscope, in its window, with diagnose=True": lambda folder: _profile_in_window(folder, diagnose=True),
    "kinetoscope, outside of its window": _profile_outside_window,
}


def _step_ms(profiler: AbstractContextManager[Any], num_steps: int) -> tuple[float, float]:
    """Return the median time of a step of one loop, and of the processor time of its thread."""
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(_NUM_LAYERS) for layer in (torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = torch.utils.data.TensorDataset(torch.randn(num_steps * _BATCH_SIZE, _WIDTH))
    starts: list[tuple[float, float]] = []
    with profiler as active:
        for (batch,) in _batches(active, torch.utils.data.DataLoader(data, batch_size=_BATCH_SIZE)):
            starts.append((time.perf_counter(), time.thread_time()))
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    timed = starts[_FIRST_TIMED:]
    steps = [(end[0] - begin[0], end[1] - begin[1]) for begin, end in pairwise(timed)]
    elapsed, processor = (1e3 * statistics.median(times) for times in zip(*steps, strict=True))
    return elapsed, processor


def _batches(profiler: Any, loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the loader's batches, as a loop under this profiler does."""
    if hasattr(profiler, "batches"):
        yield from profiler.batches(loader)
        return
    for batch in loader:
        yield batch
        if profiler is not None:
            profiler.step()
