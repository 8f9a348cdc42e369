"""recording: the one wrapper around every call out of the profiler. Errors flow in; training never sees them."""

import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("kinetoscope")


class Guard:
    """Calls sources, handlers and schedules. One that raises is reported once, switched off, and never called again.

    With ``strict`` the error is raised as well. On the writer thread, and once the run is ``closing``, nobody could
    catch it and the rest must still be done: then it is kept in ``errors``, for `Profiler.close` to raise at its end.
    """

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.closing = False
        self.errors: list[Exception] = []
        self._off: list[Any] = []

    def __call__(self, owner: Any, method: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        """The method's result, or None if it raised now or its owner was switched off before."""
        if self._off and self.is_off(owner):
            return None
        try:
            return method(*arguments)
        except Exception as error:
            self.switch_off(owner, error)
            if self.strict and not self.closing:
                raise
            self.errors.append(error)
            return None

    def is_off(self, owner: Any) -> bool:
        return any(it is owner for it in self._off)

    def switch_off(self, owner: Any, error: Exception) -> None:
        """Says what failed, and sees to it that ``owner`` is not called again."""
        if not self.is_off(owner):
            self._off.append(owner)
            _log.error(
                "%s failed and is switched off for the rest of this run; training goes on. %s: %s",
                _name(owner),
                type(error).__name__,
                error,
                exc_info=error,
            )

    def keep(self, job: str, error: Exception) -> None:
        """Takes an error of the writer thread, where nobody could catch it."""
        self.errors.append(error)
        _log.error("%s failed: %s", job, error, exc_info=error)


def _name(owner: Any) -> str:
    return getattr(owner, "__qualname__", None) or type(owner).__name__
