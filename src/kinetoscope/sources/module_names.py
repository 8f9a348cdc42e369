"""Qualified names of the modules of a model, without the parts that wrappers add."""

from collections.abc import Iterator
from typing import Any, NamedTuple

_PREFIXES = ("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")
"""Attributes under which a wrapper has the wrapped module; no module of a user has one of these names."""

_DATA_PARALLEL = ("torch.nn.parallel.distributed", "DistributedDataParallel")
_RECORD_INNER = ("_checkpoint_wrapped_module",)
"""Wrappers whose wrapped module gets the span: activation checkpointing calls it again in the backward pass."""

_COMPILER_GRAPH = "_LazyGraphModule"
"""Base class of the graphs that torch's compiler makes, which some of its backends call as modules."""


class ModuleName(NamedTuple):
    """A module in its model: its qualified name, its class, and whether its calls are recorded."""

    module: Any
    name: str
    class_name: str
    is_recorded: bool


def name_modules(root: Any) -> Iterator[ModuleName]:
    """Yield the modules of a model, each once, by the first of its names; the root has the name ``""``.

    Of a wrapper and the module in it only one is recorded, under the name and the class of the wrapped module.
    """
    yield from _names_below(root, "", set(), True)


def _names_below(module: Any, name: str, seen: set[int], is_recorded: bool) -> Iterator[ModuleName]:
    if id(module) in seen:
        return
    seen.add(id(module))
    attribute = _wrapped_attribute(module)
    is_outer = attribute not in _RECORD_INNER
    innermost = module
    while (wrapped := _wrapped_attribute(innermost)) is not None:
        innermost = innermost._modules[wrapped]
    is_recorded_here = is_recorded and (attribute is None or is_outer) and not _has_base(module, _COMPILER_GRAPH)
    yield ModuleName(module, name, _class_name(innermost), is_recorded_here)
    for key, child in module._modules.items():
        if child is None:
            continue
        if key == attribute:
            yield from _names_below(child, name, seen, is_recorded and not is_outer)
        else:
            yield from _names_below(child, f"{name}.{key}" if name else key, seen, True)


def _wrapped_attribute(module: Any) -> str | None:
    """Return the attribute under which a wrapper has its module; None if the module is no wrapper."""
    kind = type(module)
    if (kind.__module__, kind.__name__) == _DATA_PARALLEL:
        return "module"
    return next((name for name in _PREFIXES if name in module._modules), None)


def _class_name(module: Any) -> str:
    """Return the name of a class without the prefix of fully_shard, which makes a subclass in place."""
    name = type(module).__name__
    return name.removeprefix("FSDP") if _has_base(module, "FSDPModule") else name


def _has_base(module: Any, name: str) -> bool:
    return any(base.__name__ == name for base in type(module).__mro__[1:])
