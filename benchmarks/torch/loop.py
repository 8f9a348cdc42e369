"""Slowdown of a training loop by recording, with each option, compared with torch's."""

import gc
import math
import random
import statistics
import time
import warnings
from typing import Any

from benchmarks.suite import Measure, SuiteResult

_ALL = {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True}
_OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    **{name: {name: True} for name in _ALL},
    "all": _ALL,
}
_STEPS = 10
_INTERVAL = 1.96  # standard errors on each side: 95 % of intervals hold the true ratio


def run(*, quick: bool) -> SuiteResult:
    """Time steps inside a window, alternating no profiler, Kinetoscope's and torch's; start and stop are not timed."""
    rounds = 3 if quick else 24
    measures = []
    with warnings.catch_warnings(action="ignore"):
        for name, options in _OPTIONS.items():
            bare, replacement, stock = _measure_step_times_s(options, rounds)
            mean, low, high = _make_ratio([mine / theirs for mine, theirs in zip(replacement, stock, strict=True)])
            slowdowns = [statistics.median(times) / statistics.median(bare) for times in (replacement, stock)]
            detail = f"{low:.3f} .. {high:.3f}; loop x{slowdowns[0]:.2f} / x{slowdowns[1]:.2f}"
            measures.append(Measure(f"recorded step / stock's, {name}", mean, "x", detail))
            measures.append(Measure(f"recorded step / stock's, {name}, low end", low, "x", "of the 95 % interval"))
            measures.append(Measure(f"recorded step / stock's, {name}, high end", high, "x", "of the 95 % interval"))
    return SuiteResult(
        suite="torch_loop",
        title=f"a training step of about a thousand operators, in windows of {_STEPS}",
        measures=measures,
    )


def _measure_step_times_s(options: dict[str, bool], rounds: int) -> tuple[list[float], list[float], list[float]]:
    import torch.profiler

    import kinetoscope.torch
    from benchmarks.torch.work import make_training_step

    step = make_training_step()
    modules = [None, kinetoscope.torch, torch.profiler]
    times: list[list[float]] = [[], [], []]
    for number in range(rounds + 1):  # the first round warms up
        for place in random.Random(number).sample(range(3), 3):
            taken = _measure_window_s(modules[place], step, options)
            if number:
                times[place].append(taken)
    return times[0], times[1], times[2]


def _measure_window_s(module: Any, step: Any, options: dict[str, bool]) -> float:
    gc.collect()
    if module is None:
        return _measure_steps_s(step)
    with module.profile(**options):
        return _measure_steps_s(step)


def _measure_steps_s(step: Any) -> float:
    """Return the better of two halves, since other load often affects only one of them."""
    taken = []
    for _ in range(2):
        begin = time.perf_counter()
        for _ in range(_STEPS // 2):
            step()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def _make_ratio(ratios: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean, and its interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    error = _INTERVAL * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return math.exp(mean), math.exp(mean - error), math.exp(mean + error)
