"""training: warnings that are given once. Each has a subject; whoever holds an `OnceLog` decides for how long."""

import logging

_log = logging.getLogger("kinetoscope")


class OnceLog:
    """Says something in the log, of each subject once."""

    def __init__(self) -> None:
        self._said: set[object] = set()

    def warn(self, message: str, *arguments: object, about: object = None, level: int = logging.WARNING) -> None:
        """Logs ``message`` with its ``arguments``, unless something ``about`` this subject was said before. Without a
        subject, the message is its own."""
        subject = message if about is None else about
        if subject not in self._said:
            self._said.add(subject)
            _log.log(level, message, *arguments)
