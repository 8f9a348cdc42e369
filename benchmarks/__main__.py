"""The command that runs the suites one after the other, prints a table for each and writes its JSON."""

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.from_tests import chromium
from benchmarks.suite import SuiteResult, render_table, write_result

# Each suite is a module with a function `run(quick)`.
_SUITES = {
    "import_time": "benchmarks.import_time",
    "two_ranks": "benchmarks.two_ranks",
    "clocks": "benchmarks.clocks",
    "marker_cost": "benchmarks.recording.marker_cost",
    "growth": "benchmarks.recording.growth",
    "skipped_batch": "benchmarks.recording.skipped_batch",
    "step_in_loop": "benchmarks.recording.step_in_loop",
    "plain_loop": "benchmarks.recording.plain_loop",
    "training_loop": "benchmarks.recording.training_loop",
    "drain": "benchmarks.recording.drain",
    "close": "benchmarks.recording.close",
    "reading": "benchmarks.files.reading",
    "nested": "benchmarks.files.nested",
    "analysis": "benchmarks.analysis.reports",
    "report": "benchmarks.report.timeline",
    "run_list": "benchmarks.report.run_list",
    "status": "benchmarks.report.status",
    "torch_record_function": "benchmarks.torch.record_function",
    "torch_results": "benchmarks.torch.results",
    "system_profiler": "benchmarks.sources.system_profiler",
    "sources": "benchmarks.sources.cost",
    "modules": "benchmarks.sources.modules",
    "composer_trainer": "benchmarks.composer.trainer",
    "lightning": "benchmarks.trainers.lightning",
    "traceml": "benchmarks.traceml.comparison",
    "torch_saving": "benchmarks.torch.saving",
    "torch_loop": "benchmarks.torch.loop",
    "torch_memory": "benchmarks.torch.memory",
    "torch_first_window": "benchmarks.torch.first_window",
    "merging": "benchmarks.files.merging",
    "packets": "benchmarks.files.packets",
}
_NEEDS = {
    "composer_trainer": "composer",
    "lightning": "lightning",
    "traceml": "traceml_ai",
}
_IN_CHROMIUM = {"report", "run_list"}
_RESULTS = Path(__file__).parent / "results"
_MIN_WIDTH = 120  # columns, where the output is no terminal


def main() -> None:
    """Run the suites that the command line names, or all."""
    arguments = _make_parser().parse_args()
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _MIN_WIDTH)
    for name in choose_suites(arguments.only):
        console.print(f"[dim]{name}: measuring ...[/]")
        result: SuiteResult = import_module(_SUITES[name]).run(quick=arguments.quick)
        write_result(result, arguments.results, quick=arguments.quick)
        console.print(render_table(result))
        console.print()
        check_minimums(result, arguments.at_least)


def choose_suites(only: list[str] | None) -> list[str]:
    """Return the suites to run: those in ``only``, or all that can run here. Exit if one of ``only`` needs Chromium."""
    in_chromium = _IN_CHROMIUM.intersection(only or _SUITES)
    missing = in_chromium if in_chromium and chromium() is None else set[str]()
    if missing:
        line = f"{', '.join(sorted(missing))}: not measured, because Chromium is not installed."
        if only:
            sys.exit(line)
        print(line)
    return only or [suite for suite in _SUITES if suite not in missing and find_spec(_NEEDS.get(suite, "kinetoscope"))]


def check_minimums(result: SuiteResult, wanted: list[tuple[str, float]]) -> None:
    """End the command with a sentence and exit code 1 if one of the measures is smaller than it should be."""
    for measure in result.measures:
        for name, minimum in wanted:
            if measure.name == name and not measure.value >= minimum:
                sys.exit(f"{name} is {measure.value:.3g} {measure.unit}, and should be {minimum:g} at least.")


def _parse_minimum(text: str) -> tuple[str, float]:
    name, _, minimum = text.rpartition("=")
    return name, float(minimum)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few short rounds: to see that it works, not to quote")
    parser.add_argument("--only", action="append", choices=_SUITES, metavar="NAME", help=f"one of {', '.join(_SUITES)}")
    parser.add_argument("--results", type=Path, default=_RESULTS, metavar="DIR", help="where the JSON files go")
    parser.add_argument(
        "--at-least",
        action="append",
        default=[],
        type=_parse_minimum,
        metavar="MEASURE=N",
        help="fail if it is smaller",
    )
    return parser


if __name__ == "__main__":
    main()
