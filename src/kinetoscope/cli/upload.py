"""cli: ``kinetoscope upload``. A run's folder flows in; what had not been uploaded flows into the store."""

import argparse
import os
import sys
from pathlib import Path

from kinetoscope.formats.upload_queue import WaitingUpload, ranks_with_uploads, read_queue
from kinetoscope.storage.draining import RETRY_BESIDE_TRAINING_FOR_S, UploadReport, upload_waiting

_NICENESS = 10
_MOST_NAMED = 20
_RETRY_FOR_S = 60.0
_EXAMPLES = """\
examples:
  kinetoscope upload runs/digits
      uploads what a run had to leave, because the store did not answer or the run was killed
  kinetoscope upload runs/digits --list
      says what that is, and uploads nothing

Each file is confirmed: the store is asked for its size and checksum. A file that fails is tried again until nothing has
succeeded for a minute (--retry-for). What is given up stays in the queue.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``upload``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("run_folder", metavar="RUN_FOLDER", type=Path, help="the folder of the run")
    parser.add_argument("--rank", type=int, metavar="R", help="only what this rank left")
    parser.add_argument("--retry-for", type=float, metavar="S", help="seconds without any success after which to stop")
    parser.add_argument("--list", action="store_true", help="say what waits, and upload nothing")
    parser.add_argument("--from-training", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Uploads; 0 if nothing is left, else 1."""
    folder = arguments.run_folder
    ranks = ranks_with_uploads(folder) if arguments.rank is None else [arguments.rank]
    if arguments.list:
        return _list([it for rank in ranks for it in read_queue(folder, rank, left_aside=True)])
    beside_training = arguments.from_training
    if beside_training:
        os.nice(_NICENESS)
    retry_for_s = arguments.retry_for or (RETRY_BESIDE_TRAINING_FOR_S if beside_training else _RETRY_FOR_S)
    reports = [upload_waiting(folder, rank, retry_for_s=retry_for_s, left_aside=not beside_training) for rank in ranks]
    print(_summary(folder, reports))
    failures = [failure for report in reports for failure in report.failed]
    if failures:
        print(_failures(failures), file=sys.stderr)
    return 1 if failures else 0


def _list(waiting: list[WaitingUpload]) -> int:
    for it in waiting:
        print(f"{it.upload.path} -> {it.upload.url}")
    print(f"{len(waiting)} files wait to be uploaded." if waiting else "Nothing waits to be uploaded.")
    return 0


def _summary(folder: Path, reports: list[UploadReport]) -> str:
    confirmed = [it for report in reports for it in report.confirmed]
    size = sum(it.size_bytes for it in confirmed) / 1e6
    lines = [f"Uploaded {len(confirmed)} files of {folder} ({size:.1f} MB)." if confirmed else "Nothing was uploaded."]
    lines += [f"Another process is uploading what rank {it.rank} left." for it in reports if it.is_busy]
    return "\n".join(lines)


def _failures(failures: list[tuple[WaitingUpload, str]]) -> str:
    lines = [f"{len(failures)} files were not uploaded; they are still there:"]
    lines += [f"  {it.upload.path} -> {it.upload.url}: {reason}" for it, reason in failures[:_MOST_NAMED]]
    if len(failures) > _MOST_NAMED:
        lines.append(f"  and {len(failures) - _MOST_NAMED} more")
    return "\n".join(lines)
