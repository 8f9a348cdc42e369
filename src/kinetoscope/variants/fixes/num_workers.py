"""Variant: other numbers of DataLoader workers."""

import sys
from collections.abc import Iterator
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> Iterator[int]:
    """Yield 0 and the powers of two up to the free cores, without the program's own number."""
    loaders = [loader for loader in facts.loaders if loader.is_map_style]
    current = {loader.num_workers for loader in loaders}
    number = 0
    while loaders and number <= facts.num_cores:
        if current != {number}:
            yield number
        number = number * 2 or 1


@variant(
    "num_workers",
    find_values=find_values,
    code="DataLoader(..., num_workers={value})",
    kinds=("input_bound", "straggler"),
)
def apply(value: Value, applied: Applied) -> None:
    """Change the loaders of map-style datasets; others would need a shard per worker."""
    data: Any = sys.modules["torch.utils.data"]

    def change(given: Any) -> dict[str, Any]:
        if isinstance(given["dataset"], data.IterableDataset) or given.get("num_workers", 0) == value:
            return {}
        if value:
            return {"num_workers": value}
        # Torch refuses these arguments without workers.
        return {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "timeout": 0}

    change_arguments(data.DataLoader, "__init__", change, applied)
