"""The command ``kinetoscope merge``: many traces merged into one."""

import argparse
import dataclasses
import json
import sys
from functools import partial
from pathlib import Path

from kinetoscope.cli.numbers import given, seconds, whole_number, whole_numbers
from kinetoscope.cli.options import PATH, add_attempt, add_force, add_json, add_last, add_output, add_ranks
from kinetoscope.cli.paths import require_free, trace_inputs
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
      merge two ranks; each is a process in the merged trace
  kinetoscope merge runs/digits -o merged.json.gz
      merge all traces of a run, and compress the result
  kinetoscope merge 'logs/*.pt.trace.json' -o merged.json --align-on 'ProfilerStep#100'
      align traces without a comparable clock on a span that all of them have
  kinetoscope merge runs/digits -o some.pftrace -r 0,4-7 --batches 10-14
      merge five batches of five ranks, in Perfetto's format: smaller, faster to open
  kinetoscope merge --from-manifest runs/digits/traces -o merged.json --wait 30
      merge this node's finished traces; wait up to 30 s for ranks that still write

Open the merged trace in https://ui.perfetto.dev or chrome://tracing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``merge``."""
    parser.epilog = _EXAMPLES
    parser.usage = (
        "kinetoscope merge PATH... -o OUTPUT [--align-on SPAN [--align-all]]\n"
        "                         [--ranks LIST] [--batches N-M | --last SECONDS] [--attempt N]\n"
        "                         [--nice] [--force] [--json]\n"
        "       kinetoscope merge --from-manifest FOLDER -o OUTPUT [--wait SECONDS]\n"
        "                         [--node-rank N] [--json]"
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help=PATH + "; - is stdin")
    add_output(parser, "output file: .json or .pftrace, compressed with .gz or .zst; may be an input; - is stdout")
    parser.add_argument("--align-on", metavar="SPAN", help="align traces without a clock on this span")
    parser.add_argument("--align-all", action="store_true", help="align all traces on the span of --align-on")
    add_ranks(parser)
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--batches", metavar="N-M", help="select batches: ProfilerStep#N or event/batch")
    add_last(window)
    add_attempt(parser)
    add_force(parser)
    add_json(parser)
    parser.add_argument("--from-manifest", metavar="FOLDER", help="merge the traces that ranks have finished in FOLDER")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=seconds, default=0.0, help="wait for ranks that are still writing"
    )
    parser.add_argument("--node-rank", metavar="N", type=whole_number, default=0, help="select the ranks of this node")
    parser.add_argument("--run-folder", metavar="F", type=Path, help="run folder, if it is not the parent of FOLDER")
    parser.add_argument(
        "--attempt-of", metavar="START", help="with --from-manifest: merge the attempt with this start time"
    )
    parser.add_argument("--as-list", action="store_true", help="write a bare list of events, as Composer does")
    parser.add_argument(
        "--nice",
        action=argparse.BooleanOptionalAction,
        help="run at low priority (default with --from-manifest)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merges; returns the exit code."""
    if arguments.output is None:
        raise SettingsError("Missing output file. Pass -o OUTPUT.")
    if not arguments.paths and not arguments.from_manifest:
        raise SettingsError("Missing input. Pass PATH... -o OUTPUT.")
    if arguments.paths and arguments.from_manifest:
        raise SettingsError("Two kinds of input. Pass either PATH... or --from-manifest FOLDER.")
    if arguments.align_all and not arguments.align_on:
        raise SettingsError("--align-all requires --align-on. Pass --align-on SPAN.")
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
        print(f"No finished traces in {arguments.from_manifest} yet.", file=stream)


def _summary(report: MergeReport) -> str:
    files, ranks = counted(report.num_files, "file"), counted(len(report.ranks), "rank")
    size = f" ({sized(report.size_bytes)})" if report.size_bytes else ""
    lines = [f"Merged {files} of {ranks}, {counted(report.num_events, 'event')}, into {report.output}{size}."]
    return "\n".join(lines + [f"  {note}" for note in report.notes])
