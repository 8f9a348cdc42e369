"""Qualified names of the modules of a model, without the parts that wrappers add."""

from collections.abc import Iterator
from typing import Any, NamedTuple

_PREFIXES = ("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")
"""Attributes under which a wrapper has the wrapped module; no module of a user has one of these names."""

_DATA_PARALLEL = ("torch.nn.parallel.distributed", "DistributedDataParallel")
_COMPILER_GRAPH = "_LazyGraphModule"
"""Base class of the graphs that torch's compiler makes, which some of its backends call as modules."""


class ModuleName(NamedTuple):
    """A module of a model and its qualified name. ``wrapped`` is the module in it if it is a wrapper, else itself."""

    module: Any
    name: str
    wrapped: Any


def name_modules(root: Any) -> Iterator[ModuleName]:
    """Yield the modules of a model, each once, by the first of its names; the root has the name ``""``.

    A wrapper has the name of the module in it.
    """
    yield from _names_below(root, "", set())


def _names_below(module: Any, name: str, seen: set[int]) -> Iterator[ModuleName]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield ModuleName(module, name, unwrap(module))
    attribute = _wrapped_attribute(module)
    for key, child in module._modules.items():
        if child is not None:
            inner_name = name if key == attribute else f"{name}.{key}" if name else key
            yield from _names_below(child, inner_name, seen)


def unwrap(module: Any) -> Any:
    """Return the module in all wrappers, or the module if it is none."""
    while (attribute := _wrapped_attribute(module)) is not None:
        module = module._modules[attribute]
    return module


def is_compiler_graph(module: Any) -> bool:
    """Return whether torch's compiler made a module: it is a part of the region that is compiled."""
    return _has_base(module, _COMPILER_GRAPH)


def _wrapped_attribute(module: Any) -> str | None:
    """Return the attribute under which a wrapper has its module; None if the module is no wrapper."""
    kind = type(module)
    if (kind.__module__, kind.__name__) == _DATA_PARALLEL:
        return "module"
    return next((name for name in _PREFIXES if name in module._modules), None)


def get_class_name(module: Any) -> str:
    """Return the name of a module's class without the prefix of fully_shard, which makes a subclass in place."""
    name = type(module).__name__
    return name.removeprefix("FSDP") if _has_base(module, "FSDPModule") else name


def _has_base(module: Any, name: str) -> bool:
    return any(base.__name__ == name for base in type(module).__mro__[1:])
