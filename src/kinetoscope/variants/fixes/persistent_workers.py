"""Variant: DataLoader workers that are kept from epoch to epoch."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant

_MIN_LOOPS = 2


def find_values(facts: Facts) -> list[bool]:
    """Return True where an epoch has ended within the measured steps."""
    ended = any(
        loader.num_loops >= _MIN_LOOPS and loader.num_workers and not loader.persistent_workers
        for loader in facts.loaders
    )
    return [True] if ended else []


@variant(
    "persistent_workers",
    find_values=find_values,
    valid_values=(True, False),
    code="DataLoader(..., persistent_workers={value})",
    kinds=("input_bound", "slow_steps"),
)
def apply(value: Value, applied: Applied) -> None:
    """Change the loaders that have workers."""

    def change(given: Any) -> dict[str, Any]:
        return {"persistent_workers": value} if given.get("num_workers") else {}

    change_arguments(sys.modules["torch.utils.data"].DataLoader, "__init__", change, applied)
