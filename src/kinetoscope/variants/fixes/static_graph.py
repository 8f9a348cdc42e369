"""Variant: static_graph of DistributedDataParallel."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where a model is wrapped without it."""
    return [True] if any(not ddp.static_graph for ddp in facts.ddp) else []


@variant(
    "static_graph",
    find_values=find_values,
    valid_values=(True, False),
    code="DistributedDataParallel(..., static_graph={value})",
    kinds=("exposed_communication",),
    on_request=True,
)
def apply(value: Value, applied: Applied) -> None:
    """Change the models that are wrapped."""
    ddp: Any = sys.modules["torch.nn.parallel"].DistributedDataParallel
    change_arguments(ddp, "__init__", lambda _: {"static_graph": value}, applied)
