"""cli: ``kinetoscope whatif``, which says how long a step would take with something changed."""

import argparse
import difflib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.replay.replay import CAUSES, Change
from kinetoscope.analysis.replay.what_if import what_if
from kinetoscope.cli.summary import add_selection, report_on
from kinetoscope.errors import SettingsError

SCHEMA = 1
_MOST_NAMES = 5

_EXAMPLES = """\
examples:
  kinetoscope whatif runs/digits
      what a step would gain without each cause of waiting, and with each late rank on time
  kinetoscope whatif runs/digits --faster aten::mm=2
      if aten::mm, with all that is inside of it on the host and the device, took half the time
  kinetoscope whatif runs/digits --without data --without gc
      if batches were always there, and the garbage collector never ran: both at once
  kinetoscope whatif runs/digits --on-time 2 --json
      what the other ranks would gain if they never waited for rank 2, for programs

Times are of a step, on average over all that was recorded. The run is replayed: what waits for something that
comes earlier comes earlier, too, up to the next thing that it waits for. What was not recorded stays as it was:
workers of a loader make batches as fast as they did.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``whatif``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("inputs", metavar="PATH", nargs="+", help="the folder of a run, trace files, globs or URLs")
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
    parser.add_argument("--on-time", metavar="RANK", type=_rank, help="a rank that nobody waits for")
    parser.add_argument("--json", action="store_true", help="the times, as one JSON object")
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the time of a step before and after."""
    faster = dict(arguments.faster)
    report = report_on(arguments, frozenset(faster), with_graph=True)
    _check_names(faster, report)
    _check_rank(arguments.on_time, report)
    change = Change(frozenset(arguments.without), faster, arguments.on_time)
    changes = _all_changes(report) if change == Change() else [change]
    if arguments.json:
        print(_as_json(report, changes))
        return 0
    from rich.console import Console

    from kinetoscope.report.what_if import render_what_ifs

    Console(highlight=False).print(render_what_ifs(report, [what_if(report, change) for change in changes]))
    return 0


def _all_changes(report: RunReport) -> list[Change]:
    """Each cause alone, then each late rank."""
    causes = [Change(frozenset([cause])) for cause in CAUSES]
    return causes + [Change(on_time=row.rank) for row in report.stragglers]


def _as_json(report: RunReport, changes: Sequence[Change]) -> str:
    why = report.graph.why_untrusted if report.graph is not None else None
    rows = [asdict(what_if(report, change)) for change in changes]
    found = {"schema": SCHEMA, "num_steps": report.run["num_steps"], "why_untrusted": why, "what_ifs": rows}
    return json.dumps(found)


def _check_names(names: Iterable[str], report: RunReport) -> None:
    known = dict.fromkeys(row.name for row in (*report.operators, *report.kernels))
    for name in names:
        if name not in known:
            near = [other for other in known if name.lower() in other.lower()]
            near += [other for other in difflib.get_close_matches(name, known, _MOST_NAMES) if other not in near]
            hint = (
                f"Names that come near: {', '.join(near[:_MOST_NAMES])}."
                if near
                else "kinetoscope summary shows names."
            )
            raise SettingsError(f"Cannot replay with {name!r} faster: no operator or kernel has that name. {hint}")


def _check_rank(rank: int | None, report: RunReport) -> None:
    ranks = report.run["ranks"]
    if rank is not None and rank not in ranks:
        known = ", ".join(map(str, ranks)) or "none"
        raise SettingsError(f"Cannot replay with rank {rank} on time: it is not among the recorded ranks ({known}).")


def _faster(text: str) -> tuple[str, float]:
    name, _, times = text.rpartition("=")
    try:
        factor = float(times)
    except ValueError:
        factor = math.nan
    if not name or not 0 < factor < math.inf:
        raise argparse.ArgumentTypeError(
            f"cannot read {text!r}; write a name and how many times as fast, as in aten::mm=2"
        )
    return name, factor


def _rank(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"cannot read the rank {text!r}; write a number, as in 2")
    return int(text)
