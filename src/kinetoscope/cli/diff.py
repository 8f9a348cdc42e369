"""The command ``kinetoscope diff``: regressions and improvements from one run to another."""

import argparse
import math
import os
from dataclasses import replace
from functools import partial

from kinetoscope.analysis.analyze import analyze_sources
from kinetoscope.analysis.compare.compare import compare_sources
from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.cli.dask_cluster import open_reader
from kinetoscope.cli.options import PATH, add_details, add_json
from kinetoscope.cli.paths import wait_for_inputs
from kinetoscope.cli.summary import add_selection, build_selection
from kinetoscope.core.paths.run_groups import find_run_group
from kinetoscope.errors import KinetoscopeError, SettingsError

_EXAMPLES = """\
examples:
  kinetoscope diff runs/main runs/mine
      show regressions and improvements first, then changes within noise
  kinetoscope diff runs/main runs/mine --fail-over 2% || exit 1
      fail a script if anything got slower or larger by more than 2 %
  kinetoscope diff 'old/rank*.json.gz' 'new/rank*.json.gz' --step train_step -r 0 --json
      compare rank 0 of the traces of any profiler, as JSON

Exit codes: 1 a regression beyond --fail-over and beyond noise; 3 inconclusive, the step
time needs more steps; 2 wrong usage, or an unreadable trace; else 0. Longer waits do
not count where the step time is unchanged or better: faster work waits longer.
"""
_EXIT_WORSE, _EXIT_INCONCLUSIVE = 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``diff``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("before", metavar="BEFORE", help=PATH + ", or a URL")
    parser.add_argument("after", metavar="AFTER", help="the same, of the run to compare")
    parser.add_argument(
        "--fail-over",
        metavar="PART",
        type=_parse_share,
        default=0.05,
        help="fail at this change, as in 5%% or 0.05 (default: 5%%)",
    )
    add_json(parser)
    add_details(parser)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; return the exit code."""
    wait_for_inputs([arguments.before, arguments.after])
    comparison = _compare(arguments)
    comparison = replace(comparison, notes=[*comparison.notes, *_check_groups(arguments.before, arguments.after)])
    if arguments.json:
        print(comparison.to_json())
    else:
        from kinetoscope.report.terminal.comparison_screen import render_comparison
        from kinetoscope.report.terminal.screen import print_screen

        print_screen(lambda width: render_comparison(comparison, width, with_details=arguments.details))
    return 0 if _is_same_path(arguments.before, arguments.after) else _exit_code(comparison)


def _is_same_path(before: str, after: str) -> bool:
    """Return whether both are the same path; then nothing changed, even if no step was recorded."""
    return "://" not in before and os.path.realpath(before) == os.path.realpath(after)


def _check_groups(before: str, after: str) -> list[str]:
    """Return a sentence if two run folders are of different commands, or of different names where that is unknown."""
    if not (os.path.isdir(before) and os.path.isdir(after)) or find_run_group(before).has(find_run_group(after)):
        return []
    return ["These may be different programs: their commands differ, or their names by more than numbers."]


def _compare(arguments: argparse.Namespace) -> Comparison:
    """Return the comparison of two runs.

    Raises:
        SettingsError: a file cannot be read; its exit code is 2, since 1 means a regression.
    """
    selection = build_selection(arguments)
    try:
        with open_reader(arguments) as each:
            report_on = partial(analyze_sources, map_function=each, cache=not arguments.no_cache)
            return compare_sources(([arguments.before], [arguments.after]), selection, report_on, arguments.fail_over)
    except KinetoscopeError as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(f"Cannot read {error.filename or 'a trace'}: {error.strerror}") from error


def _exit_code(comparison: Comparison) -> int:
    """Return 1 after a regression, 3 if the result is inconclusive, else 0."""
    if comparison.worse:
        return _EXIT_WORSE
    return _EXIT_INCONCLUSIVE if comparison.step is None or comparison.step.verdict == "unsure" else 0


def _parse_share(text: str) -> float:
    """Return a share written as a percentage, or as a number below 1."""
    number = text.strip().removesuffix("%")
    try:
        part = float(number) / 100 if number != text.strip() else float(number)
    except ValueError:
        part = math.nan
    if not 0 <= part < (math.inf if "%" in text else 1):
        raise argparse.ArgumentTypeError(f"cannot read the change {text!r}; write it as in 5% or 0.05")
    return part
