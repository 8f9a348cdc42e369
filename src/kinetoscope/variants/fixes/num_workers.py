"""Variant: other numbers of DataLoader workers."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[int]:
    """Return 0 and the powers of two up to the free cores, without the program's own number; those near 4 first."""
    current = {loader.num_workers for loader in facts.loaders if loader.is_map_style}
    exponents = sorted(range(facts.num_cores.bit_length()), key=lambda exponent: abs(exponent - 2))
    return [number for number in (0, *(2**one for one in exponents)) if current and current != {number}]


@variant(
    "num_workers",
    find_values=find_values,
    valid_values=range(1025),
    code="DataLoader(..., num_workers={value})",
    kinds=("input_bound", "straggler"),
    excludes={0: ["prefetch_factor", "persistent_workers"]},
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
        refused = {"prefetch_factor": None, "persistent_workers": False, "timeout": 0, "multiprocessing_context": None}
        return {"num_workers": 0, **refused}

    change_arguments(data.DataLoader, "__init__", change, applied)
