"""Variables that functions retain between calls, and hooks of torch's modules and parameters."""

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from types import FunctionType
from typing import Any

from kinetoscope.sources.private_names import module_hooks, module_parameters, parameter_hooks

HOOKS = frozenset(hook.attribute for hook in (*module_hooks, *parameter_hooks))
"""Attributes in which torch stores hooks."""

_DICT_TYPES = (OrderedDict, dict)
_PARTIAL_ATTRIBUTES = [(name, partial.__dict__[name]) for name in ("func", "args", "keywords")]


def captured_variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that a function retains: closure variables and defaults of arguments."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents
    code, defaults = function.__code__, function.__defaults__ or ()
    yield from zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def partial_parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Return the function and the arguments of a `functools.partial`, by attribute name."""
    return ((name, part.__get__(value)) for name, part in _PARTIAL_ATTRIBUTES)


def find_hooks(attributes: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the non-empty hook dicts of a torch module and of its parameters, by attribute name."""
    known = ((hook.attribute, hook.get(attributes)) for hook in module_hooks)
    found = [(name, hooks) for name, hooks in known if type(hooks) in _DICT_TYPES and hooks]
    parameters = module_parameters.get(attributes)
    if type(parameters) is dict and parameters:
        kinds, readers = _parameter_hook_readers()
        for parameter in parameters.values():
            if type(parameter) in kinds:
                for name, read in readers:
                    hooks = read(parameter)
                    if type(hooks) in _DICT_TYPES and hooks:
                        found.append((name, hooks))
    return found


@cache
def _parameter_hook_readers() -> tuple[tuple[type, ...], list[tuple[str, Any]]]:
    """Return the parameter classes whose hooks can be read without running user code, and the readers."""
    torch: Any = sys.modules["torch"]
    found = [(hook.attribute, hook.find()) for hook in parameter_hooks]
    return (torch.Tensor, torch.nn.Parameter), [(name, hook.__get__) for name, hook in found if hook is not None]
