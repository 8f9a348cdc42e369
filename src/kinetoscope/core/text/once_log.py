"""Log messages that are given once per subject. The owner of an `OnceLog` decides for how long it lasts."""

import logging
from contextlib import suppress

_log = logging.getLogger("kinetoscope")


class OnceLog:
    """Logs one message about each subject."""

    def __init__(self) -> None:
        self._subjects: set[object] = set()

    def warn(self, message: str, *arguments: object, about: object = None, level: int = logging.WARNING) -> None:
        """Log ``message`` with its ``arguments``, once for each subject ``about``.

        The subject is the message itself unless given.
        """
        if self.is_first(message if about is None else about):
            with suppress(OSError):  # a log that goes to a terminal which is gone
                _log.log(level, message, *arguments)

    def is_first(self, subject: object) -> bool:
        """Return whether this is the first call for this subject."""
        is_new = subject not in self._subjects
        self._subjects.add(subject)
        return is_new
