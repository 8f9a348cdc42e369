"""The standard error of this process, to which lines of ours are written past its buffer."""

import io
import logging
import os
import sys
from contextlib import suppress
from typing import Any


def write_line(stream: Any, line: str) -> None:
    """Write a line to ``stream``, which is ``sys.stderr``. Raises what the stream raises.

    A file is written past its buffer. What cannot be written to a full disk or a closed pipe would stay in the buffer,
    and Python, which flushes it at exit, would end the process with the status 120.
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
    """Writes warnings to stderr where the program has not set up logging, as Python's ``logging.lastResort`` does.

    That one leaves what stderr does not take in its buffer.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        others = [handler for handler in self._logger.handlers if handler is not self]
        if self._logger.propagate:
            others += logging.getLogger().handlers
        if not others and logging.lastResort is not None and sys.stderr is not None:
            with suppress(Exception):  # stderr is full, or closed
                write_line(sys.stderr, self.format(record))


def log_without_buffer() -> None:
    """Let no warning of ours stay in the buffer of stderr, also if this is called again."""
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
