"""Variant: gradient_as_bucket_view of DistributedDataParallel."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where a model is wrapped without it."""
    return [True] if any(not ddp.gradient_as_bucket_view for ddp in facts.ddp) else []


@variant(
    "gradient_as_bucket_view",
    find_values=find_values,
    valid_values=(True, False),
    code="DistributedDataParallel(..., gradient_as_bucket_view={value})",
    kinds=("exposed_communication", "memory_limit"),
)
def apply(value: Value, applied: Applied) -> None:
    """Change the models that are wrapped."""
    ddp: Any = sys.modules["torch.nn.parallel"].DistributedDataParallel
    change_arguments(ddp, "__init__", lambda _: {"gradient_as_bucket_view": value}, applied)
