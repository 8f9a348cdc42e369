"""The command ``kinetoscope merge``: many traces merged into one."""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kinetoscope.cli.arg_types import parse_numbers
from kinetoscope.cli.options import PATH, add_attempt, add_force, add_json, add_last, add_output, add_ranks
from kinetoscope.cli.paths import open_trace_inputs, require_replaceable
from kinetoscope.cli.progress import progress_bar
from kinetoscope.core.background.background_process import lower_priority
from kinetoscope.core.paths.attempt_folders import MANIFESTS
from kinetoscope.core.paths.file_kinds import is_folder, is_regular_file
from kinetoscope.core.text.wording import format_count, format_file_size, sanitize_lines
from kinetoscope.errors import SettingsError
from kinetoscope.merge.manifest_merge import read_sources
from kinetoscope.merge.merge_traces import MergeReport, Progress, merge_traces
from kinetoscope.merge.window import Window

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

Open the merged trace in https://ui.perfetto.dev or chrome://tracing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``merge``."""
    parser.epilog = _EXAMPLES
    parser.usage = (
        "kinetoscope merge PATH... -o OUTPUT [--align-on SPAN [--align-all]]\n"
        "                         [--ranks LIST] [--batches N-M | --last SECONDS] [--attempt N]\n"
        "                         [--nice] [--force] [--json]"
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help=PATH + "; - is stdin")
    add_output(parser, "output file: .json or .pftrace, compressed with .gz or .zst; may be an input; - is stdout")
    parser.add_argument("--align-on", metavar="SPAN", help="align traces without a clock on this span")
    parser.add_argument("--align-all", action="store_true", help="align all traces on the span of --align-on")
    add_ranks(parser)
    window = parser.add_mutually_exclusive_group()
    window.add_argument(
        "--batches", metavar="N-M", type=parse_numbers, help="select batches: ProfilerStep#N or event/batch"
    )
    add_last(window)
    add_attempt(parser)
    add_force(parser)
    add_json(parser)
    parser.add_argument("--nice", action="store_true", help="run at low priority")


def run(arguments: argparse.Namespace) -> int:
    """Merge traces into one; return the exit code."""
    if arguments.output is None:
        raise SettingsError("Missing output file. Pass -o OUTPUT.")
    if arguments.align_all and not arguments.align_on:
        raise SettingsError("--align-all requires --align-on. Pass --align-on SPAN.")
    if arguments.nice:
        lower_priority()
    with progress_bar("merging") as on_progress:
        report = _merge(arguments, on_progress)
    _print_result(report, arguments)
    return 0


def _merge(arguments: argparse.Namespace, on_progress: Progress) -> MergeReport:
    """Merge the traces of the arguments."""
    output = Path(arguments.output)
    require_replaceable([output], force=arguments.force)
    ranks, window = sorted(arguments.ranks) if arguments.ranks else None, _build_window(arguments)
    with open_trace_inputs(arguments.paths, output, attempt=arguments.attempt) as files:
        inputs, sources = _find_inputs(files, output)
        return merge_traces(
            output,
            *inputs,
            align_on=arguments.align_on,
            align_all=arguments.align_all,
            ranks=ranks,
            window=window,
            sources=[] if ranks or window else sources,
            on_progress=on_progress,
        )


def _find_inputs(files: Sequence[str], output: Path) -> tuple[list[str], list[str]]:
    """Return the files to merge, and if ``output`` is in a run's folder of traces, the names of those in that folder.

    A merged trace that is replaced there may contain deleted traces. Then it is merged too, without the files in it.
    """
    if not is_folder(output.parent / MANIFESTS):
        return list(files), []
    folder = os.path.realpath(output.parent)
    in_folder = {os.path.basename(file): file for file in files if os.path.realpath(os.path.dirname(file)) == folder}
    contained = read_sources(output) if in_folder and is_regular_file(output) else set[str]()
    if all(os.path.exists(output.parent / name) for name in contained):
        return list(files), list(in_folder)
    replaced = {in_folder[name] for name in contained & in_folder.keys()}
    return [str(output), *(file for file in files if file not in replaced)], sorted({*in_folder, *contained})


def _build_window(arguments: argparse.Namespace) -> Window | None:
    """Return the time window to select; None for the whole recording."""
    if arguments.batches:
        return Window(first_batch=min(arguments.batches), last_batch=max(arguments.batches))
    return Window(last_s=arguments.last) if arguments.last else None


def _print_result(report: MergeReport, arguments: argparse.Namespace) -> None:
    stream = sys.stderr if arguments.output == "-" else sys.stdout
    if arguments.json:
        print(json.dumps(dataclasses.asdict(report) | {"output": str(report.output)}), file=stream)
    else:
        print(sanitize_lines(_summarize(report)), file=stream)


def _summarize(report: MergeReport) -> str:
    files, ranks = format_count(report.num_files, "file"), format_count(len(report.ranks), "rank")
    size = f" ({format_file_size(report.size_bytes)})" if report.size_bytes else ""
    lines = [f"Merged {files} of {ranks}, {format_count(report.num_events, 'event')}, into {report.output}{size}."]
    return "\n".join(lines + [f"  {note}" for note in report.notes])
