"""The command ``kinetoscope report``: one HTML file with the findings and the timeline of a run."""

import argparse
import json
import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kinetoscope import __version__
from kinetoscope.analysis.analyze import analyze_sources
from kinetoscope.analysis.compare.compare import add_distinct_titles, compare_sources
from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.cli.dask_cluster import open_reader
from kinetoscope.cli.options import PATH, add_force, add_json, add_output
from kinetoscope.cli.paths import require_replaceable, wait_for_inputs
from kinetoscope.cli.progress import Progress, run_parallel
from kinetoscope.cli.summary import add_selection, build_selection
from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.core.paths.file_kinds import is_folder, path_exists
from kinetoscope.core.text.wording import format_file_size, sanitize_lines
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.anonymizer import STEP, Anonymizer
from kinetoscope.formats.sentence_redaction import LEFT_OUT
from kinetoscope.frames.load import STDIN, build_attempt_notes, is_url, list_traces, load_one
from kinetoscope.frames.trace import Trace
from kinetoscope.pages.html_file import render_page
from kinetoscope.report.page.build import RecordedWindows, build_page
from kinetoscope.report.page.rank_traces import RankTraces, Source

FILE_NAME = "report.html"
_THRESHOLD = 0.05  # larger changes come first
_EXAMPLES = """\
examples:
  kinetoscope report runs/digits --open
      write runs/digits/report.html, and open it in the browser
  kinetoscope report trace.json.gz -o slow.html
      report on a trace of any profiler
  kinetoscope report runs/main runs/mine -o compared.html
      compare two runs, before and after
  kinetoscope report 'runs/digits/traces/ep*.json.gz' -r 0,4-7 --last 30
      report on the last 30 seconds of five ranks
  kinetoscope report runs/digits --redact -o to_send.html
      replace names of your code, for readers who must not see them

The file needs no network: it opens in any browser. It contains no home folder, no user
name and no source code. See docs/report.md for its contents.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``report``."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "inputs",
        metavar="PATH",
        nargs="+",
        help=PATH + ", or URLs; - is stdin; two folders are compared",
    )
    add_output(parser, f"the file to write (default: {FILE_NAME} in the run's folder)")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")
    parser.add_argument("--no-timeline", action="store_true", help="leave out the timeline, for a smaller file")
    parser.add_argument(
        "--redact",
        action="store_true",
        help="replace names of the run, hosts, files and your code by numbers",
    )
    add_force(parser)
    add_json(parser)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the report page; return the exit code."""
    wait_for_inputs(arguments.inputs)
    output = _choose_output(arguments)
    require_replaceable([output], force=arguments.force)
    with open_reader(arguments) as each:
        report, comparison, sources = _analyze(arguments, each)

    def work(sources: Sequence[Source], on_progress: Progress) -> int:
        windows = RankTraces(
            report, sources, cache=not arguments.no_cache, last_s=arguments.last, on_progress=on_progress
        )
        step = STEP if arguments.redact and arguments.step else arguments.step
        recorded = RecordedWindows(windows=windows, step=step, has_timeline=not arguments.no_timeline)
        return write_page(output, report, recorded, comparison)

    (size_bytes,) = run_parallel("writing", work, [sources], output_of=lambda *_: output)
    if arguments.json:
        print(json.dumps({"output": str(output), "size_bytes": size_bytes}))
    else:
        print(f"Written: {sanitize_lines(output)} ({format_file_size(size_bytes)})")
    if arguments.open and not webbrowser.open(output.resolve().as_uri()):
        print("No browser found: open the file in one.", file=sys.stderr)
    return 0


def write_page(output: Path, report: RunReport, recorded: RecordedWindows, comparison: Comparison | None = None) -> int:
    """Write the page of a report, and return its size in bytes."""
    content = render_page(build_page(report, __version__, comparison, recorded)).encode()
    with atomic_file(output) as file:
        file.write(content)
    return len(content)


def _analyze(
    arguments: argparse.Namespace, each: Callable[..., list[Any]]
) -> tuple[RunReport, Comparison | None, list[Source]]:
    """Return the report, the comparison with an earlier run if two are given, and the traces of the report."""
    selection = build_selection(arguments)
    anonymizer = Anonymizer(arguments.step) if arguments.redact else None
    report_on = partial(analyze_sources, map_function=each, cache=not arguments.no_cache, anonymizer=anonymizer)
    are_two = len(arguments.inputs) == 2 and all(map(os.path.isdir, arguments.inputs))
    runs = [_find_sources([given], arguments, anonymizer) for given in arguments.inputs] if are_two else []
    if not runs:
        sources = _find_sources(arguments.inputs, arguments, anonymizer)
        notes = [note for given in arguments.inputs for note in build_attempt_notes(given, arguments.attempt)]
        return report_on(sources, selection, notes=notes, titled_by=arguments.inputs), None, sources
    reports = [
        report_on(sources, selection, titled_by=[given]) for sources, given in zip(runs, arguments.inputs, strict=True)
    ]
    comparison = compare_sources(reports, selection, report_on, threshold=_THRESHOLD)
    is_named = anonymizer is None
    apart = add_distinct_titles(comparison, [[given] for given in arguments.inputs]) if is_named else comparison
    return reports[1], apart, runs[1]


def _find_sources(inputs: Sequence[str], arguments: argparse.Namespace, anonymizer: Anonymizer | None) -> list[Source]:
    """Return the traces of the inputs; read those that can be read only once, and those to anonymize."""
    names = [name for given in inputs for name in list_traces(given, arguments.attempt)]
    if anonymizer is not None:
        return [_load_anonymized(name, anonymizer, cache=not arguments.no_cache) for name in names]
    return [load_one(name) if name == STDIN or is_url(name) else name for name in names]


def _load_anonymized(name: str, anonymizer: Anonymizer, *, cache: bool) -> Trace:
    """Return a trace without the user's names, also in error messages, since they are sent along with pages."""
    label = anonymizer.name(name, "file")
    try:
        return load_one(name, cache=cache).anonymized(anonymizer)
    except TraceFileError as error:
        text = anonymizer.sentence(str(error).replace(name, label))
        if text == LEFT_OUT:
            text = f"Cannot read {label}. Without --redact, the error has the reason."
        raise TraceFileError(text) from None


def _choose_output(arguments: argparse.Namespace) -> Path:
    """Return the file to write: in the folder of the run or trace; for a URL, in the working folder."""
    if arguments.output is not None:
        given = Path(arguments.output)
        return given / FILE_NAME if is_folder(given) else given
    path = Path(arguments.inputs[-1])
    folder = path if is_folder(path) else path.parent if path_exists(path) else Path()
    return folder / FILE_NAME
