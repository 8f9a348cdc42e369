"""Variant: gradients that are dropped and not filled with zeros."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where the program keeps gradients."""
    return [True] if facts.num_kept_gradients else []


@variant(
    "set_to_none",
    find_values=find_values,
    valid_values=(True, False),
    code="optimizer.zero_grad(set_to_none={value})",
    kinds=("small_kernels", "python_overhead", "host_bound"),
)
def apply(value: Value, applied: Applied) -> None:
    """Change the calls of optimizers and modules."""
    torch: Any = sys.modules["torch"]
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        change_arguments(owner, "zero_grad", lambda _: {"set_to_none": value}, applied)
