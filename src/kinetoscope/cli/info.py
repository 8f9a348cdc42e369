"""The command ``kinetoscope info``: a summary of the contents of traces."""

import argparse
import json
import sys
from dataclasses import asdict

from kinetoscope.cli.loading import load_traces
from kinetoscope.cli.options import add_attempt, add_json, add_no_cache, add_paths
from kinetoscope.cli.paths import wait_for_inputs
from kinetoscope.cli.summary import describe_pulse
from kinetoscope.core.text.wording import format_count, sanitize_lines
from kinetoscope.frames.load import build_attempt_notes
from kinetoscope.frames.summary import TraceSummary, render_summary, summarize_trace

_MAX_TRACES = 40
_EXAMPLES = """\
examples:
  kinetoscope info trace.json.gz
      show ranks, clock, duration, batches, categories and sizes
  kinetoscope info runs/digits
      show the ranks of a run, also while it is recording
  torch-job | kinetoscope info - --json
      read from a pipe, and print JSON
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``info``."""
    parser.epilog = _EXAMPLES
    add_paths(parser, ", or URLs; - is stdin")
    add_json(parser)
    add_attempt(parser)
    add_no_cache(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the contents of traces; return 1 if one of them was repaired, else 0."""
    wait_for_inputs(arguments.inputs)
    traces = load_traces(arguments.inputs, cache=not arguments.no_cache, attempt=arguments.attempt)
    for note in (note for name in arguments.inputs for note in build_attempt_notes(name, arguments.attempt)):
        print(sanitize_lines(note), file=sys.stderr)
    summaries = [summarize_trace(trace) for trace in traces]
    if arguments.json:
        for summary in summaries:
            print(json.dumps(asdict(summary)))
    else:
        _print_summaries(summaries)
        if sentence := describe_pulse(arguments.inputs, arguments.attempt, has_traces=True):
            print(sentence)
    return int(any(summary.repairs for summary in summaries))


def _print_summaries(summaries: list[TraceSummary]) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    if len(summaries) > 1:
        console.print(_summarize(summaries))
    for summary in summaries[:_MAX_TRACES]:
        console.print(sanitize_lines(render_summary(summary)), markup=False)
    if len(summaries) > _MAX_TRACES:
        console.print(f"... and {len(summaries) - _MAX_TRACES} more traces; --json lists all.")


def _summarize(summaries: list[TraceSummary]) -> str:
    """Return a line on the traces, ranks and spans of all files."""
    ranks = {rank for summary in summaries for rank in summary.ranks}
    num_spans = sum(summary.num_spans for summary in summaries)
    traces = f"{format_count(len(summaries), 'trace')} of {format_count(len(ranks), 'rank')}"
    return f"{traces}, {format_count(num_spans, 'span')}"
