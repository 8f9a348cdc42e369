"""cli: ``kinetoscope summary``, which says what is wrong with a run, and where its time went."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kinetoscope.analysis.all_steps import about_all_steps
from kinetoscope.analysis.analyze import RunReport, report_of
from kinetoscope.analysis.hangs import find_hangs
from kinetoscope.analysis.summaries import Selection
from kinetoscope.cli.dask_cluster import reader
from kinetoscope.cli.first_finding import print_first
from kinetoscope.cli.options import add_attempt, add_json, add_last, add_no_cache, add_paths, add_ranks
from kinetoscope.cli.paths import print_later_run, require_there
from kinetoscope.errors import TraceFileError
from kinetoscope.table.all_steps import pulses_of, stuck_phases_of

_EXAMPLES = """\
examples:
  kinetoscope summary runs/digits
      what is wrong, what that costs and what mending it saves; then where a step of each rank goes, and the
      operators and kernels that take the most time
  kinetoscope summary trace.json.gz --step train_step
      of any profiler's trace, in which spans called train_step are the steps
  kinetoscope summary runs/digits --ranks 0,4-7 --json
      all rows, of five ranks, for programs
  kinetoscope summary runs/digits --last 30
      of the last 30 seconds that each rank recorded, also while the run goes on
  kinetoscope summary /shared/runs/large --dask tcp://10.0.0.1:8786
      of many ranks, which the workers of a Dask cluster read; they must see the files under the same path
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``summary``."""
    parser.epilog = _EXAMPLES
    add_paths(parser, ", or URLs; - is stdin")
    add_json(parser)
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report."""
    if arguments.first:
        return print_first(arguments.inputs, arguments.report)
    report = report_on(arguments)
    print_later_run(arguments.inputs)
    if arguments.json:
        print(report.to_json())
        return 0
    from rich.console import Console

    from kinetoscope.report.terminal import render_report

    console = Console(highlight=False)
    console.print(render_report(report, console.width))
    return 0


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say which part of a run is meant."""
    parser.add_argument(
        "--step",
        metavar="SPAN",
        help="the name of the spans that are steps; what is before the first and after the last is left out",
    )
    add_ranks(parser)
    add_last(parser)
    add_attempt(parser)
    add_no_cache(parser)
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="read the traces on the Dask cluster with this scheduler, as in tcp://10.0.0.1:8786",
    )


def selection_of(arguments: argparse.Namespace, faster: frozenset[str] = frozenset()) -> Selection:
    """The part of a run that the arguments of `add_selection` name."""
    return Selection(
        step=arguments.step,
        ranks=arguments.ranks,
        last_s=arguments.last,
        operators=faster,
        attempt=arguments.attempt,
    )


def report_on(
    arguments: argparse.Namespace, faster: frozenset[str] = frozenset(), *, with_graph: bool = False
) -> RunReport:
    """The report of what the arguments name, in which operators can be ``faster``."""
    require_there(arguments.inputs)
    selection = selection_of(arguments, faster)
    try:
        with reader(arguments) as each:
            return report_of(arguments.inputs, selection, each, cache=not arguments.no_cache, with_graph=with_graph)
    except TraceFileError as error:
        if said := all_steps_said(arguments.inputs, arguments.attempt, has_traces=False):
            raise TraceFileError(f"{error} {said}") from error
        raise


def all_steps_said(names: Sequence[str], attempt: int | None, *, has_traces: bool) -> str:
    """What the pulse of a run says of all its steps, where nothing else is known of them; "" without one. If it
    ``has_traces``, some of the steps took longer because they were recorded: then nothing is said of changes."""
    from kinetoscope.report.sentences import all_steps_line

    pulses = pulses_of(names[0], attempt) if len(names) == 1 else []
    about = about_all_steps(pulses, (), 0)
    if about is not None and has_traces:
        about["changed_at"] = about["change"] = None
    hangs = find_hangs(stuck_phases_of(names[0], pulses)) if pulses else []
    lines = ["" if about is None else all_steps_line(about), *(f"{found.title}." for found in hangs)]
    return " ".join(filter(None, lines))
