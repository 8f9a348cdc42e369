"""recording: the one wrapper around every call out of the profiler. Errors flow in; training never sees them."""

import logging
import traceback
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("kinetoscope")


class Guard:
    """Calls sources, handlers and schedules. One that raises is reported once, switched off, and never called again
    until the run ends.

    With ``strict`` the error is raised as well. On the writer thread, and once the run is ``closing``, nobody could
    catch it and the rest must still be done: then the first one is kept for `raise_first`, without the frames it came
    through, which hold what was recorded.
    """

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.closing = False
        self.wait_for: Callable[..., Any] | None = None
        """While the run ends: calls are made through this, so that Ctrl-C ends them."""
        self._first: BaseException | None = None
        self._off: list[object] = []

    def __call__(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...] = ()) -> Any:
        """The method's result, or None if it raised now or its owner was switched off before."""
        if self._off and self.is_off(owner):
            return None
        try:
            return self._call(method, arguments)
        except Exception as error:
            self.switch_off(owner, error)
            if self.strict and not self.closing:
                raise
            self.keep(error)
            return None

    def end(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...] = ()) -> None:
        """Calls the method by which ``owner`` lets go of what it holds, also if it was switched off."""
        try:
            self._call(method, arguments)
        except Exception as error:
            self.report(f"Closing {name_of(owner)}", error)

    def _call(self, method: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        wait_for = self.wait_for  # read once: the run may end on another thread meanwhile
        return method(*arguments) if wait_for is None else wait_for(method, *arguments)

    def is_off(self, owner: object) -> bool:
        return any(it is owner for it in self._off)

    def switch_off(self, owner: object, error: BaseException) -> None:
        """Says what failed, and sees to it that ``owner`` is not called again."""
        if not self.is_off(owner):
            self._off.append(owner)
            _log.error(
                "%s failed and is switched off for the rest of this run; training goes on. %s",
                name_of(owner),
                text_of(error),
            )

    def report(self, job: str, error: BaseException) -> None:
        """Says what failed where nobody could catch it, as on the writer thread, and keeps it."""
        _log.error("%s failed: %s", job, text_of(error))
        self.keep(error)

    def keep(self, error: BaseException) -> None:
        """Keeps an error that was reported, if it is to be raised."""
        if self.strict and self._first is None:
            error.add_note(text_of(error))
            error.__traceback__ = error.__cause__ = error.__context__ = None
            self._first = error

    def raise_first(self) -> None:
        """With ``strict``, raises the first error that was kept, once."""
        first, self._first = self._first, None
        if first is not None:
            raise first


def name_of(owner: object) -> str:
    """What a person calls a source, a handler or a schedule."""
    return getattr(owner, "__qualname__", None) or type(owner).__name__


def text_of(error: BaseException) -> str:
    """What was raised, and where: as text, which keeps nothing alive that was about to be saved."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error)).rstrip()}"
