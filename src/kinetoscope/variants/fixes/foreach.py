"""Variant: torch's foreach optimizers."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where an optimizer could be foreach and is not; on a device that is torch's default."""
    could = any(
        one.takes_foreach and not one.foreach and not one.fused and not one.is_on_device for one in facts.optimizers
    )
    return [True] if could else []


@variant(
    "foreach",
    find_values=find_values,
    code="{optimizer}(..., foreach=True)",
    kinds=("host_bound", "small_kernels", "python_overhead"),
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Change torch's optimizers that have the argument."""

    def change(given: Any) -> dict[str, Any]:
        if given.get("differentiable"):
            return {}
        return {"foreach": value, "fused": False} if given.get("fused") else {"foreach": value}

    base: Any = sys.modules["torch.optim"].Optimizer
    for kind in list(vars(sys.modules["torch.optim"]).values()):
        if isinstance(kind, type) and issubclass(kind, base) and _takes(kind):
            change_arguments(kind, "__init__", change, applied)


def _takes(kind: Any) -> bool:
    code = getattr(vars(kind).get("__init__"), "__code__", None)
    return code is not None and "foreach" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
