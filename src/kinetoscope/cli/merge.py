"""``kinetoscope merge``: merges traces into one, and prints a line about it."""

import argparse
import dataclasses
import json
import sys
from functools import partial
from pathlib import Path

from kinetoscope.cli.numbers import given, seconds, whole_number, whole_numbers
from kinetoscope.cli.options import PATH, add_attempt, add_force, add_json, add_last, add_output, add_ranks
from kinetoscope.cli.paths import require_free, require_output, trace_inputs
from kinetoscope.cli.progress import progress_bar
from kinetoscope.errors import SettingsError
from kinetoscope.merge.manifest_merge import merge_manifest
from kinetoscope.merge.merge_traces import MergeReport, Progress, merge_traces
from kinetoscope.merge.window import Window
from kinetoscope.storage.upload_queue import delete_when_uploaded
from kinetoscope.texts.wording import counted, printable_lines, sized
from kinetoscope.writing.side_process import give_way

_EXAMPLES = """\
examples:
  kinetoscope merge rank0.json rank1.json -o merged.json
      two ranks, each a process in the merged trace
  kinetoscope merge runs/digits -o merged.json.gz
      all traces of a run, or in a folder, into a gzip file
  kinetoscope merge 'logs/*.pt.trace.json' -o merged.json --align-on 'ProfilerStep#100'
      traces whose clocks cannot be compared, aligned on a span that all of them have
  kinetoscope merge runs/digits -o some.pftrace --ranks 0,4-7 --batches 10-14
      five batches of five ranks, in Perfetto's own format, which is smaller and faster to open
  kinetoscope merge --from-manifest runs/digits/traces -o runs/digits/traces/merged_trace.json --wait 30
      what the ranks of this node have finished, after waiting up to 30 seconds for ranks that still write

Without -o, the first path is the output.
The merged trace opens in https://ui.perfetto.dev and in chrome://tracing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``merge``."""
    parser.epilog = _EXAMPLES
    parser.usage = (
        "kinetoscope merge PATH... -o OUTPUT [--align-on SPAN [--align-all]] [--ranks LIST]\n"
        "                         [--batches N-M | --last SECONDS] [--attempt N] [--nice] [--force] [--json]\n"
        "       kinetoscope merge --from-manifest FOLDER -o OUTPUT [--wait SECONDS] [--node-rank N] [--json]"
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help=PATH + "; - is stdin")
    add_output(
        parser, "the file to write: .json or .pftrace, with .gz or .zst compressed; may be an input; - is stdout"
    )
    parser.add_argument("--align-on", metavar="SPAN", help="align files without a clock on this span")
    parser.add_argument("--align-all", action="store_true", help="with --align-on: align files with a clock too")
    add_ranks(parser)
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--batches", metavar="N-M", help="only these batches: ProfilerStep#N, or event/batch")
    add_last(window)
    add_attempt(parser)
    add_force(parser)
    add_json(parser)
    parser.add_argument(
        "--from-manifest", metavar="FOLDER", help="merge the traces that the ranks have finished in FOLDER"
    )
    parser.add_argument(
        "--wait", metavar="SECONDS", type=seconds, default=0.0, help="how long to wait for ranks that still write"
    )
    parser.add_argument(
        "--node-rank", metavar="N", type=whole_number, default=0, help="the node whose ranks are merged"
    )
    parser.add_argument(
        "--run-folder", metavar="F", type=Path, help="the run's folder, if FOLDER is not directly in it"
    )
    parser.add_argument(
        "--attempt-of", metavar="START", help="with --from-manifest: merge the attempt of this start, not the last one"
    )
    parser.add_argument("--as-list", action="store_true", help="write a bare list of events, as Composer does")
    parser.add_argument(
        "--nice",
        action=argparse.BooleanOptionalAction,
        help="run at low priority, in favour of training (the default with --from-manifest)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merges; returns the exit code."""
    if arguments.output is None and arguments.paths:
        arguments.output, *arguments.paths = arguments.paths
        require_output(Path(arguments.output), force=arguments.force)
    if arguments.output is None:
        raise SettingsError("What is to be written? Pass -o OUTPUT. See --help.")
    if not arguments.paths and not arguments.from_manifest:
        raise SettingsError(
            f"What is to be merged into {arguments.output}? Pass PATH... -o OUTPUT: without -o, the first path is the "
            "output. See --help."
        )
    if arguments.paths and arguments.from_manifest:
        raise SettingsError("Pass either PATH... or --from-manifest FOLDER. See --help.")
    if arguments.align_all and not arguments.align_on:
        raise SettingsError("--align-all needs --align-on SPAN. See --help.")
    if arguments.nice or (arguments.nice is None and arguments.from_manifest):
        give_way()
    with progress_bar("merging") as on_progress:
        report = _merge(arguments, on_progress)
    _print_result(report, arguments)
    return 0


def _merge(arguments: argparse.Namespace, on_progress: Progress) -> MergeReport | None:
    ranks = sorted(arguments.ranks) if arguments.ranks else None
    if arguments.from_manifest:
        run_folder = arguments.run_folder or Path(arguments.from_manifest).parent
        return merge_manifest(
            arguments.from_manifest,
            arguments.output,
            arguments.wait,
            ranks,
            node_rank=arguments.node_rank,
            start=arguments.attempt_of,
            align_on=arguments.align_on,
            on_progress=on_progress,
            as_list=arguments.as_list,
            run_folder=run_folder,
            delete=partial(delete_when_uploaded, run_folder),
        )
    output = Path(arguments.output)
    require_free([output], force=arguments.force)
    with trace_inputs(arguments.paths, output, attempt=arguments.attempt) as files:
        return merge_traces(
            output,
            *files,
            align_on=arguments.align_on,
            align_all=arguments.align_all,
            ranks=ranks,
            window=_window(arguments),
            on_progress=on_progress,
            as_list=arguments.as_list,
        )


def _window(arguments: argparse.Namespace) -> Window | None:
    if arguments.batches:
        batches = given("--batches", whole_numbers, arguments.batches)
        return Window(first_batch=min(batches), last_batch=max(batches))
    return Window(last_s=arguments.last) if arguments.last else None


def _print_result(report: MergeReport | None, arguments: argparse.Namespace) -> None:
    stream = sys.stderr if arguments.output == "-" else sys.stdout
    if arguments.json:
        said = dataclasses.asdict(report) | {"output": str(report.output)} if report else None
        print(json.dumps(said), file=stream)
    elif report:
        print(printable_lines(_summary(report)), file=stream)
    else:
        print(f"Nothing to merge yet: no finished traces in {arguments.from_manifest}.", file=stream)


def _summary(report: MergeReport) -> str:
    files, ranks = counted(report.num_files, "file"), counted(len(report.ranks), "rank")
    size = f" ({sized(report.size_bytes)})" if report.size_bytes else ""
    lines = [f"Merged {files} of {ranks}, {counted(report.num_events, 'event')}, into {report.output}{size}."]
    return "\n".join(lines + [f"  {note}" for note in report.notes])
