"""Internal jobs: modules that run in a background process, as ``python -m MODULE ARGUMENT...`` with JSON arguments."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from kinetoscope.core.text.wording import format_error_line
from kinetoscope.errors import KinetoscopeError


def job_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a job: a module that passes its function to `run_job`."""
    return [sys.executable, "-m", module, *map(json.dumps, arguments)]


def run_job(work: Callable[..., int]) -> NoReturn:
    """Call ``work`` with this process's arguments, and exit with the status that it returns.

    An expected error is a line on stderr, and the status 1.
    """
    try:
        status = work(*map(json.loads, sys.argv[1:]))
    except (KinetoscopeError, OSError) as error:
        print(format_error_line(error), file=sys.stderr)
        status = 1
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):  # its reader may be gone; the exit code is what counts
            stream.flush()
    os._exit(status)  # Python would take a fifth of a merge's time to unload what it has imported
