"""Background process that ends the processes of all starts if `kinetoscope try` is killed.

A rank that watched its parent would not be enough: a shell script would run its next line when the rank ends. If this
process is killed too, rank 0 ends the others before it ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kinetoscope.autoinstrument.process_group import ProcessGroup
from kinetoscope.autoinstrument.settings import ENVIRONMENT_VARIABLE
from kinetoscope.autoinstrument.trial_files import GUARD_PIPE, open_guard_pipe
from kinetoscope.core.background.background_process import BackgroundProcess, wait_until_detached
from kinetoscope.core.background.jobs import job_command, run_job


@contextmanager
def guard_starts(folder: Path) -> Iterator[None]:
    """End the processes of all starts in a folder if this process dies meanwhile; delete the folder if it is empty."""
    pipe = open_guard_pipe(folder)
    guard = BackgroundProcess(lambda status, errors: None)
    guard.start(job_command(__name__, str(folder)))
    try:
        yield
    finally:
        guard.kill_and_wait()
        if pipe is not None:
            os.close(pipe)
            (folder / GUARD_PIPE).unlink(missing_ok=True)
        with suppress(OSError):  # the log of a start that failed is in it
            folder.rmdir()


def _end_orphans(folder: str) -> int:
    open_guard_pipe(Path(folder))  # until this process ends
    wait_until_detached()
    ProcessGroup(ENVIRONMENT_VARIABLE, folder).kill()
    Path(folder, GUARD_PIPE).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    run_job(_end_orphans)
