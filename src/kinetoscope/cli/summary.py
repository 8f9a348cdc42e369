"""The command ``kinetoscope summary``: findings on a run, and where its time goes."""

import argparse
from collections.abc import Sequence

from kinetoscope.analysis.analyze import RunReport, analyze_sources
from kinetoscope.analysis.findings.judgement import judge_pulse
from kinetoscope.analysis.steps.all_steps import summarize_all_steps
from kinetoscope.analysis.summaries import Selection
from kinetoscope.cli.dask_cluster import open_reader
from kinetoscope.cli.options import PATH, add_attempt, add_details, add_json, add_last, add_no_cache, add_ranks
from kinetoscope.cli.paths import find_newest_run, print_later_run, wait_for_inputs
from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.frames.all_steps import find_run_pulses, read_run_stuck_phases

DEFAULT_DEPTH = 3
_EXAMPLES = """\
examples:
  kinetoscope summary
      summarize the newest run in ./runs
  kinetoscope summary runs/digits
      show findings with cost and saving, time breakdowns, and the slowest operators
  kinetoscope summary runs/digits --details
      add the evidence of each finding, its location and the full advice
  kinetoscope summary runs/digits --modules 2
      show the layers of the model, of a run recorded with --modules or --diagnose
  kinetoscope summary trace.json.gz --step train_step
      read a trace of any profiler, with the spans called train_step as steps
  kinetoscope summary runs/digits -r 0,4-7 --json
      print the rows of five ranks as JSON
  kinetoscope summary runs/digits --last 30
      summarize the last 30 seconds, also of a run that is still recording
  kinetoscope summary /nfs/runs/large --dask tcp://10.0.0.1:8786
      read many ranks on a Dask cluster whose workers see the files under the same path
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``summary``."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "inputs",
        metavar="PATH",
        nargs="*",
        help=f"{PATH}, or URLs; - is stdin (default: the newest run in ./runs)",
    )
    add_json(parser)
    add_details(parser)
    parser.add_argument(
        "--modules",
        metavar="DEPTH",
        nargs="?",
        const=DEFAULT_DEPTH,
        type=_parse_depth,
        help=f"show time, FLOPs and memory by torch module, to this depth (default: {DEFAULT_DEPTH})",
    )
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the summary; return the exit code."""
    if isinstance(arguments.modules, str):  # ``--modules PATH``
        arguments.inputs, arguments.modules = [arguments.modules, *arguments.inputs], DEFAULT_DEPTH
    arguments.inputs = arguments.inputs or [find_newest_run()]
    report = analyze_inputs(arguments)
    print_later_run(arguments.inputs)
    if arguments.json:
        print(report.to_json())
        return 0
    from kinetoscope.report.terminal.modules import render_module_summary
    from kinetoscope.report.terminal.screen import print_screen
    from kinetoscope.report.terminal.summary import render_summary

    if arguments.modules is not None:
        require_modules(report)
        print_screen(lambda width: render_module_summary(report, arguments.modules, width))
        return 0
    print_screen(lambda width: render_summary(report, width, with_details=arguments.details))
    return 0


def _parse_depth(text: str) -> int | str:
    """Return a depth; or the text, which is a path then."""
    return int(text) if text.isdecimal() else text


def require_modules(report: RunReport) -> None:
    """Raise `SettingsError` for a run without calls of modules."""
    if not report.modules:
        raise SettingsError(
            "No calls of modules were recorded. Record with: kinetoscope run --modules ..., or profile(modules=True)"
        )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select a part of a run."""
    parser.add_argument(
        "--step",
        metavar="SPAN",
        help="use the spans of this name as steps",
    )
    add_ranks(parser)
    add_last(parser)
    add_attempt(parser)
    add_no_cache(parser)
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="read traces on a Dask cluster, as in tcp://10.0.0.1:8786",
    )


def build_selection(arguments: argparse.Namespace, faster: frozenset[str] = frozenset()) -> Selection:
    """Return the selection of the arguments of `add_selection`, with the operators that a replay makes ``faster``."""
    return Selection(
        step=arguments.step,
        ranks=arguments.ranks,
        last_s=arguments.last,
        operators=faster,
        attempt=arguments.attempt,
    )


def analyze_inputs(
    arguments: argparse.Namespace, faster: frozenset[str] = frozenset(), *, with_graph: bool = False
) -> RunReport:
    """Return the report on the inputs of the arguments.

    A replay needs the names of the operators that it makes ``faster``, and the graph of the run.
    """
    wait_for_inputs(arguments.inputs)
    selection = build_selection(arguments, faster)
    try:
        with open_reader(arguments) as each:
            return analyze_sources(
                arguments.inputs, selection, each, cache=not arguments.no_cache, with_graph=with_graph
            )
    except TraceFileError as error:
        if text := describe_pulse(arguments.inputs, arguments.attempt, has_traces=False):
            raise TraceFileError(f"{error} {text}") from error
        raise


def describe_pulse(names: Sequence[str], attempt: int | None, *, has_traces: bool) -> str:
    """Return sentences on all steps of a run and its hangs, from its pulse; "" without one.

    With ``has_traces``, changes are left out: some steps took longer because they were recorded.
    """
    from kinetoscope.report.descriptions import describe_all_steps

    pulses = find_run_pulses(names[0], attempt) if len(names) == 1 else []
    facts = summarize_all_steps(pulses, (), 0)
    if facts is not None and has_traces:
        facts["changed_at"] = facts["change"] = None
    hangs = judge_pulse(read_run_stuck_phases(names[0], pulses)) if pulses else []
    lines = ["" if facts is None else describe_all_steps(facts), *(f"{found.title}." for found in hangs)]
    return " ".join(filter(None, lines))
