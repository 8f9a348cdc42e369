"""Work that the profilers record."""

from collections.abc import Callable
from typing import Any

import torch


def make_training_step() -> Callable[[], None]:
    """Return a step of a small model whose optimizer updates parameters one by one: about a thousand operators."""
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    model, batch = torch.nn.Sequential(*layers), torch.ones(4, 16)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    step()  # the first step makes the optimizer's state
    return step


def record(module: Any, num_events: int, **options: Any) -> Any:
    """Return a profiler of ``module`` that has recorded at least ``num_events``."""
    step = make_training_step()
    num_steps = max(1, num_events // _events_per_step(step, **options))
    with module.profile(**options) as profiler:
        for _ in range(num_steps):
            step()
    return profiler


def _events_per_step(step: Callable[[], None], **options: Any) -> int:
    with torch.profiler.profile(**options) as profiler:
        step()
    return len(profiler.profiler.kineto_results.events())
