"""Variant, on request: cuDNN measures its algorithms and uses the fastest."""

import sys
from typing import Any

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where there is a device."""
    return [True] if facts.has_device else []


@variant(
    "cudnn_benchmark",
    find_values=find_values,
    valid_values=(True, False),
    code="torch.backends.cudnn.benchmark = {value}",
    on_request=True,
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Enable cuDNN's benchmark mode."""
    torch: Any = sys.modules["torch"]
    torch.backends.cudnn.benchmark = bool(value)
    applied()
