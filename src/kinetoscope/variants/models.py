"""Calls of the outermost modules of a program, which are its models."""

import sys
import threading
from collections.abc import Callable
from typing import Any

from kinetoscope.hooks.patching import ReplacedMethod


def wrap_models(around: Callable[..., Any]) -> None:
    """Call ``around(original, module, ...)`` for each call of a module, with gradients, that no other module makes."""
    torch: Any = sys.modules["torch"]
    depth = threading.local()

    def call(original: Callable[..., Any], module: Any, *arguments: Any, **options: Any) -> Any:
        if getattr(depth, "is_within", False) or not torch.is_grad_enabled() or not _has_parameters(module):
            return original(module, *arguments, **options)
        depth.is_within = True
        try:
            return around(original, module, *arguments, **options)
        finally:
            depth.is_within = False

    ReplacedMethod(torch.nn.Module, "__call__", call)


def _has_parameters(module: Any) -> bool:
    """Return whether it may be a model: losses are modules without parameters."""
    return next(module.parameters(), None) is not None
