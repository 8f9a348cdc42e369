"""Variant: torch's fused optimizers."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where an optimizer could be fused and is not."""
    could = any(one.takes_fused and not one.fused for one in facts.optimizers)
    return [True] if could else []


@variant(
    "fused",
    find_values=find_values,
    code="{optimizer}(..., fused=True)",
    kinds=("host_bound", "small_kernels", "python_overhead"),
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Change torch's optimizers that have the argument."""

    def change(given: Any) -> dict[str, Any]:
        if given.get("differentiable"):
            return {}
        return {"fused": value, "foreach": False} if given.get("foreach") else {"fused": value}

    base: Any = sys.modules["torch.optim"].Optimizer
    for kind in list(vars(sys.modules["torch.optim"]).values()):
        if isinstance(kind, type) and issubclass(kind, base) and _takes(kind):
            change_arguments(kind, "__init__", change, applied)


def _takes(kind: Any) -> bool:
    code = getattr(vars(kind).get("__init__"), "__code__", None)
    return code is not None and "fused" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
