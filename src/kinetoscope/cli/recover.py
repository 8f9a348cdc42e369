"""cli: ``kinetoscope recover``. A run's folder flows in; traces of what its killed processes left flow out."""

import argparse
import sys
from functools import partial
from pathlib import Path

from kinetoscope.formats.upload_queue import delete_when_uploaded, read_queue
from kinetoscope.handlers.recover import RecoveredRank, UnrecoveredRank, recover
from kinetoscope.merge.manifest_merge import merge_manifest
from kinetoscope.training.attempt import Attempt

_EXAMPLES = """\
examples:
  kinetoscope recover runs/digits
      after a kill -9, an out-of-memory kill or a crash: writes the trace files that a clean end would have written
  kinetoscope recover runs/digits --keep
      the same, and leaves what it was made from where it is
  kinetoscope recover /local/live --traces /shared/runs/digits/traces
      of a run with live_folder=/local/live: what a run's folder says of other places is followed only if you name them

Spans that were open when a process died end with the last thing it recorded, and are marked as cut. What torch's own
profiler had recorded in the open window is lost: it lives in the process's memory.
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
        help="a folder outside of RUN_FOLDER to which the run wrote traces: only with this are they written there",
    )
    parser.add_argument(
        "--other-hosts",
        action="store_true",
        help="also what ranks of other machines left; only when you know that they no longer run",
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the live folders afterwards")


def run(arguments: argparse.Namespace) -> int:
    """Recovers every killed rank, then merges; returns the exit code."""
    settings = {"keep": arguments.keep, "other_hosts": arguments.other_hosts, "traces": arguments.traces}
    found = list(recover(arguments.run_folder, **settings, say=partial(print, file=sys.stderr)))
    if not found:
        print(
            f"Nothing to recover in {arguments.run_folder}: its processes still run, or are another machine's. If you "
            "know that those are dead, pass --other-hosts."
        )
        return 0
    ranks = [rank for rank in found if isinstance(rank, RecoveredRank)]
    failed = [rank for rank in found if isinstance(rank, UnrecoveredRank)]
    for rank in ranks:
        print(_summary(rank))
    for rank in failed:
        print(f"kinetoscope recover: {rank.live_folder} stays as it is. {rank.error}", file=sys.stderr)
    run_folder = Path(arguments.run_folder)
    delete = partial(delete_when_uploaded, run_folder)
    for folder, output, as_list, node_rank, attempt in _merges(ranks):
        report = merge_manifest(
            folder,
            output,
            as_list=as_list,
            node_rank=node_rank,
            attempt=attempt,
            run_folder=run_folder,
            delete=delete,
        )
        if report:
            print(f"Merged {report.num_files} files of {len(report.ranks)} ranks into {report.output}.")
    if num_waiting := sum(len(read_queue(Path(arguments.run_folder), rank.run.rank)) for rank in ranks):
        print(f"{num_waiting} files wait to be uploaded: kinetoscope upload {arguments.run_folder}")
    return 1 if failed else 0


def _merges(ranks: list[RecoveredRank]) -> list[tuple]:
    """What to merge, once for each folder of each node."""
    found = {}
    for rank in ranks:
        attempt = Attempt(rank.run.run_id, rank.run.restart, rank.run.pid).name
        for merge in rank.merges:
            found[*merge, rank.run.node_rank, attempt] = None
    return list(found)


def _summary(rank: RecoveredRank) -> str:
    num_spans = sum(thread.num_spans for thread in rank.threads)
    num_open = sum(thread.num_open for thread in rank.threads)
    lines = [f"Rank {rank.run.rank}: {num_spans:,} finished spans and {num_open} open ones in {rank.live_folder}."]
    lines += [f"  {it.name}: {it.num_spans:,} finished, {it.num_open} open" for it in rank.threads]
    lines += [f"  Written to {path}" for path in rank.traces]
    return "\n".join(lines + [f"  Damaged: {damage}" for damage in rank.damages])
