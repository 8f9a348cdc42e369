"""The command line that all planted programs share: train for some steps, or time the fault and its fix in turns.

    python float64.py                   60 steps with the fault
    python float64.py --fixed           the same without it
    python float64.py --measure FILE    both in turns, and their times into a JSON file

A program is a generator that yields after each step.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")

NUM_WARM_UP = 10
VARIANTS = ("faulty", "fixed", "fixed", "faulty")
"""The order in which variants are timed: what drifts, as clocks do, is the same for both."""


@dataclass(frozen=True)
class Options:
    """Where and how to train: on which device, and with the fault or without it."""

    device: str
    fixed: bool

    def pick(self, gpu: T, cpu: T) -> T:
        """Return the value for a GPU, or the smaller one for the CPU."""
        return cpu if self.device == "cpu" else gpu


Train = Callable[[Options], Iterator[None]]


def main(train: Train) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--measure", type=Path)
    options = parser.parse_args()
    device = "cpu" if options.cpu else "cuda"
    torch.set_float32_matmul_precision("high")
    if options.cpu:
        torch.set_num_threads(1)
    if options.measure is None:
        _run(train, Options(device, options.fixed), options.steps)
    else:
        _measure(train, device, options.steps, options.measure)


def _run(train: Train, options: Options, num_steps: int) -> None:
    torch.manual_seed(0)
    for _ in islice(train(options), num_steps):
        pass


def _measure(train: Train, device: str, num_steps: int, path: Path) -> None:
    """Time both variants in turns, ``num_steps`` each in all; write the times after each turn."""
    turns: list[dict[str, Any]] = []
    for variant in VARIANTS:
        torch.manual_seed(0)
        turns.append({"variant": variant, **_time(train(Options(device, variant == "fixed")), device, num_steps // 2)})
        _write(path, {"turns": turns})
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


def _time(steps: Iterator[None], device: str, num_steps: int) -> dict[str, Any]:
    """Time the steps after the warm-up, from an idle device to an idle device; `out of memory` ends them."""
    moments, memory = [time.perf_counter_ns()], []
    try:
        for _ in islice(steps, NUM_WARM_UP):
            pass
        _synchronize(device)
        memory.append(_allocated(device))
        moments = [time.perf_counter_ns()]
        for _ in islice(steps, num_steps):
            moments.append(time.perf_counter_ns())
        _synchronize(device)
        end = time.perf_counter_ns()
        memory.append(_allocated(device))
    except torch.OutOfMemoryError:
        return {"out_of_memory": True, "num_steps": len(moments) - 1}
    return {
        "num_steps": len(moments) - 1,
        "step_ns": (end - moments[0]) / max(1, len(moments) - 1),
        "host_steps_ns": [after - before for before, after in pairwise(moments)],
        "bytes_per_step": (memory[1] - memory[0]) / num_steps if device == "cuda" else None,
    }


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
    os.replace(partial, path)
