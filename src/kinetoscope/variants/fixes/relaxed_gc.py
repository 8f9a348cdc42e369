"""Variant: garbage collections that are rarer and skip the objects of the set-up."""

import gc
import sys

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant

THRESHOLDS = (100_000, 50, 50)


def find_values(facts: Facts) -> list[bool]:
    """Return True: each program has garbage collections."""
    return [True]


@variant(
    "relaxed_gc",
    find_values=find_values,
    valid_values=(True,),
    code="gc.collect(); gc.freeze(); gc.set_threshold(100_000, 50, 50)  # once the model is built",
    kinds=("garbage_collection", "slow_steps", "python_overhead"),
)
def apply(value: Value, applied: Applied) -> None:
    """Relax collections after the first optimizer step, when model and optimizer state exist."""
    register = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
    is_relaxed: list[bool] = []

    def relax(*_: object) -> None:
        # It stays registered: torch iterates over its hooks meanwhile, and raises if one is removed.
        if is_relaxed:
            return
        is_relaxed.append(True)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        applied()

    register(relax)
