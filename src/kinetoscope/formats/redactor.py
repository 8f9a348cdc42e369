"""Redaction by a user's function, which returns the replacement of each string."""

import logging
import traceback
from collections.abc import Callable

from kinetoscope.core.text.once_log import OnceLog

REDACTED = "redacted"
"""The replacement of a string that made the user's function raise."""

_MAX_CACHED = 1 << 18  # strings; a trace has a few thousand different ones


class Redactor:
    """A cache around the user's function: it is called once for each string, until `clear`.

    If the function raises, or does not return a string, the replacement is ``redacted``. The log reports that once,
    without the string, and ``on_error``, if given, is called with each error. Any thread may call it.
    """

    def __init__(self, function: Callable[[str], str], on_error: Callable[[Exception], object] | None = None) -> None:
        self._function = function
        self._on_error = on_error
        self._known: dict[str, str] = {}
        self._once = OnceLog()

    def __call__(self, text: str) -> str:
        """Return the replacement of a string."""
        known = self._known.get(text)
        return self._replace(text) if known is None else known

    def clear(self) -> None:
        """Drop all cached replacements, so that their strings take no memory after their window."""
        self._known = {}

    def _replace(self, text: str) -> str:
        if not text:
            return text
        if len(self._known) >= _MAX_CACHED:
            self.clear()
        self._known[text] = answer = self._call(text)
        return answer

    def _call(self, text: str) -> str:
        try:
            answer = self._function(text)
            if not isinstance(answer, str):
                raise TypeError(f"redact must return a string; it returned a {type(answer).__name__}.")
            return str(answer)
        except Exception as error:
            self._warn(error)
            return REDACTED

    def _warn(self, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(error)
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if len(frames) > 1 else ""
        message = "redact failed with %s%s. Each string on which it fails is written as %r. Training continues."
        kind = type(error).__name__
        self._once.warn(message, kind, where, REDACTED, about="failed", level=logging.ERROR)
