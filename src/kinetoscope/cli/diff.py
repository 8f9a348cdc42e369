"""cli: ``kinetoscope diff``, which says what got slower or larger from one run to another."""

import argparse
import math
import os
from functools import partial

from kinetoscope.analysis.analyze import report_of
from kinetoscope.analysis.compare.compare import compare_sources
from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.cli.dask_cluster import reader
from kinetoscope.cli.options import PATH, add_json
from kinetoscope.cli.paths import require_there
from kinetoscope.cli.summary import add_selection, selection_of
from kinetoscope.errors import KinetoscopeError, SettingsError

_EXAMPLES = """\
examples:
  kinetoscope diff runs/main runs/mine
      what got slower or faster, and what only differs by chance; what changed comes first
  kinetoscope diff runs/main runs/mine --fail-over 2% || exit 1
      in a script: stops if anything got slower or larger by more than 2 %
  kinetoscope diff 'old/rank*.json.gz' 'new/rank*.json.gz' --step train_step --ranks 0 --json
      rank 0 of any profiler's traces, as JSON for programs

The exit code is 1 if something got slower or larger by more than --fail-over, and not by chance; else 3 if it cannot
be told whether the typical step changed; else 0. It is 2 for wrong usage, and if a trace cannot be read. Waits that got
longer do not count where the step is the same or faster: where work gets quicker, waits get longer.
"""
_WORSE, _UNSURE = 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``diff``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("before", metavar="BEFORE", help=PATH + ", or a URL")
    parser.add_argument("after", metavar="AFTER", help="the same, of the run to compare with it")
    parser.add_argument(
        "--fail-over",
        metavar="PART",
        type=_part,
        default=0.05,
        help="the change to fail at, as in 5%% or 0.05 (default: 5%%)",
    )
    add_json(parser)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the comparison; returns the exit code."""
    require_there([arguments.before, arguments.after])
    comparison = _compare(arguments)
    if arguments.json:
        print(comparison.to_json())
    else:
        from rich.console import Console

        from kinetoscope.report.comparison import render_comparison

        console = Console(highlight=False)
        console.print(render_comparison(comparison, console.width))
    return 0 if _are_the_same(arguments.before, arguments.after) else _exit_code(comparison)


def _are_the_same(before: str, after: str) -> bool:
    """Whether both are one place: then nothing changed, even if no step was recorded."""
    return "://" not in before and os.path.realpath(before) == os.path.realpath(after)


def _compare(arguments: argparse.Namespace) -> Comparison:
    """The comparison of what the arguments name. A file that cannot be read is exit code 2: 1 has another meaning."""
    selection = selection_of(arguments)
    try:
        with reader(arguments) as each:
            report_on = partial(report_of, each=each, cache=not arguments.no_cache)
            return compare_sources(([arguments.before], [arguments.after]), selection, report_on, arguments.fail_over)
    except KinetoscopeError as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(f"Cannot read {error.filename or 'a trace'}: {error.strerror}.") from error


def _exit_code(comparison: Comparison) -> int:
    if comparison.worse:
        return _WORSE
    return _UNSURE if comparison.step is None or comparison.step.verdict == "unsure" else 0


def _part(text: str) -> float:
    """A part of something, written as a percentage or as a number below 1."""
    number = text.strip().removesuffix("%")
    try:
        part = float(number) / 100 if number != text.strip() else float(number)
    except ValueError:
        part = math.nan
    if not 0 <= part < (math.inf if "%" in text else 1):
        raise argparse.ArgumentTypeError(f"cannot read the change {text!r}; write it as 5% or 0.05")
    return part
