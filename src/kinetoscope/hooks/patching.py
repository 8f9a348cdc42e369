"""Temporary replacement of a method or function of another library, where that library has no hook."""

from collections.abc import Callable
from functools import wraps
from typing import Any


class ReplacedMethod:
    """Call ``call(original, *arguments)`` in place of ``name`` of ``owner``, a class or module, until `restore`.

    Several replacements of a method may be made and restored in any order. If other code has replaced it since, ours
    stays below theirs and only passes the call on.
    """

    def __init__(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        self._owner, self._name = owner, name
        self._call: Callable[..., Any] | None = call
        self._original: Any = getattr(owner, name)

        @wraps(self._original)
        def replaced(*arguments: Any, **options: Any) -> Any:
            call = self._call
            return (
                self._original(*arguments, **options) if call is None else call(self._original, *arguments, **options)
            )

        replaced.replacement = self  # pyright: ignore[reportAttributeAccessIssue]
        self._replaced = replaced
        setattr(owner, name, replaced)

    def restore(self) -> None:
        """Stop calling the replacement, and put the original back unless other code has replaced it since."""
        self._call = None
        while (top := self._top) is not None and top._call is None:
            setattr(self._owner, self._name, top._original)

    @property
    def _top(self) -> "ReplacedMethod | None":
        """The replacement whose function is called first; None for the original, and for other code's."""
        current = getattr(self._owner, self._name)
        candidate = getattr(current, "replacement", None)  # `functools.wraps` copies it
        return candidate if isinstance(candidate, ReplacedMethod) and candidate._replaced is current else None
