"""Guard around calls of sources, handlers and schedules: their errors do not reach training."""

import logging
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kinetoscope.errors import KinetoscopeError

_log = logging.getLogger("kinetoscope")
_PACKAGE = __name__.partition(".")[0]


class Guard:
    """Calls of sources, handlers and schedules, so that their errors do not reach training.

    One that raises is reported once, switched off, and not called again until the run ends.

    With ``strict`` the error is raised as well. On the writer thread no code of the user could catch it, and once the
    run is ``closing`` the rest must still be done. Then the first error is kept for `raise_first`, without its
    traceback, whose frames would keep records alive.
    """

    def __init__(self, strict: bool) -> None:
        self.strict: bool = strict
        self.closing: bool = False
        self.wait_for: Callable[..., Any] | None = None
        """While the run ends, calls are made through this, so that Ctrl-C can end them."""
        self._first: BaseException | None = None
        self._switched_off: list[object] = []

    def __call__(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...] = ()) -> Any:
        """Return the method's result, or None if it raised or its owner is switched off."""
        if self._switched_off and self.is_off(owner):
            return None
        try:
            return self._call(method, arguments)
        except Exception as error:
            self.switch_off(owner, error)
            if self.strict and not self.closing:
                raise
            self.keep(error)
            return None

    def call_in_hook(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        """Call a method in a hook that must not raise: with ``strict`` the error is kept."""
        if self._switched_off and self.is_off(owner):
            return None
        try:
            return method(*arguments)
        except Exception as error:
            self.switch_off(owner, error)
            self.keep(error)
            return None

    def call_closing(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...] = ()) -> None:
        """Call a closing method of ``owner``, even if it was switched off."""
        try:
            self._call(method, arguments)
        except Exception as error:
            self.report(f"Closing {owner_name(owner)}", error)

    def _call(self, method: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        wait_for = self.wait_for  # read once: the run may end on another thread meanwhile
        return method(*arguments) if wait_for is None else wait_for(method, *arguments)

    def is_off(self, owner: object) -> bool:
        """Return whether ``owner`` is switched off."""
        return any(other is owner for other in self._switched_off)

    def switch_off(self, owner: object, error: BaseException) -> None:
        """Log an error, and do not call ``owner`` again."""
        if not self.is_off(owner):
            self._switched_off.append(owner)
            is_from_this_package = type(owner).__module__.partition(".")[0] == _PACKAGE
            _log.error(
                "%s failed and is switched off for the rest of this run. Training continues. %s",
                owner_name(owner),
                _format_one_line(error) if is_from_this_package else _format_for_log(error),
            )
            if is_from_this_package:
                _log.debug("Traceback of %s: %s", owner_name(owner), _format_error(error))

    def report(self, job: str, error: BaseException) -> None:
        """Log and keep an error that cannot be raised to the user, such as one on the writer thread."""
        with suppress(OSError):  # the terminal of the log is closed
            _log.error("%s failed: %s", job, _format_for_log(error))
        self.keep(error)

    def keep(self, error: BaseException) -> None:
        """Keep a reported error for `raise_first`, with ``strict``."""
        if self.strict and self._first is None:
            error.add_note(_format_error(error))
            error.__traceback__ = error.__cause__ = error.__context__ = None
            self._first = error

    def raise_first(self) -> None:
        """Raise the first error that was kept, once, with ``strict``."""
        first, self._first = self._first, None
        if first is not None:
            raise first


def owner_name(owner: object) -> str:
    """Return the name of a source, a handler or a schedule for messages."""
    return getattr(owner, "__qualname__", None) or type(owner).__name__


def _format_for_log(error: BaseException) -> str:
    """Return an error for the log. Our own errors have the advice in their text, so they need no traceback."""
    return f"{type(error).__name__}: {error}" if isinstance(error, KinetoscopeError) else _format_error(error)


def _format_one_line(error: BaseException) -> str:
    """Return an error of our own code for the user's log: its text, and the line that raised it."""
    lines = str(error).splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    location = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{f': {lines[0]}' if lines else ''}{location}"


def _format_error(error: BaseException) -> str:
    """Return the error and its traceback as a string, which unlike the traceback keeps no records alive."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error)).rstrip()}"
