"""Arguments of torch's optimizers."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.registry import Applied, Value


def set_implementation(name: str, value: Value, other: str, applied: Applied) -> None:
    """Set the argument ``name`` of each optimizer that has it, and switch off ``other``, which excludes it."""

    def change(given: Any) -> dict[str, Any]:
        if given.get("differentiable"):
            return {}
        return {name: value, other: False} if given.get(other) else {name: value}

    base: Any = sys.modules["torch.optim"].Optimizer
    for kind in list(vars(sys.modules["torch.optim"]).values()):
        if isinstance(kind, type) and issubclass(kind, base) and _has_argument(kind, name):
            change_arguments(kind, "__init__", change, applied)


def _has_argument(kind: Any, name: str) -> bool:
    code = getattr(vars(kind).get("__init__"), "__code__", None)
    return code is not None and name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
