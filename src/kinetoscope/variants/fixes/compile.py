"""Variant, on request: the outermost module compiled by torch.compile."""

import weakref
from typing import Any

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.models import wrap_models
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True: every program may try it."""
    return [True]


@variant(
    "compile",
    find_values=find_values,
    valid_values=(True,),
    code="model = torch.compile(model)",
    kinds=("small_kernels", "host_bound", "python_overhead"),
    on_request=True,
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Compile each outermost module at its first call with gradients."""
    compiled = weakref.WeakSet[Any]()

    def call(original: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        if model not in compiled:
            compiled.add(model)
            model.compile()
            applied()
        return original(model, *arguments, **options)

    wrap_models(call)
