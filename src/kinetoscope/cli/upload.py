"""The command ``kinetoscope upload``: upload the pending files of a run."""

import argparse
import json
import shlex
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from kinetoscope.cli.arg_types import parse_seconds
from kinetoscope.cli.options import add_json, add_ranks, add_run
from kinetoscope.cli.paths import find_run_folder
from kinetoscope.core.paths.remote_url import check_url, mask_credentials
from kinetoscope.core.text.wording import format_count, format_file_size
from kinetoscope.uploads.queue_drain import (
    AllowedUploads,
    UploadReport,
    describe_failures,
    drain_queue,
    format_entry,
)
from kinetoscope.uploads.upload_queue import QueuedUpload, find_ranks_with_uploads, read_queue

_RETRY_FOR_S = 60.0
_EXAMPLES = """\
examples:
  kinetoscope upload runs/digits
      list pending files and their destinations
  kinetoscope upload runs/digits --to s3://bucket/runs
      upload the files whose destination is this URL, or below it

Files are uploaded only to stores given with --to, and only from the run folder and
folders given with --also. Each upload is confirmed by size and checksum in the store. A
failed upload is retried until no upload has succeeded for 60 s (--retry-for); pending
files stay in the queue.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``upload``."""
    parser.epilog = _EXAMPLES
    add_run(parser)
    parser.add_argument(
        "--to", metavar="URL", action="append", default=[], help="upload files whose destination is URL, or below it"
    )
    parser.add_argument(
        "--also",
        metavar="DIR",
        action="append",
        default=[],
        type=Path,
        help="allow uploading files in DIR, outside the run folder",
    )
    add_ranks(parser, "--rank")
    parser.add_argument(
        "--retry-for",
        type=parse_seconds,
        metavar="SECONDS",
        default=_RETRY_FOR_S,
        help="stop after SECONDS without a successful upload (default: 60)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List or upload pending files; return 1 if some are left, or if another process is uploading."""
    folder = find_run_folder(arguments.run_folder)
    ranks = find_ranks_with_uploads(folder) if arguments.ranks is None else sorted(arguments.ranks)
    if not arguments.to:
        waiting = [upload for rank in ranks for upload in read_queue(folder, rank, deferred=True)]
        if arguments.json:
            print(json.dumps({"waiting": [_build_row(upload) for upload in waiting]}))
            return int(bool(waiting))
        return _list(folder, waiting)
    for url in arguments.to:
        check_url(url, "--to")
    allowed = AllowedUploads(arguments.to, arguments.also)
    reports = [
        drain_queue(folder, rank, retry_for_s=arguments.retry_for, deferred=True, allowed=allowed) for rank in ranks
    ]
    failures = [failure for report in reports for failure in report.failed]
    failures += [refused for report in reports for refused in report.refused]
    if arguments.json:
        print(json.dumps(_format_json(reports, failures)))
    else:
        print(_summarize(folder, reports))
    if failures and not arguments.json:
        print(describe_failures(failures), file=sys.stderr)
    return 1 if failures or any(report.is_busy for report in reports) else 0


def _list(folder: Path, waiting: list[QueuedUpload]) -> int:
    """Print pending files by store; return 1 if there are any."""
    if not waiting:
        print("No pending uploads.")
        return 0
    stores: defaultdict[str, list[QueuedUpload]] = defaultdict(list)
    for upload in waiting:
        scheme, _, rest = upload.upload.url.partition("://")
        stores[f"{scheme}://{rest.partition('/')[0]}"].append(upload)
    for store, uploads in stores.items():
        print(f"{format_entry(store)}: {format_count(len(uploads), 'file')}")
        for upload in uploads:
            print(f"  {format_entry(upload.upload.path)} -> {format_entry(upload.upload.url)}")
    print(
        f"Still to be uploaded: {format_count(len(waiting), 'file')}. To upload those that go to URL: "
        f"kinetoscope upload {shlex.quote(str(folder))} --to URL"
    )
    return 1


def _build_row(waiting: QueuedUpload) -> dict[str, str]:
    return {"path": waiting.upload.path, "url": mask_credentials(waiting.upload.url)}


def _format_json(reports: list[UploadReport], failures: list[tuple[QueuedUpload, str]]) -> dict[str, Any]:
    confirmed = [upload for report in reports for upload in report.confirmed]
    return {
        "num_uploaded": len(confirmed),
        "uploaded_bytes": sum(upload.size_bytes for upload in confirmed),
        "waiting": [_build_row(waiting) | {"reason": mask_credentials(reason)} for waiting, reason in failures],
        "busy_ranks": [report.rank for report in reports if report.is_busy],
    }


def _summarize(folder: Path, reports: list[UploadReport]) -> str:
    confirmed = [upload for report in reports for upload in report.confirmed]
    size = format_file_size(sum(upload.size_bytes for upload in confirmed))
    done = f"Uploaded {format_count(len(confirmed), 'file')} of {folder} ({size})."
    lines = [done if confirmed else "Nothing was uploaded."]
    lines += [
        f"Another process is uploading what rank {report.rank} left. Run this again when it has ended."
        for report in reports
        if report.is_busy
    ]
    return "\n".join(lines)
