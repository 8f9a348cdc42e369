"""Variant, on request: float32 matrix products and convolutions in TF32, which has 10 bits of precision."""

import sys
from typing import Any

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where there is a device."""
    return [True] if facts.has_device else []


@variant(
    "tf32",
    find_values=find_values,
    valid_values=(True,),
    code='torch.set_float32_matmul_precision("high"); torch.backends.cudnn.allow_tf32 = True',
    kinds=("float32_matmul",),
    on_request=True,
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Allow TF32 in matmuls and convolutions."""
    torch: Any = sys.modules["torch"]
    torch.set_float32_matmul_precision("high" if value else "highest")
    torch.backends.cudnn.allow_tf32 = bool(value)
    applied()
