"""cli: ``kinetoscope whatif``, which says how long a step would take with something changed."""

import argparse
import difflib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.replay.replay import CAUSES, Change
from kinetoscope.analysis.replay.what_if import WhatIf, what_if, what_if_fixed
from kinetoscope.cli.numbers import ranks as ranks_in
from kinetoscope.cli.numbers import whole_number
from kinetoscope.cli.options import add_json, add_paths
from kinetoscope.cli.summary import add_selection, report_on
from kinetoscope.errors import SettingsError
from kinetoscope.table.display import some
from kinetoscope.texts.wording import shown

SCHEMA = 1
_MOST_TIMES = 1e9
_MOST_NAMES, _MOST_RANKS = 5, 16
_LONGEST_COMPARED = 1000

_EXAMPLES = """\
examples:
  kinetoscope whatif runs/digits
      what a step would gain without each cause of waiting, and with each late rank on time
  kinetoscope whatif runs/digits --faster aten::mm=2
      if aten::mm, with all that is inside of it on the host and the device, took half the time
  kinetoscope whatif runs/digits --without data --without gc
      if batches were always there, and the garbage collector never ran: both at once
  kinetoscope whatif runs/digits --on-time 2,4-7 --json
      what the other ranks would gain if they never waited for ranks 2 and 4 to 7, for programs
  kinetoscope whatif runs/digits --fix 1
      without the fault that `kinetoscope summary` tells first: the same replay as its saving comes from

Times are of a step, on average over all that was recorded. The run is replayed: what waits for something that
comes earlier comes earlier, too, up to the next thing that it waits for. What was not recorded stays as it was:
workers of a loader make batches as fast as they did.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``whatif``."""
    parser.epilog = _EXAMPLES
    add_paths(parser, ", or URLs; - is stdin")
    parser.add_argument(
        "--faster",
        metavar="NAME=N",
        type=_faster,
        action="append",
        default=[],
        help="an operator or kernel, N times as fast",
    )
    parser.add_argument(
        "--without", choices=CAUSES, action="append", default=[], help="what takes no time, or is not waited for"
    )
    parser.add_argument(
        "--on-time",
        metavar="LIST",
        type=ranks_in,
        default=frozenset(),
        help="ranks that nobody waits for, as in 0,4-7",
    )
    parser.add_argument(
        "--fix",
        metavar="N",
        type=whole_number,
        help="the fault that summary tells as number N; alone, not with other changes",
    )
    add_json(parser)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the time of a step before and after."""
    faster = dict(arguments.faster)
    report = report_on(arguments, frozenset(faster), with_graph=True)
    _check_names(faster, report)
    _check_ranks(arguments.on_time, report)
    change = Change(frozenset(arguments.without), faster, arguments.on_time)
    if arguments.fix is not None:
        if change != Change():
            raise SettingsError("--fix N is a change of its own: leave --faster, --without and --on-time out.")
        try:
            found = [what_if_fixed(report, arguments.fix)]
        except SettingsError as error:
            raise SettingsError(f"--fix: {error}") from error
    else:
        found = [what_if(report, one) for one in (_all_changes(report) if change == Change() else [change])]
    if arguments.json:
        print(_as_json(report, found))
        return 0
    from rich.console import Console

    from kinetoscope.report.what_if import render_what_ifs

    Console(highlight=False).print(render_what_ifs(report, found))
    return 0


def _all_changes(report: RunReport) -> list[Change]:
    """Each cause alone, then each late rank."""
    causes = [Change(frozenset([cause])) for cause in CAUSES]
    return causes + [Change(on_time=frozenset([row.rank])) for row in report.stragglers]


def _as_json(report: RunReport, what_ifs: Sequence[WhatIf]) -> str:
    why = report.graph.why_untrusted if report.graph is not None else None
    rows = [asdict(one) for one in what_ifs]
    found = {"schema": SCHEMA, "num_steps": report.run["num_steps"], "why_untrusted": why, "what_ifs": rows}
    return json.dumps(found)


def _check_names(names: Iterable[str], report: RunReport) -> None:
    known = dict.fromkeys(row.name for row in (*report.operators, *report.kernels))
    for name in names:
        if name not in known:
            near = [other for other in known if name.lower() in other.lower()]
            short = [other for other in known if len(other) <= _LONGEST_COMPARED]
            close = difflib.get_close_matches(name, short, _MOST_NAMES)
            near += [other for other in close if other not in near]
            named = ", ".join(map(shown, near[:_MOST_NAMES]))
            raise SettingsError(
                f"--faster: cannot replay with {shown(name)!r} faster: no operator or kernel has that name. "
                + (f"Names that come near: {named}." if near else "kinetoscope summary shows names.")
            )


def _check_ranks(wanted: Collection[int], report: RunReport) -> None:
    ranks = report.run["ranks"]
    for rank in sorted(wanted):
        if rank not in ranks:
            known = some(map(str, ranks), len(ranks), _MOST_RANKS, ", ") or "none"
            raise SettingsError(
                f"--on-time: cannot replay with rank {rank} on time: it is not among the recorded ranks ({known})."
            )
    if wanted and len(wanted) == len(ranks):
        raise SettingsError("--on-time: cannot replay with all ranks on time: nobody is left who waits for them.")


def _faster(text: str) -> tuple[str, float]:
    name, _, times = text.rpartition("=")
    try:
        factor = float(times)
    except ValueError:
        factor = math.nan
    if not name or not 1 / _MOST_TIMES <= factor <= _MOST_TIMES:
        raise argparse.ArgumentTypeError(
            f"cannot read {text!r}; write a name and how many times as fast, as in aten::mm=2"
        )
    return name, factor
