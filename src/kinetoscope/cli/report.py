"""cli: ``kinetoscope report``, which writes what was found in a run into one HTML file."""

import argparse
import webbrowser
from pathlib import Path

from kinetoscope import __version__
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.cli.summary import add_selection, report_on
from kinetoscope.pages.page import render_page
from kinetoscope.report.page.build import Recorded, build_page
from kinetoscope.report.page.rank_traces import RankTraces
from kinetoscope.table.load import names_in
from kinetoscope.writing.atomic_file import atomic_file

_EXAMPLES = """\
examples:
  kinetoscope report runs/digits --open
      writes runs/digits/report.html, and shows it in the browser
  kinetoscope report trace.json.gz -o slow.html
      of any profiler's trace
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``report``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("inputs", metavar="PATH", nargs="+", help="the folder of a run, trace files, globs or URLs")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file to write")
    parser.add_argument("--open", action="store_true", help="show it in the browser")
    parser.add_argument("--no-timeline", action="store_true", help="only the numbers; a smaller file")
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the page."""
    output = arguments.output or _beside(Path(arguments.inputs[0]))
    report = report_on(arguments)
    page = render_page(build_page(report, __version__, recorded=_recorded(arguments, report)))
    with atomic_file(output) as file:
        file.write(page.encode())
    print(f"Written: {output}")
    if arguments.open:
        webbrowser.open(output.resolve().as_uri())
    return 0


def _recorded(arguments: argparse.Namespace, report: RunReport) -> Recorded:
    """What the report was made from."""
    names = [name for given in arguments.inputs for name in names_in(given)]
    windows = RankTraces(report, names, cache=not arguments.no_cache, last_s=arguments.last)
    return Recorded(windows=windows, step=arguments.step, has_timeline=not arguments.no_timeline)


def _beside(path: Path) -> Path:
    """In the folder of a run, or of a trace; here for a URL."""
    folder = path if path.is_dir() else path.parent if path.exists() else Path()
    return folder / "report.html"
