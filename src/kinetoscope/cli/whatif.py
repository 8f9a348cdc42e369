"""The command ``kinetoscope whatif``: the estimated step time with something changed."""

import argparse
import difflib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.replay.replay import CAUSES, Change
from kinetoscope.analysis.what_if import WhatIf, what_if, what_if_fixed
from kinetoscope.cli.arg_types import parse_ranks, parse_whole_number
from kinetoscope.cli.options import add_json, add_paths
from kinetoscope.cli.summary import add_selection, analyze_inputs
from kinetoscope.core.text.wording import sanitize
from kinetoscope.errors import SettingsError
from kinetoscope.frames.display import first_items

SCHEMA = 2
_MAX_FACTOR = 1e9
_MAX_NAMES, _MAX_RANKS = 5, 16
_MAX_COMPARED_LENGTH = 1000

_EXAMPLES = """\
examples:
  kinetoscope whatif runs/digits
      estimate the gain of removing each cause of waiting, and each straggler's delay
  kinetoscope whatif runs/digits --faster aten::mm=2
      run aten::mm twice as fast, with everything inside it on CPU and GPU
  kinetoscope whatif runs/digits --without data --without gc
      remove the data wait and GC pauses together
  kinetoscope whatif runs/digits --on-time 2,4-7 --json
      remove the delay of ranks 2 and 4 to 7
  kinetoscope whatif runs/digits --fix 1
      fix finding 1 of `kinetoscope summary`: the replay behind its estimated saving

Times are means per step of the recording. The run is replayed: work moves earlier until
it waits for something else. DataLoader workers keep their recorded speed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``whatif``."""
    parser.epilog = _EXAMPLES
    add_paths(parser, ", or URLs; - is stdin")
    parser.add_argument(
        "--faster",
        metavar="NAME=N",
        type=_parse_faster,
        action="append",
        default=[],
        help="run an operator or kernel N times faster",
    )
    parser.add_argument(
        "--without",
        metavar="COST",
        choices=CAUSES,
        action="append",
        default=[],
        help=f"remove this cost: {', '.join(CAUSES)}",
    )
    parser.add_argument(
        "--on-time",
        metavar="LIST",
        type=parse_ranks,
        default=frozenset(),
        help="remove the delay of these ranks, as in 0,4-7",
    )
    parser.add_argument(
        "--fix",
        metavar="N",
        type=parse_whole_number,
        help="fix finding N of summary; not with other changes",
    )
    add_json(parser)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the step time before and after the change."""
    faster = dict(arguments.faster)
    report = analyze_inputs(arguments, frozenset(faster), with_graph=True)
    _check_names(faster, report)
    _check_ranks(arguments.on_time, report)
    change = Change(frozenset(arguments.without), faster, arguments.on_time)
    if arguments.fix is not None:
        if change != Change():
            raise SettingsError(
                "--fix cannot be combined with other changes. Leave out --faster, --without and --on-time."
            )
        try:
            found = [what_if_fixed(report, arguments.fix)]
        except SettingsError as error:
            raise SettingsError(f"--fix: {error}") from error
    else:
        found = [what_if(report, one) for one in (_list_changes(report) if change == Change() else [change])]
    if arguments.json:
        print(_format_json(report, found))
        return 0
    from kinetoscope.report.terminal.screen import print_screen
    from kinetoscope.report.what_if import render_what_ifs

    print_screen(lambda width: render_what_ifs(report, found))
    return 0


def _list_changes(report: RunReport) -> list[Change]:
    """Return a change per cause, then one per straggler."""
    causes = [Change(frozenset([cause])) for cause in CAUSES]
    return causes + [Change(on_time=frozenset([row.rank])) for row in report.stragglers]


def _format_json(report: RunReport, what_ifs: Sequence[WhatIf]) -> str:
    why = report.graph.why_untrusted if report.graph is not None else None
    rows = [asdict(one) for one in what_ifs]
    found = {"schema": SCHEMA, "num_steps": report.run["num_steps"], "why_untrusted": why, "what_ifs": rows}
    return json.dumps(found)


def _check_names(names: Iterable[str], report: RunReport) -> None:
    """Raise `SettingsError` for an unknown operator or kernel."""
    known = dict.fromkeys(row.name for row in (*report.operators, *report.kernels))
    for name in names:
        if name not in known:
            near = [other for other in known if name.lower() in other.lower()]
            short = [other for other in known if len(other) <= _MAX_COMPARED_LENGTH]
            close = difflib.get_close_matches(name, short, _MAX_NAMES)
            near += [other for other in close if other not in near]
            named = ", ".join(map(sanitize, near[:_MAX_NAMES]))
            raise SettingsError(
                f"--faster: no operator or kernel is called {sanitize(name)!r}. "
                + (f"Similar names: {named}." if near else "`kinetoscope summary` shows names.")
            )


def _check_ranks(wanted: Collection[int], report: RunReport) -> None:
    """Raise `SettingsError` for a rank without a recording, and for a selection of all ranks."""
    ranks = report.run["ranks"]
    for rank in sorted(wanted):
        if rank not in ranks:
            known = first_items(map(str, ranks), len(ranks), _MAX_RANKS, ", ") or "none"
            raise SettingsError(f"--on-time: rank {rank} was not recorded. Recorded ranks: {known}.")
    if wanted and len(wanted) == len(ranks):
        raise SettingsError("--on-time: all ranks are selected. Leave out the ranks that wait for them.")


def _parse_faster(text: str) -> tuple[str, float]:
    """Return the name and the factor of ``NAME=N``."""
    name, _, times = text.rpartition("=")
    try:
        factor = float(times)
    except ValueError:
        factor = math.nan
    if not name or not 1 / _MAX_FACTOR <= factor <= _MAX_FACTOR:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write a name and a factor, as in aten::mm=2")
    return name, factor
