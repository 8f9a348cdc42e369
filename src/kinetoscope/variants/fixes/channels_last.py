"""Variant, on request: convolutions with channels in the last place of memory."""

import sys
import weakref
from typing import Any

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.models import wrap_models
from kinetoscope.variants.registry import Applied, Value, variant

_IMAGE_DIMENSIONS = 4


def find_values(facts: Facts) -> list[bool]:
    """Return True: whether there are convolutions is seen at the first call."""
    return [True]


@variant(
    "channels_last",
    find_values=find_values,
    valid_values=(True,),
    code="model.to(memory_format=torch.channels_last), and so the images",
    on_request=True,
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Convert each outermost module once, and the images that it is given."""
    torch: Any = sys.modules["torch"]
    converted = weakref.WeakSet[Any]()

    def convert(given: Any) -> Any:
        is_image = isinstance(given, torch.Tensor) and given.dim() == _IMAGE_DIMENSIONS
        return given.contiguous(memory_format=torch.channels_last) if is_image else given

    def call(original: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        if model not in converted:
            converted.add(model)
            if any(parameter.dim() == _IMAGE_DIMENSIONS for parameter in model.parameters()):
                model.to(memory_format=torch.channels_last)
                applied()
        return original(model, *map(convert, arguments), **options)

    wrap_models(call)
