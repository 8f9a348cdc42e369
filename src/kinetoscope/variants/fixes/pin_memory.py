"""Variant: pinned batches, and copies to the device that do not block."""

import sys
from collections.abc import Callable
from typing import Any

from kinetoscope.hooks.patching import ReplacedMethod
from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where there is a device and a loader without pinned memory."""
    return [True] if facts.has_device and any(not loader.pin_memory for loader in facts.loaders) else []


@variant(
    "pin_memory",
    find_values=find_values,
    valid_values=(True,),
    code="DataLoader(..., pin_memory=True), and batch.to(device, non_blocking=True)",
    kinds=("exposed_copy",),
)
def apply(value: Value, applied: Applied) -> None:
    """Pin the batches of loaders, and copy pinned tensors without blocking; copies to the CPU are unmodified."""
    torch: Any = sys.modules["torch"]
    change_arguments(torch.utils.data.DataLoader, "__init__", lambda _: {"pin_memory": value}, applied)

    def copy(original: Callable[..., Any], tensor: Any, *arguments: Any, **options: Any) -> Any:
        # Other signatures of `to` take non_blocking by position.
        is_simple = len(arguments) <= 1 and "non_blocking" not in options
        if is_simple and tensor.device.type == "cpu" and tensor.is_pinned():
            options["non_blocking"] = True
        return original(tensor, *arguments, **options)

    for name in ("to", "cuda"):
        ReplacedMethod(torch.Tensor, name, copy)
