"""Work after a recording: exports, tables, the memory timeline, and a cycle's end."""

import gc
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.suite import Measure, SuiteResult

_MEMORY = {"record_shapes": True, "profile_memory": True, "with_stack": True}
_STEPS_AROUND = 50
_LAST_STEP = _STEPS_AROUND + 20  # of the cycle, which ends in it


def run(*, quick: bool) -> SuiteResult:
    """Measure ours and torch's in turns, on recordings of the same work."""
    import torch.profiler

    import kinetoscope.torch

    modules = {"ours": kinetoscope.torch, "stock": torch.profiler}
    many, few, rounds = (3_000, 3_000, 1) if quick else (128_000, 37_000, 3)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        export = partial(_measure_s, modules, rounds, many)
        plain = export(lambda results: results.export_chrome_trace(f"{folder}/trace.json"))
        packed = export(lambda results: results.export_chrome_trace(f"{folder}/trace.json.gz"))
        tables = export(lambda results: results.key_averages())
        memory = _measure_s(
            modules, rounds, few, lambda results: results.export_memory_timeline(f"{folder}/m.json", "cpu"), _MEMORY
        )
        ends = {name: _measure_cycle_end_s(module, Path(folder), quick) for name, module in modules.items()}
    return SuiteResult(
        suite="torch_results",
        title=f"after the recording, {many} events ({few} for the memory timeline)",
        measures=[
            _make_ratio("export .json / stock's", plain["ours"], plain["stock"]),
            _make_ratio("export .json.gz / our own .json", packed["ours"], plain["ours"]),
            _make_ratio("export .json.gz / stock's", packed["ours"], packed["stock"]),
            _make_ratio("key_averages() / stock's", tables["ours"], tables["stock"]),
            _make_ratio("memory timeline .json / stock's", memory["ours"], memory["stock"]),
            _make_ratio("lost at a cycle's end / stock's", ends["ours"][0], ends["stock"][0]),
            _make_ratio("lost at a cycle's end / Kineto's stop alone", ends["ours"][0], ends["ours"][1]),
        ],
    )


def _make_ratio(name: str, replacement_s: float, other_s: float) -> Measure:
    return Measure(name, replacement_s / other_s, "x", f"{replacement_s * 1e3:.0f} / {other_s * 1e3:.0f} ms")


def _measure_s(
    modules: dict[str, Any],
    rounds: int,
    num_events: int,
    deed: Callable[[Any], object],
    options: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Return the best round of each. Every round has a new recording, since results that were read once are kept."""
    from benchmarks.torch.work import record

    times: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(rounds):
        for name, module in modules.items():
            profiler = record(module, num_events, **(options or {"record_shapes": True}))
            gc.collect()
            begin = time.perf_counter()
            deed(profiler)
            times[name].append(time.perf_counter() - begin)
            del profiler
    return {name: min(found) for name, found in times.items()}


def _measure_cycle_end_s(module: Any, folder: Path, quick: bool) -> tuple[float, float]:
    """Return the extra time of the end of a cycle of ten steps and the 50 steps after it, and Kineto's stop in it.

    Extra means beyond the average time of as many steps before the cycle. Other load on the machine is in both.
    """
    from benchmarks.torch.work import make_training_step

    lost, stops = [], []
    for _ in range(1 if quick else 9):
        step = make_training_step()
        schedule = module.schedule(wait=_STEPS_AROUND + 10, warmup=1, active=10, repeat=1)
        handler = module.tensorboard_trace_handler(str(folder / "logs"), use_gzip=True)
        with module.profile(schedule=schedule, on_trace_ready=handler, record_shapes=True) as profiler:
            times = [_measure_step_s(step, profiler) for _ in range(_LAST_STEP + 1 + _STEPS_AROUND)]
            stops.append(profiler._stats().profiler_disable_call_duration_us / 1e6)
        before, since = times[8 : 8 + _STEPS_AROUND], times[_LAST_STEP:]
        lost.append(sum(since) - fmean(before) * len(since))
    return median(lost), median(stops)


def _measure_step_s(step: Callable[[], None], profiler: Any) -> float:
    begin = time.perf_counter()
    step()
    profiler.step()
    return time.perf_counter() - begin
