"""cli: ``kinetoscope info``. Traces flow in; one screen about what is in them flows out."""

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from kinetoscope.cli.progress import Progress, work_on_each
from kinetoscope.merge.merge_traces import ByteProgress
from kinetoscope.table.load import find_traces, is_single, load_one
from kinetoscope.table.summary import TraceSummary, summarize_trace
from kinetoscope.table.trace import Trace
from kinetoscope.training.wording import counted, printable_lines, sized

_MOST_CATEGORIES = 8
_MOST_TRACES = 40
_EXAMPLES = """\
examples:
  kinetoscope info trace.json.gz
      ranks, clock, span of time, batches, categories, sizes
  kinetoscope info runs/digits
      the ranks of a run, also of one that is still recording
  torch-job | kinetoscope info - --json
      of a pipe, for programs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``info``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="trace files, folders, globs, URLs, or - for stdin")
    parser.add_argument("--json", action="store_true", help="one JSON object per trace, a line each")
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write .kinetoscope_cache")


def run(arguments: argparse.Namespace) -> int:
    """Prints what is in the traces; 1 if one of them needed repairs, else 0."""
    names = [found for name in arguments.inputs for found in ([name] if is_single(name) else find_traces(name))]
    traces = work_on_each("reading", partial(_load, cache=not arguments.no_cache), names)
    summaries = [summarize_trace(it) for it in traces]
    if arguments.json:
        for summary in summaries:
            print(json.dumps(asdict(summary)))
    else:
        _print(summaries)
    return int(any(it.repairs for it in summaries))


def _load(name: str, on_progress: Progress, *, cache: bool) -> Trace:
    return load_one(name, cache=cache, on_bytes=ByteProgress([name], on_progress, num_passes=1).advance)


def _print(summaries: list[TraceSummary]) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    if len(summaries) > 1:
        console.print(_line_of_all(summaries))
    for summary in summaries[:_MOST_TRACES]:
        console.print(printable_lines(_text(summary)), markup=False)
    if len(summaries) > _MOST_TRACES:
        console.print(f"... and {len(summaries) - _MOST_TRACES} more traces; --json lists all.")


def _line_of_all(summaries: list[TraceSummary]) -> str:
    ranks = {rank for it in summaries for rank in it.ranks}
    num_spans = sum(it.num_spans for it in summaries)
    return f"{counted(len(summaries), 'trace')} of {counted(len(ranks), 'rank')}, {counted(num_spans, 'span')}"


def _text(it: TraceSummary) -> str:
    lines = [it.name + (f" ({sized(it.size_bytes)})" if it.size_bytes is not None else "")]
    lines.append(f"  rank        {_rank(it)}" + (f" on {it.host}" if it.host else ""))
    lines.append(f"  clock       {_clock(it)}")
    lines.append(f"  time        {_time(it)}, {it.num_batches} {'batch' if it.num_batches == 1 else 'batches'}")
    lines.append(
        f"  events      {counted(it.num_spans, 'span')} on {counted(it.num_tracks, 'track')}, "
        f"{counted(it.num_instants, 'instant')}, {counted(it.num_counters, 'counter')}, "
        f"{counted(it.num_flows, 'flow end')}"
    )
    shown = list(it.categories.items())[:_MOST_CATEGORIES]
    rest = len(it.categories) - len(shown)
    more = [f"{rest} more"] if rest else []
    lines.append("  categories  " + ", ".join([*(f"{name} {count:,}" for name, count in shown), *more]))
    lines += [f"  note        {note}" for note in it.notes]
    return "\n".join(lines + [f"  repaired    {repair}" for repair in it.repairs])


def _rank(it: TraceSummary) -> str:
    of = f" of {it.world_size}" if it.world_size else ""
    if it.rank is not None:
        return f"{it.rank}{of}"
    if len(it.ranks) > 1:
        return f"{len(it.ranks)} ranks, {it.ranks[0]} to {it.ranks[-1]}{of}"
    return f"unknown{of}"


def _clock(it: TraceSummary) -> str:
    if not it.has_clock:
        return "its own: other traces can be aligned with it only on a span that both have"
    bound = "" if it.clock_bound_ns is None else f", read to within {it.clock_bound_ns / 1e3:.1f} us"
    return f"unix time{bound}"


def _time(it: TraceSummary) -> str:
    if it.begin_ns is None or it.end_ns is None:
        return "no spans"
    length = f"{(it.end_ns - it.begin_ns) / 1e9:.3f} s"
    if not it.has_clock:
        return length
    begin = datetime.fromtimestamp(it.begin_ns / 1e9, UTC)
    return f"{length} from {begin:%Y-%m-%d %H:%M:%S} UTC"
