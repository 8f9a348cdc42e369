"""Standard error of this process, written past its buffer."""

import io
import logging
import os
import sys
from contextlib import suppress
from typing import Any


def write_line(stream: Any, line: str) -> None:
    """Write a line to ``stream``, which is ``sys.stderr``. Raises what the stream raises.

    A file is written past its buffer. Text that a full disk or a closed pipe rejects would remain in the buffer, and
    Python, which flushes it at exit, would end the process with status 120.
    """
    descriptor = _descriptor_of(stream)
    if descriptor is None:
        stream.write(f"{line}\n")
        stream.flush()
        return
    stream.flush()
    rest = f"{line}\n".encode(stream.encoding, stream.errors or "strict")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class UnbufferedLog(logging.Handler):
    """Log handler for warnings where the program has not set up logging, as Python's ``logging.lastResort``.

    Unlike that one, it leaves no text in the buffer of stderr.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to stderr, unless other handlers get it."""
        others = [handler for handler in self._logger.handlers if handler is not self]
        if self._logger.propagate:
            others += logging.getLogger().handlers
        if not others and logging.lastResort is not None and sys.stderr is not None:
            with suppress(Exception):  # stderr is full, or closed
                write_line(sys.stderr, self.format(record))


def log_without_buffer() -> None:
    """Install the `UnbufferedLog` for our warnings, once."""
    logger = logging.getLogger("kinetoscope")
    if not any(isinstance(handler, UnbufferedLog) for handler in logger.handlers):
        logger.addHandler(UnbufferedLog(logger))


def _descriptor_of(stream: Any) -> int | None:
    """Return the file descriptor of a stream; None if it has none, as one that is captured in memory."""
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        return stream.fileno()
    except OSError:
        return None
