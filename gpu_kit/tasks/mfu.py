"""The model FLOPs of a bf16 matmul and of a small transformer: by formula, by torch's counter, and recorded."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gpu_kit.faults.layers import make_transformer
from gpu_kit.tasks.recorded import record
from gpu_kit.tasks.task import TaskRun

NUM_TIMED = 20


def main() -> None:
    run = TaskRun()
    (name,) = run.names
    torch.manual_seed(0)
    step, facts = {"matmul": _matmul, "transformer": _transformer}[name](run.device)
    step()
    with FlopCounterMode(display=False) as counter:
        step()
    run.add(**facts, counted_flops=counter.get_total_flops())
    for _ in range(5):
        step()
    times = [_step_ns(step, run.device) for _ in range(3)]
    run.add(step_ns=sorted(times)[1], all_step_ns=times)
    record(run.folder / "run", step, record_shapes=True)
    run.add(step_ns_after=_step_ns(step, run.device))


def _matmul(device: str) -> tuple[Callable[[], None], dict[str, Any]]:
    """Return a square bfloat16 matmul, repeated so that launches do not matter; two operations per multiplication."""
    size, count = (8192, 10) if device == "cuda" else (256, 4)
    left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    result = torch.empty(size, size, device=device, dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(count):
            torch.mm(left, right, out=result)

    return step, {"formula_flops": 2 * size**3 * count, "dtype": "bfloat16", "size": size, "count": count}


def _transformer(device: str) -> tuple[Callable[[], None], dict[str, Any]]:
    """Return a training step in bfloat16, with its formula for FLOPs.

    It has six operations per weight and token, and unmasked attention: its two products count once forward and two and
    a half times backward (one of the five recomputes the scores).
    """
    width, num_layers, batch, length = (2048, 6, 8, 1024) if device == "cuda" else (128, 2, 2, 64)
    model = make_transformer(width, num_layers, device)
    inputs = torch.randn(batch, length, width, device=device, requires_grad=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()

    weights = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    attention = 4 * batch * length**2 * width * num_layers
    formula = 6 * weights * batch * length + int(3.5 * attention)
    return step, {"formula_flops": formula, "dtype": "bfloat16", "weights": weights, "tokens": batch * length}


def _step_ns(step: Callable[[], None], device: str) -> float:
    """Return the time of a step, from an idle device to an idle device."""
    _synchronize(device)
    begin = time.perf_counter_ns()
    for _ in range(NUM_TIMED):
        step()
    _synchronize(device)
    return (time.perf_counter_ns() - begin) / NUM_TIMED


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
