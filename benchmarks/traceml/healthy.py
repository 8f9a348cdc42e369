"""A training run without a fault: cost of a tool, its warnings, and changes between two equal runs."""

import json
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

from benchmarks.traceml.tools import (
    TOOLS,
    FinishedRun,
    ToolReport,
    Training,
    kinetoscope,
    read_report,
    run_training,
    traceml,
    traceml_summary,
)

_FIRST_RECORDED = 0  # of the steps that are timed: two come before them
_NUM_RECORDED = 40
SIZES = {"medium": 600, "small": 5000}
"""Number of steps of the training runs. Those of the small one take about 0.2 ms."""


@dataclass(frozen=True)
class Rounds:
    """The runs of each tool, which took turns."""

    ran: dict[str, list[FinishedRun]]

    def step_ms(self, tool: str, part: str) -> float:
        """Return a step's time, as the median over the rounds.

        Each round counts with the median of its recorded or other steps, or the mean of all.
        """
        times = [ran.step_times_ms() for ran in self.ran[tool]]
        if part == "all":
            return median(map(fmean, times))
        recorded = slice(_FIRST_RECORDED, _NUM_RECORDED)
        others = slice(2 * _NUM_RECORDED, None)
        return median(median(of_run[recorded if part == "recorded" else others]) for of_run in times)

    def slower_by(self, tool: str, part: str) -> float:
        """Return the slowdown in percent of a step without a tool in the same part of the run."""
        return 100 * (self.step_ms(tool, part) / self.step_ms("none", part) - 1)


def run_rounds(size: str, num_rounds: int, folder: Path) -> Rounds:
    """Run the training with none of the tools, and with each, in turns."""
    ran: dict[str, list[FinishedRun]] = {tool: [] for tool in TOOLS}
    for number in range(num_rounds):
        for tool in TOOLS:
            ran[tool].append(run_training(tool, _training(size), folder / f"{size}-{tool}-{number}"))
    return Rounds(ran)


def warnings(rounds: Rounds, tool: str) -> list[ToolReport]:
    """Return the certain diagnoses of the tool in runs without a fault."""
    return [report for report in map(read_report, rounds.ran[tool]) if report.is_sure]


def false_changes(rounds: Rounds, tool: str, folder: Path) -> tuple[int, int]:
    """Return in how many pairs of runs of the same program the tool saw a change, and the number of pairs."""
    pairs = list(combinations([ran.out for ran in rounds.ran[tool]], 2))
    differ = _traceml_differs if tool == "traceml" else _kinetoscope_differs
    return sum(differ(before, after, folder) for before, after in pairs), len(pairs)


def _kinetoscope_differs(before: Path, after: Path, folder: Path) -> bool:
    rows = json.loads(kinetoscope("diff", "--json", str(before), str(after)).stdout)["rows"]
    return any(row["kind"] == "step" and row["verdict"] in ("slower", "faster") for row in rows)


def _traceml_differs(before: Path, after: Path, folder: Path) -> bool:
    output = folder / f"{before.name}-{after.name}"
    traceml("compare", *map(str, map(traceml_summary, (before, after))), "--output", str(output), folder=folder)
    return json.loads(output.with_suffix(".json").read_text())["verdict"]["status"] in (
        "IMPROVEMENT",
        "REGRESSION",
        "MIXED",
    )


def run_recording_all(size: str, folder: Path) -> FinishedRun:
    """Return the training with all of its steps recorded by ours."""
    return run_training("kinetoscope", replace(_training(size), num_recorded=SIZES[size]), folder / f"{size}-all")


def _training(size: str) -> Training:
    arguments = ("--size", size, "--steps", str(SIZES[size]))
    return Training(script="long_training.py", arguments=arguments, num_recorded=_NUM_RECORDED)
