"""A simulated run with the report on its traces."""

import json
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kinetoscope
from trainsim.run import SimulatedRun, simulate
from trainsim.settings import Settings

if TYPE_CHECKING:
    from kinetoscope.analysis.analyze import RunReport


def simulate_and_analyze(settings: Settings) -> "tuple[SimulatedRun, RunReport]":
    """Simulate a run, and analyze the traces that it writes."""
    run = simulate(settings)
    with tempfile.TemporaryDirectory() as folder:
        run.write(Path(folder))
        return run, kinetoscope.analyze(folder, cache=False)


analyze_cached = lru_cache(maxsize=256)(simulate_and_analyze)
"""The same, done once for all tests of a process."""


@lru_cache(maxsize=256)
def measured(settings: Settings) -> "tuple[SimulatedRun, RunReport]":
    """Return the same without findings and a graph, which takes half the time: for tests of what is measured."""
    from kinetoscope.analysis.analyze import build_run_report
    from kinetoscope.analysis.summaries import Selection, sum_trace

    run = simulate(settings)
    with tempfile.TemporaryDirectory() as folder:
        names = map(str, run.write(Path(folder)))
        traces = [sum_trace(name, selection=Selection(), cache=False, with_graph=False) for name in names]
    return run, build_run_report(traces)


def first_wait_ns(run: SimulatedRun, report: "RunReport") -> float:
    """Return for how much longer a loop waited for its first batch than for others, where that was before its first
    step: no step's time has that, so no report says that it is saved."""
    if run.settings.step_spans == "ProfilerStep":
        return 0.0
    longer = [0.0]
    for rank in report.run["ranks"]:
        first, *others = (row.data_wait_ns or 0 for row in report.steps if row.rank == rank)
        longer += [first - sum(others) / len(others)] if others else []
    return max(longer)


def write_changed(change: Callable[[dict[str, Any]], None], settings: Settings, folder: Path) -> Path:
    """Write the traces of a run into the folder, each after ``change`` has changed it as plain data."""
    for path in simulate(settings).write(folder):
        trace = json.loads(path.read_text(encoding="utf-8"))
        change(trace)
        path.write_text(json.dumps(trace), encoding="utf-8")
    return folder


def add_core_load(
    percent: float | None, num_readings: int = 3, of_process: float | None = None
) -> Callable[[dict[str, Any]], None]:
    """Return a change by which the machine's cores were busy, and the process had so much of one."""

    def change(trace: dict[str, Any]) -> None:
        first = min(event["ts"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op")
        read = {
            ("cpu", "percent"): percent,
            ("process", "percent"): of_process,
        }
        for (name, series), value in read.items():
            counter = {"ph": "C", "name": name, "pid": 1, "tid": 1, "args": {series: value}}
            times = range(num_readings if value is not None else 0)
            trace["traceEvents"] += [counter | {"ts": first + number} for number in times]

    return change
