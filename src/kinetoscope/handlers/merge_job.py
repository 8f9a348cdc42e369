"""Job of a run: merge the traces of a node, once more if the run has not waited for it, and upload the merged trace."""

import time
from functools import partial
from pathlib import Path
from typing import Any

from kinetoscope.core.background.background_process import is_detached, lower_priority
from kinetoscope.core.background.jobs import run_job
from kinetoscope.handlers.merge_process import MergeTask
from kinetoscope.merge.manifest_merge import merge_or_link
from kinetoscope.merge.merge_mark import mark_merging
from kinetoscope.uploads.upload_queue import add_upload, delete_when_uploaded

_POLL_S = 1.0


def merge_and_upload(fields: dict[str, Any]) -> int:
    """Do the `MergeTask` with these fields, and return 0."""
    lower_priority()
    task = MergeTask(**fields)
    with mark_merging(Path(task.folder)):
        is_merged = _merge(task, task.wait_s)
        if task.again_s is not None and is_detached():  # the run has ended meanwhile and saved more
            is_merged = _merge(task, task.again_s)
    if is_merged and task.upload and is_detached():
        _upload(task, *task.upload)
    return 0


def _merge(task: MergeTask, wait_s: float) -> bool:
    return merge_or_link(
        Path(task.folder),
        Path(task.output),
        wait_s,
        node_rank=task.node_rank,
        start=task.start,
        as_list=task.as_list,
        num_cycles=task.num_cycles,
        run_folder=Path(task.run_folder),
        delete=partial(delete_when_uploaded, Path(task.run_folder)),
    )


def _upload(task: MergeTask, rank: int, url: str) -> None:
    """Upload the merged trace of a run that has ended meanwhile."""
    from kinetoscope.uploads.queue_drain import (  # only here: few merges upload
        BACKGROUND_RETRY_S,
        AllowedUploads,
        drain_queue,
    )

    run_folder, output = Path(task.run_folder), Path(task.output)
    add_upload(run_folder, rank, output, url)
    settings = {"retry_for_s": BACKGROUND_RETRY_S, "allowed": AllowedUploads([url], [output.parent])}
    while drain_queue(run_folder, rank, **settings).is_busy:
        time.sleep(_POLL_S)  # another process may have read the queue just before this upload was added


if __name__ == "__main__":
    run_job(merge_and_upload)
