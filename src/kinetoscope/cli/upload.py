"""cli: ``kinetoscope upload``. A run's folder flows in; what had not been uploaded flows into the store."""

import argparse
import shlex
import sys
from collections import defaultdict
from pathlib import Path

from kinetoscope.storage.draining import RETRY_BESIDE_TRAINING_FOR_S, AllowedUploads, UploadReport, upload_waiting
from kinetoscope.storage.upload_queue import WaitingUpload, ranks_with_uploads, read_queue
from kinetoscope.training.remote_url import check_url, without_credentials
from kinetoscope.training.wording import counted, printable
from kinetoscope.writing.side_process import give_way

_MOST_NAMED = 20
_RETRY_FOR_S = 60.0
_EXAMPLES = """\
examples:
  kinetoscope upload runs/digits
      says what a run had to leave, because the store did not answer or the run was killed, and where it would go
  kinetoscope upload runs/digits --to s3://bucket/runs
      uploads of it what goes to that place or below it

What a run's folder says of other places is followed only if you name them: the store by --to, and a folder outside of
the run's by --also. Each file is confirmed: the store is asked for its size and checksum. A file that fails is tried
again until nothing has succeeded for a minute (--retry-for). What is given up stays in the queue.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``upload``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("run_folder", metavar="RUN_FOLDER", type=Path, help="the folder of the run")
    parser.add_argument("--to", metavar="URL", action="append", default=[], help="upload what goes to URL or below it")
    parser.add_argument(
        "--also", metavar="DIR", action="append", default=[], type=Path, help="also files in DIR, outside of the run's"
    )
    parser.add_argument("--rank", type=int, metavar="R", help="only what this rank left")
    parser.add_argument("--retry-for", type=float, metavar="S", help="seconds without any success after which to stop")
    parser.add_argument("--from-training", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Lists, or uploads; 0 if nothing is left, else 1: what another process is uploading is not up yet."""
    folder = arguments.run_folder
    ranks = ranks_with_uploads(folder) if arguments.rank is None else [arguments.rank]
    if not arguments.to:
        return _list(folder, [upload for rank in ranks for upload in read_queue(folder, rank, left_aside=True)])
    for url in arguments.to:
        check_url(url, "--to")
    beside_training = arguments.from_training
    if beside_training:
        give_way()
    retry_for_s = arguments.retry_for or (RETRY_BESIDE_TRAINING_FOR_S if beside_training else _RETRY_FOR_S)
    allowed = AllowedUploads(arguments.to, arguments.also)
    reports = [
        upload_waiting(folder, rank, retry_for_s=retry_for_s, left_aside=not beside_training, allowed=allowed)
        for rank in ranks
    ]
    print(_summary(folder, reports))
    failures = [failure for report in reports for failure in report.failed]
    if not beside_training:  # which has said so when it began
        failures += [left for report in reports for left in report.left]
    if failures:
        print(_failures(failures), file=sys.stderr)
    return 1 if failures or any(report.is_busy for report in reports) else 0


def _list(folder: Path, waiting: list[WaitingUpload]) -> int:
    if not waiting:
        print("Nothing waits to be uploaded.")
        return 0
    stores: defaultdict[str, list[WaitingUpload]] = defaultdict(list)
    for upload in waiting:
        scheme, _, rest = upload.upload.url.partition("://")
        stores[f"{scheme}://{rest.partition('/')[0]}"].append(upload)
    for store, uploads in stores.items():
        print(f"{_shown(store)}: {counted(len(uploads), 'file')}")
        for upload in uploads:
            print(f"  {_shown(upload.upload.path)} -> {_shown(upload.upload.url)}")
    print(
        f"Still to be uploaded: {counted(len(waiting), 'file')}. To upload what goes to a place of yours: "
        f"kinetoscope upload {shlex.quote(str(folder))} --to URL"
    )
    return 1


def _summary(folder: Path, reports: list[UploadReport]) -> str:
    confirmed = [upload for report in reports for upload in report.confirmed]
    size = sum(upload.size_bytes for upload in confirmed) / 1e6
    done = f"Uploaded {counted(len(confirmed), 'file')} of {folder} ({size:.1f} MB)."
    lines = [done if confirmed else "Nothing was uploaded."]
    lines += [
        f"Another process is uploading what rank {report.rank} left. Run this again when it has ended."
        for report in reports
        if report.is_busy
    ]
    return "\n".join(lines)


def _failures(failures: list[tuple[WaitingUpload, str]]) -> str:
    lines = [f"Not uploaded, and still there: {counted(len(failures), 'file')}."]
    lines += [
        f"  {_shown(waiting.upload.path)} -> {_shown(waiting.upload.url)}: {_shown(reason)}"
        for waiting, reason in failures[:_MOST_NAMED]
    ]
    if len(failures) > _MOST_NAMED:
        lines.append(f"  and {len(failures) - _MOST_NAMED} more")
    return "\n".join(lines)


def _shown(text: str) -> str:
    """What stands in a file of the queue, as it may be printed."""
    return printable(without_credentials(text))
