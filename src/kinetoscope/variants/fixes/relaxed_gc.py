"""Variant: garbage collections that are rarer and skip the objects of the set-up."""

import gc
import sys
from typing import Any

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant

THRESHOLDS = (100_000, 50, 50)


def find_values(facts: Facts) -> list[bool]:
    """Return True: each program has garbage collections."""
    return [True]


@variant(
    "relaxed_gc",
    find_values=find_values,
    code="gc.collect(); gc.freeze(); gc.set_threshold(100_000, 50, 50)  # once the model is built",
    kinds=("garbage_collection", "slow_steps", "python_overhead"),
)
def apply(value: Value, applied: Applied) -> None:
    """Relax collections after the first optimizer step, when model and optimizer state exist."""
    register = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
    handles: list[Any] = []

    def relax(*_: object) -> None:
        if not handles:
            return
        handles.pop().remove()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        applied()

    handles.append(register(relax))
