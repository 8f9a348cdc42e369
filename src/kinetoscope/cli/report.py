"""cli: ``kinetoscope report``, which writes what was found in a run into one HTML file."""

import argparse
import webbrowser
from pathlib import Path

from kinetoscope import __version__
from kinetoscope.cli.summary import add_selection, report_on
from kinetoscope.pages.page import render_page
from kinetoscope.report.page.build import build_page
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
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the page."""
    output = arguments.output or _beside(Path(arguments.inputs[0]))
    page = render_page(build_page(report_on(arguments), __version__))
    with atomic_file(output) as file:
        file.write(page.encode())
    print(f"Written: {output}")
    if arguments.open:
        webbrowser.open(output.resolve().as_uri())
    return 0


def _beside(path: Path) -> Path:
    """In the folder of a run, or of a trace; here for a URL."""
    folder = path if path.is_dir() else path.parent if path.exists() else Path()
    return folder / "report.html"
