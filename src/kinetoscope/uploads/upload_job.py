"""Job of a run: upload the queue of a rank."""

import sys
from collections.abc import Sequence
from pathlib import Path

from kinetoscope.core.background.background_process import lower_priority
from kinetoscope.core.background.jobs import run_job
from kinetoscope.uploads.queue_drain import (
    BACKGROUND_RETRY_S,
    AllowedUploads,
    describe_failures,
    drain_queue,
)


def upload_rank(run_folder: str, rank: int, urls: Sequence[str], folders: Sequence[str]) -> int:
    """Upload the queue of ``rank`` to ``urls``, from the run folder and from ``folders``, and print failures.

    Uploads that are not allowed are no failures: the run has logged them. Return 1 after a failure, and if another
    process uploads the queue.
    """
    lower_priority()
    allowed = AllowedUploads(urls, list(map(Path, folders)))
    report = drain_queue(Path(run_folder), rank, retry_for_s=BACKGROUND_RETRY_S, allowed=allowed)
    if report.failed:
        print(describe_failures(report.failed), file=sys.stderr)
    return int(bool(report.failed or report.is_busy))


if __name__ == "__main__":
    run_job(upload_rank)
