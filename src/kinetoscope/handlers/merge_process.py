"""Runs the merge of the node's traces in a process beside training: both sides, the one that trains and the other."""

import dataclasses
import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from kinetoscope.errors import KinetoscopeError
from kinetoscope.texts.once_log import OnceLog
from kinetoscope.texts.wording import printable_lines
from kinetoscope.writing.side_process import SideProcess, give_way, is_left

_log = logging.getLogger("kinetoscope")
_LEAST_SECONDS_BETWEEN = 60.0
_WAIT_FOR_RANKS_S = 10.0
_SHARE_FOR_RANKS = 0.7  # of the time that a close waits; the rest is for the merge
_WAIT_FOR_CYCLES_S = 5.0
# A process that ends just as the time is up may not have noticed that nobody waits for it.
_LAST_LOOK_S = 0.25
_BETWEEN_LOOKS_S = 1.0


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What the process beside training is told, as JSON: the arguments of `merge_manifest`, and what it does if nobody
    waits for it any more when it has merged."""

    folder: str
    output: str
    run_folder: str
    node_rank: int
    start: str
    as_list: bool
    upload: tuple[int, str] | None
    """The rank whose queue the merged file goes into, and its URL."""
    wait_s: float = 0.0
    num_cycles: int | None = None
    again_s: float | None = None
    """How long to wait for other ranks when what was saved meanwhile is merged too; None: it is not."""


class MergeProcess:
    """Runs ``python -m kinetoscope.handlers.merge_process``, one at a time, at low priority.

    A process that still runs when nobody waits for it any more finishes by itself. If it was started beside training,
    it then merges once more, with what was saved since, and uploads the merged file: ``upload`` is the rank whose queue
    the file goes into, and the URL.
    """

    def __init__(
        self,
        folder: Path,
        output: Path,
        *,
        node_rank: int,
        start: str,
        run_folder: Path,
        as_list: bool = False,
        upload: tuple[int, str] | None = None,
    ) -> None:
        self._output = output
        self._task = MergeTask(str(folder), str(output), str(run_folder), node_rank, start, as_list, upload)
        self._process = SideProcess(self._report)
        self._last_start = monotonic()
        self._failed = False
        self._once = OnceLog()

    def start_if_due(self) -> None:
        """Merges the saved traces, unless a merge started within the last minute or is running."""
        if monotonic() - self._last_start >= _LEAST_SECONDS_BETWEEN and not self._process.is_running:
            self._start(again_s=_WAIT_FOR_RANKS_S)

    def finish(self, timeout_s: float, num_cycles: int | None = None) -> bool:
        """Merges at the end of the run. Returns whether the merged file is there.

        The process waits for the node's other ranks, except for those that have saved ``num_cycles``. This call waits
        for the process at most ``timeout_s`` seconds; after that the process finishes by itself.
        """
        until = monotonic() + timeout_s
        if self._process.wait(until):
            if num_cycles is None:
                self._start(wait_s=min(_WAIT_FOR_RANKS_S, _SHARE_FOR_RANKS * timeout_s))
            else:
                self._start(wait_s=_WAIT_FOR_CYCLES_S, num_cycles=num_cycles)
        if not self._process.wait(until):
            self._process.leave()
        if not self._process.wait(until + _LAST_LOOK_S):
            _log.warning("Merging into %s continues in process %d.", self._output, self._process.pid)
            return False
        return not self._failed and self._output.exists()

    def _start(self, *, wait_s: float = 0.0, num_cycles: int | None = None, again_s: float | None = None) -> None:
        self._last_start = monotonic()
        task = dataclasses.replace(self._task, wait_s=wait_s, num_cycles=num_cycles, again_s=again_s)
        try:
            self._process.start([sys.executable, "-m", __name__, json.dumps(dataclasses.asdict(task))])
        except OSError as error:
            self._failed = True
            _log.error("Merging into %s cannot be started: %s.", self._output, error)

    def _report(self, status: int, errors: str) -> None:
        self._failed = status != 0
        if status:
            _log.error("Merging into %s failed: %s", self._output, errors or f"exit status {status}")
        elif errors:
            self._once.warn("%s", errors, about=errors)


# -- the other process, whose imports are no business of the one that trains --


def _work(task: MergeTask) -> int:
    """Merges, and returns the exit code; what is wrong is a line on stderr."""
    from kinetoscope.merge.merge_mark import marked_as_merging

    give_way()
    try:
        with marked_as_merging(Path(task.folder)):
            is_merged = _merge(task, task.wait_s)
            if task.again_s is not None and is_left():  # the run has ended meanwhile and saved more
                is_merged = _merge(task, task.again_s)
        if is_merged and task.upload and is_left():
            _upload(task, *task.upload)
    except (KinetoscopeError, OSError) as error:
        print(printable_lines(error), file=sys.stderr)
        return 1
    return 0


def _merge(task: MergeTask, wait_s: float) -> bool:
    from kinetoscope.merge.manifest_merge import merge_or_link
    from kinetoscope.storage.upload_queue import delete_when_uploaded

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
    """Uploads the merged trace of a run that has ended meanwhile."""
    from kinetoscope.storage.draining import RETRY_BESIDE_TRAINING_FOR_S, AllowedUploads, upload_waiting
    from kinetoscope.storage.upload_queue import add_upload

    run_folder, output = Path(task.run_folder), Path(task.output)
    add_upload(run_folder, rank, output, url)
    settings = {"retry_for_s": RETRY_BESIDE_TRAINING_FOR_S, "allowed": AllowedUploads([url], [output.parent])}
    while upload_waiting(run_folder, rank, **settings).is_busy:
        time.sleep(_BETWEEN_LOOKS_S)  # another process may have looked for uploads just before this one was added


if __name__ == "__main__":
    status = _work(MergeTask(**json.loads(sys.argv[1])))
    sys.stderr.flush()
    os._exit(status)  # all is written; to take apart what was imported would be a fifth of this process's time
