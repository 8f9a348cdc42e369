"""The command ``kinetoscope recover``: traces from the unsaved data of killed processes."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from kinetoscope.cli.options import add_json, add_run
from kinetoscope.cli.paths import find_run_folder
from kinetoscope.core.paths.attempt_folders import attempt_folder, find_attempt_folders, parse_attempt_name
from kinetoscope.core.text.wording import format_count, sanitize_lines, sanitize_sentence
from kinetoscope.errors import KinetoscopeError
from kinetoscope.handlers.recover import RecoveredMerge, RecoveredRank, UnrecoveredRank, recover
from kinetoscope.merge.manifest_merge import find_attempt, merge_manifest
from kinetoscope.native import require_recorder
from kinetoscope.uploads.upload_queue import add_upload, delete_when_uploaded, read_queue

_EXAMPLES = """\
examples:
  kinetoscope recover runs/digits
      write the traces that a killed or crashed run would have written at its end
  kinetoscope recover runs/digits --keep
      do the same, and keep the spool
  kinetoscope recover runs/digits --discard
      do the same, and delete unreadable data as well
  kinetoscope recover /local/live --traces /nfs/runs/digits/traces
      recover a run with spool_folder=/local/live and its traces elsewhere

Spans that were open at the kill end with the last record of their process, and are
marked as truncated. The events of torch's own profiler in the open profiling window are
lost: they were in the memory of the process. Exit code 1: some data could not be read,
written or merged; the output names it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``recover``."""
    parser.epilog = _EXAMPLES
    add_run(parser)
    parser.add_argument(
        "--traces",
        metavar="DIR",
        action="append",
        default=[],
        help="allow writing to DIR, where the run wrote its traces",
    )
    parser.add_argument(
        "--other-hosts",
        action="store_true",
        help="recover ranks of other machines as well; make sure that they no longer run",
    )
    parser.add_argument(
        "--without-redaction",
        action="store_true",
        help="recover a run with redact= as well; the traces then contain all recorded names",
    )
    endings = parser.add_mutually_exclusive_group()
    endings.add_argument("--keep", action="store_true", help="keep the spool")
    endings.add_argument(
        "--discard",
        action="store_true",
        help="delete the spool even if some of it could not be read",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Recover each killed rank, then merge; return 1 if some data could not be read, written or merged."""
    require_recorder()  # before its error would be that of each window
    run_folder = find_run_folder(arguments.run_folder)
    settings = {"keep": arguments.keep, "other_hosts": arguments.other_hosts, "traces": arguments.traces}
    settings |= {"without_redaction": arguments.without_redaction, "discard": arguments.discard}
    print_line = _discard if arguments.json else _print
    found = list(recover(run_folder, **settings, log=_print_to_stderr))
    if not found:
        print_line(
            f"Nothing to recover in {run_folder}: its processes still run, or ran on another machine. If you "
            "know that those have ended, pass --other-hosts."
        )
    ranks = [rank for rank in found if isinstance(rank, RecoveredRank)]
    failed = [rank for rank in found if isinstance(rank, UnrecoveredRank)]
    for rank in ranks:
        print_line(_summarize(rank))
    for sentence in dict.fromkeys(_describe_later_attempts(rank, run_folder) for rank in ranks):
        print_line(sentence)
    merges = _group_by_merge(ranks).items()
    failures = [_try_merge(run_folder, merge, of_merge, print_line) for (merge, _), of_merge in merges]
    failures += [_describe_kept(rank, run_folder) for rank in ranks if rank.is_kept]
    failures += [f"{rank.spool_folder} stays as it is. {rank.reason}" for rank in failed if not rank.is_discarded]
    for rank in found:
        print_line(_describe_deleted(rank))
    for failure in filter(None, failures):
        _print_to_stderr(f"kinetoscope recover: {failure}")
    num_waiting = sum(len(read_queue(run_folder, rank.run.ranks.rank)) for rank in ranks)
    if num_waiting:
        waiting = format_count(num_waiting, "file")
        print_line(f"Still to be uploaded: {waiting}. To see them: kinetoscope upload {quote(str(run_folder))}")
    if arguments.json:
        rows = [_build_row(rank) for rank in ranks] + [_build_failed_row(rank) for rank in failed]
        print(json.dumps({"ranks": rows, "failures": [*filter(None, failures)], "num_waiting_uploads": num_waiting}))
    return 1 if any(failures) else 0


def _print(sentence: str) -> None:
    if sentence:
        print(sanitize_lines(sentence))


def _discard(sentence: str) -> None:
    del sentence


def _build_row(rank: RecoveredRank) -> dict[str, Any]:
    return {
        "rank": rank.run.ranks.rank,
        "attempt": rank.run.attempt.restart,
        "spool_folder": str(rank.spool_folder),
        "traces": [str(path) for path in rank.traces],
        "num_finished_spans": sum(thread.num_spans for thread in rank.threads.values()),
        "num_open_spans": sum(thread.num_open for thread in rank.threads.values()),
        "is_kept": rank.is_kept,
        "problems": [*rank.damages, *rank.unwritten],
    }


def _build_failed_row(rank: UnrecoveredRank) -> dict[str, Any]:
    none = {"rank": None, "attempt": None, "traces": [], "num_finished_spans": None, "num_open_spans": None}
    return none | {
        "spool_folder": str(rank.spool_folder),
        "is_kept": not rank.is_discarded,
        "problems": [rank.reason],
    }


def _describe_later_attempts(rank: RecoveredRank, run_folder: Path) -> str:
    """Return a sentence on later restart attempts of the run; "" if there is none."""
    restart = rank.run.attempt.restart
    for folder in dict.fromkeys(merge.folder for merge in rank.merges):
        traces = folder if parse_attempt_name(folder.name) is None else folder.parent
        last = max(find_attempt_folders(traces), default=0)
        if last > restart:
            return (
                f"That was attempt {restart} of the run. The last one is {last}, in {attempt_folder(traces, last)}: "
                f"kinetoscope summary {quote(str(run_folder))} reads that one; to read this one, add "
                f"--attempt {restart}."
            )
    return ""


def _describe_kept(rank: RecoveredRank, run_folder: Path) -> str:
    """Return sentences on data of a rank that is in no trace and was kept; "" without any."""
    if rank.undeleted:
        return f"All that {rank.spool_folder} holds is in the traces. {rank.undeleted}"
    if rank.is_complete:
        return ""
    found = [f"{rank.spool_folder} stays as it is: not all that is in it is in the traces."]
    found += [f"  {missing}" for missing in [*rank.damages, *rank.unwritten]]
    command = f"kinetoscope recover {quote(str(run_folder))}"
    if rank.unwritten:
        found.append(f"After fixing this, run again: {command}")
    else:
        found.append(f"To delete this data: {command} --discard")
    return "\n".join(found)


def _describe_deleted(rank: RecoveredRank | UnrecoveredRank) -> str:
    """Return sentences on data that was deleted although it is in no trace; "" without any."""
    if isinstance(rank, UnrecoveredRank):
        return f"Deleted {rank.spool_folder}; nothing was recovered from it. {rank.reason}" if rank.is_discarded else ""
    if rank.is_complete or rank.is_kept:
        return ""
    return "\n".join(
        [f"Deleted {rank.spool_folder}, including unreadable data:", *(f"  {one}" for one in rank.damages)]
    )


def _print_to_stderr(sentence: str) -> None:
    print(sanitize_lines(sentence), file=sys.stderr)


def _group_by_merge(ranks: list[RecoveredRank]) -> dict[tuple[RecoveredMerge, int], list[RecoveredRank]]:
    """Return the ranks of each merged file, by node."""
    found: dict[tuple[RecoveredMerge, int], list[RecoveredRank]] = {}
    for rank in ranks:
        for merge in dict.fromkeys(rank.merges):
            found.setdefault((merge, rank.run.ranks.node_rank), []).append(rank)
    return found


def _try_merge(
    run_folder: Path, merge: RecoveredMerge, ranks: list[RecoveredRank], print_line: Callable[[str], None]
) -> str:
    """Merge the recovered traces; return the reason if that failed, else ""."""
    try:
        _merge(run_folder, merge, ranks, print_line)
    except (KinetoscopeError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return f"The traces in {merge.folder} are complete, but not merged into {merge.output.name}: {reason}"
    return ""


def _merge(
    run_folder: Path, merge: RecoveredMerge, ranks: list[RecoveredRank], print_line: Callable[[str], None]
) -> None:
    """Merge the attempts of the ``ranks`` with the saved traces of their other ranks, and queue the files."""
    merged: set[str] = set()
    for run in (rank.run for rank in ranks):
        if run.attempt.start in merged:
            continue
        attempt = find_attempt(merge.folder, run.ranks.node_rank, run.attempt.start)
        merged |= attempt.starts
        report = merge_manifest(
            merge.folder,
            merge.output,
            as_list=merge.as_list,
            node_rank=run.ranks.node_rank,
            start=run.attempt.start,
            run_folder=run_folder,
            replaces=False,
            delete=partial(delete_when_uploaded, run_folder),
        )
        if report:
            files, of_ranks = format_count(report.num_files, "file"), format_count(len(report.ranks), "rank")
            print_line(f"Merged {files} of {of_ranks} into {report.output}.")
            if merge.url:
                url = merge.url if report.output == merge.output else attempt.add_start_to_name(merge.url)
                add_upload(run_folder, run.ranks.rank, report.output, url)


def _summarize(rank: RecoveredRank) -> str:
    """Return lines on the recovered spans of a rank, by thread."""
    num_spans = sum(thread.num_spans for thread in rank.threads.values())
    num_open = sum(thread.num_open for thread in rank.threads.values())
    lines = [
        f"Rank {rank.run.ranks.rank}: {num_spans:,} finished spans and {num_open} open ones in {rank.spool_folder}."
    ]
    lines += [
        f"  {sanitize_sentence(thread.name)}: {thread.num_spans:,} finished, {thread.num_open} open"
        for thread in rank.threads.values()
    ]
    return "\n".join(lines + [f"  Written to {path}" for path in rank.traces])
