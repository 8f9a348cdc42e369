"""Variant, on request: the forward pass under bfloat16 autocast."""

import sys
from typing import Any

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.models import wrap_models
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True: every program has a forward pass."""
    return [True]


@variant(
    "bf16",
    find_values=find_values,
    valid_values=(True,),
    code="with torch.autocast(device_type, torch.bfloat16): output = model(batch)",
    kinds=("float32_matmul",),
    on_request=True,
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Call the outermost module under autocast; the loss is outside of it."""
    torch: Any = sys.modules["torch"]

    def call(original: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        applied()
        parameter = next(model.parameters(), None)
        kind = "cpu" if parameter is None else parameter.device.type
        with torch.autocast(kind, torch.bfloat16):
            return original(model, *arguments, **options)

    wrap_models(call)
