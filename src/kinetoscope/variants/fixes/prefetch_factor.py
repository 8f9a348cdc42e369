"""Variant: more batches that each DataLoader worker prepares ahead."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant

_TORCH_DEFAULT, _FACTOR = 2, 8


def find_values(facts: Facts) -> list[int]:
    """Return a larger factor, where there are workers that use a smaller one."""
    current = [loader.prefetch_factor or _TORCH_DEFAULT for loader in facts.loaders if loader.num_workers]
    return [_FACTOR] if current and min(current) < _FACTOR else []


@variant(
    "prefetch_factor",
    find_values=find_values,
    valid_values=range(1, 1025),
    code="DataLoader(..., prefetch_factor={value})",
    kinds=("input_bound",),
)
def apply(value: Value, applied: Applied) -> None:
    """Change the loaders that have workers."""

    def change(given: Any) -> dict[str, Any]:
        return {"prefetch_factor": value} if given.get("num_workers") else {}

    change_arguments(sys.modules["torch.utils.data"].DataLoader, "__init__", change, applied)
