"""``kinetoscope recover``: makes traces from what killed processes of a run left."""

import argparse
import sys
from functools import partial
from pathlib import Path

from kinetoscope.handlers.recover import RecoveredMerge, RecoveredRank, UnrecoveredRank, recover
from kinetoscope.merge.manifest_merge import find_attempt, merge_manifest
from kinetoscope.storage.upload_queue import add_upload, delete_when_uploaded, read_queue
from kinetoscope.training.wording import counted, printable, printable_lines

_EXAMPLES = """\
examples:
  kinetoscope recover runs/digits
      after a kill -9, an out-of-memory kill or a crash: writes the traces that the run would have written at its end
  kinetoscope recover runs/digits --keep
      the same, and keeps the files that the traces were made from
  kinetoscope recover /local/live --traces /shared/runs/digits/traces
      for a run with live_folder=/local/live: writes outside of the given folder only to places that you name

Spans that were open when a process was killed end with its last record, and are marked as cut. What torch's own
profiler had recorded in the open window is lost, because it was in the process's memory.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``recover``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("run_folder", metavar="RUN_FOLDER", help="the folder of the run: the one with `live` in it")
    parser.add_argument(
        "--traces",
        metavar="DIR",
        action="append",
        default=[],
        help="a folder outside of RUN_FOLDER to which the run wrote traces: allows writing there",
    )
    parser.add_argument(
        "--other-hosts",
        action="store_true",
        help="also recover ranks of other machines; only if you know that they no longer run",
    )
    parser.add_argument(
        "--without-redaction",
        action="store_true",
        help="also recover what a run with redact= left; the traces then have all names as they were recorded",
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the live folders afterwards")


def run(arguments: argparse.Namespace) -> int:
    """Recovers every killed rank, then merges; returns the exit code."""
    settings = {"keep": arguments.keep, "other_hosts": arguments.other_hosts, "traces": arguments.traces}
    settings["without_redaction"] = arguments.without_redaction
    found = list(recover(arguments.run_folder, **settings, say=_say))
    if not found:
        print(
            f"Nothing to recover in {arguments.run_folder}: its processes still run, or ran on another machine. If you "
            "know that those have ended, pass --other-hosts."
        )
        return 0
    ranks = [rank for rank in found if isinstance(rank, RecoveredRank)]
    failed = [rank for rank in found if isinstance(rank, UnrecoveredRank)]
    for rank in ranks:
        print(printable_lines(_summary(rank)))
    for rank in failed:
        reason = printable_lines(f"{rank.live_folder} stays as it is. {rank.error}")
        print(f"kinetoscope recover: {reason}", file=sys.stderr)
    for (merge, _), of_merge in _by_merge(ranks).items():
        _merge(Path(arguments.run_folder), merge, of_merge)
    if num_waiting := sum(len(read_queue(Path(arguments.run_folder), rank.run.rank)) for rank in ranks):
        waiting = counted(num_waiting, "file")
        print(f"Still to be uploaded: {waiting}. To see them: kinetoscope upload {arguments.run_folder}")
    return 1 if failed else 0


def _say(sentence: str) -> None:
    print(printable_lines(sentence), file=sys.stderr)


def _by_merge(ranks: list[RecoveredRank]) -> dict[tuple[RecoveredMerge, int], list[RecoveredRank]]:
    """The ranks in each merged file of each node."""
    found: dict[tuple[RecoveredMerge, int], list[RecoveredRank]] = {}
    for rank in ranks:
        for merge in dict.fromkeys(rank.merges):
            found.setdefault((merge, rank.run.node_rank), []).append(rank)
    return found


def _merge(run_folder: Path, merge: RecoveredMerge, ranks: list[RecoveredRank]) -> None:
    """Merges the attempts of the ``ranks``, each with what its other ranks have saved, and queues the files."""
    merged: set[str] = set()
    for run in (rank.run for rank in ranks):
        if run.start in merged:
            continue
        attempt = find_attempt(merge.folder, run.node_rank, run.start)
        merged |= attempt.starts
        report = merge_manifest(
            merge.folder,
            merge.output,
            as_list=merge.as_list,
            node_rank=run.node_rank,
            start=run.start,
            run_folder=run_folder,
            replaces=False,
            delete=partial(delete_when_uploaded, run_folder),
        )
        if report:
            files, of_ranks = counted(report.num_files, "file"), counted(len(report.ranks), "rank")
            print(f"Merged {files} of {of_ranks} into {report.output}.")
            if merge.url:
                url = merge.url if report.output == merge.output else attempt.own_name(merge.url)
                add_upload(run_folder, run.rank, report.output, url)


def _summary(rank: RecoveredRank) -> str:
    num_spans = sum(thread.num_spans for thread in rank.threads.values())
    num_open = sum(thread.num_open for thread in rank.threads.values())
    lines = [f"Rank {rank.run.rank}: {num_spans:,} finished spans and {num_open} open ones in {rank.live_folder}."]
    lines += [
        f"  {printable(thread.name)}: {thread.num_spans:,} finished, {thread.num_open} open"
        for thread in rank.threads.values()
    ]
    lines += [f"  Written to {path}" for path in rank.traces]
    return "\n".join(lines + [f"  Damaged: {damage}" for damage in rank.damages])
