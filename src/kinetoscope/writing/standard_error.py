"""Leaves lines out of what this process writes on its standard error, for as long as a library is called that does."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2


@contextmanager
def lines_left_out(pattern: "re.Pattern[bytes]") -> Iterator[None]:
    """Whole lines that match are not written. Whatever else the process writes meanwhile comes at the end, in order."""
    with suppress(OSError, ValueError, AttributeError):  # who has none has nothing to leave out
        sys.stderr.flush()
    try:
        kept, written = os.dup(_STDERR), tempfile.TemporaryFile()  # noqa: SIM115 - it is closed below
    except OSError:
        yield
        return
    os.dup2(written.fileno(), _STDERR)
    try:
        yield
    finally:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        os.dup2(kept, _STDERR)
        os.close(kept)
        with written:
            written.seek(0)
            rest = b"".join(line for line in written if not pattern.match(line))
        with suppress(OSError):
            while rest:
                rest = rest[os.write(_STDERR, rest) :]
