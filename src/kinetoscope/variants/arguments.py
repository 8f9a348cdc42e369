"""Changes of the arguments of calls, by signature, so that positional arguments work too."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kinetoscope.hooks.patching import ReplacedMethod

Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def change_arguments(owner: Any, name: str, change: Change, applied: Callable[[], object]) -> None:
    """Call ``owner.name`` with other arguments from now on.

    ``change`` gets the arguments of a call by name, without those left at their default, and returns those that
    differ. Calls that the signature refuses are passed on, so that the program gets the error it would get.
    """
    signature = inspect.signature(getattr(owner, name))

    def call(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **options)
        except TypeError:
            return original(*arguments, **options)
        changed = {
            key: value for key, value in change(bound.arguments).items() if _is_different(bound, signature, key, value)
        }
        if not changed:
            return original(*arguments, **options)
        applied()
        bound.arguments.update(changed)
        return original(*bound.args, **bound.kwargs)

    ReplacedMethod(owner, name, call)


def _is_different(bound: inspect.BoundArguments, signature: inspect.Signature, name: str, value: object) -> bool:
    present = bound.arguments.get(name, signature.parameters[name].default)
    return type(present) is not type(value) or present != value
