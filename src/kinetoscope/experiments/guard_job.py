"""Background process that ends the processes of all starts if `kinetoscope try` is killed.

A rank that watched its parent would not be enough: a shell script would run its next line when the rank ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kinetoscope.autoinstrument.settings import ENVIRONMENT_VARIABLE
from kinetoscope.core.background.background_process import BackgroundProcess, wait_until_detached
from kinetoscope.core.background.jobs import job_command, run_job
from kinetoscope.experiments.processes import ProcessGroup


@contextmanager
def guard_starts(folder: Path) -> Iterator[None]:
    """End the processes of all starts in a folder if this process dies meanwhile."""
    guard = BackgroundProcess(lambda status, errors: None)
    guard.start(job_command(__name__, str(folder)))
    try:
        yield
    finally:
        guard.kill_and_wait()


def _end_orphans(folder: str) -> int:
    wait_until_detached()
    ProcessGroup(ENVIRONMENT_VARIABLE, folder).kill()
    return 0


if __name__ == "__main__":
    run_job(_end_orphans)
