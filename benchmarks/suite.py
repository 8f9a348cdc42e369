"""Result of a suite, its targets, and their output as a table and as JSON."""

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.machine import describe_machine

_RATIO_UNITS = ("F", "x", "%")
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Target:
    """The target of one measure."""

    measure: str
    test: str
    value: float

    def is_met_by(self, value: float) -> bool:
        return _COMPARISONS[self.test](value, self.value)


# Our targets. Those of spans are for the recorder in C.
TARGETS = {
    "import_time": [Target("import kinetoscope", "<", 30)],
    "two_ranks": [
        Target("ends of a barrier on two ranks, apart", "<=", 1000),
        Target("record_function outside its marker", "<=", 5),
    ],
    "clocks": [
        Target("hours apart: truth within the bound", ">=", 99),
        Target("hours apart: bound", "<", 200),
        Target("hours apart, 100 ppm: truth within the bound", ">=", 99),
        Target("hours apart, 100 ppm: bound", "<", 200),
        Target("through 1 ms of delay: truth within the bound", ">=", 99),
        Target("through 1 ms of delay: bound", "<", 2000),
    ],
    "skipped_batch": [Target("batch of profiler.batches, skipped", "<", 10)],
    "step_in_loop": [
        Target("step() with its pulse, skipped, in a loop of 0.3 ms", "<=", 3),
        Target("step() with its pulse, skipped, in a loop of 3 ms", "<=", 8),
        Target("step() with its pulse, skipped, in a loop of 30 ms", "<=", 8),
        Target("hooks of a fetch, a backward and an optimizer's step, likewise: 0.3 ms", "<=", 10),
        Target("hooks of a fetch, a backward and an optimizer's step, likewise: 3 ms", "<=", 25),
        Target("hooks of a fetch, a backward and an optimizer's step, likewise: 30 ms", "<=", 25),
        Target("these and the step under kinetoscope run: 0.3 ms", "<=", 13),
        Target("these and the step under kinetoscope run: 3 ms", "<=", 33),
        Target("these and the step under kinetoscope run: 30 ms", "<=", 33),
        Target("step() that looks for slow steps, likewise: 3 ms", "<=", 30),
        Target("the whole loop of 3 ms that looks for slow steps is slower by", "<=", 1),
        Target("the whole loop of 0.3 ms, with a DataLoader, is slower by", "<=", 8),
    ],
    "marker_cost": [
        Target("marker with, active", "<=", 1.2),
        Target("marker with, skipped", "<=", 0.6),
        Target("marker decorator over the plain call, active", "<=", 2.5),
        Target("marker instant, active", "<=", 0.6),
        Target("marker counter of one value, active", "<=", 0.6),
        Target("marker counter of a dict, active", "<=", 1.5),
        Target("record_function on / marker with, active", ">=", 80),
        Target("record handed over, of a span", "<=", 32),
    ],
    "training_loop": [Target("marker with, active", "<=", 2.5)],
    "drain": [
        Target("drain to JSON, to tmpfs", ">=", 4),
        Target("marker loop beside a drain, slower by", "<=", 1),
    ],
    "reading": [
        Target("json.load / load to columns", ">=", 4.5),
        Target("load to columns: memory over the columns", "<=", 64),
        Target("second load, but args", "<=", 0.3),
        Target("JSON / Parquet", ">=", 15),
    ],
    "analysis": [
        Target("analyze / load to columns", "<=", 1.5),
        Target("load and analyze / json.load", "<=", 0.36),
        Target("load and analyze / HTA's load", "<=", 1 / 8),
        Target("analyze from cached columns / json.load", "<=", 0.3),
        Target("summary of an unchanged run", "<=", 0.3),
        Target("peak memory of load and analyze", "<=", 700),
        Target("peak memory of 75,000 events on one GPU", "<=", 300),
        Target("64 ranks / 16 ranks", "<=", 4.4),
        Target("1024 ranks", "<=", 90),
        Target("1024 ranks: memory / 64 ranks", "<=", 2),
    ],
    "report": [
        Target("page of the spans", "<=", 14),
        Target("page without data, compressed", "<=", 120),
        Target("interactive after opening", "<=", 1),
        Target("frame while zooming and panning, median", "<=", 16),
        Target("frame while zooming and panning, 95 %", "<=", 33),
        Target("fillRect for each span / a frame", ">=", 10),
        Target("search", "<=", 200),
        Target("heap", "<=", 150),
        Target("page written after loading", "<=", 5),
        Target("page written after loading: memory", "<=", 500),
        Target("table of an area of 10,000 spans", "<=", 50),
        Target("page of a large trace", "<=", 1.5),
        Target("page of a large trace: interactive", "<=", 3),
        Target("page of 64 ranks", "<=", 1.5),
        Target("page of 64 ranks: interactive", "<=", 3),
    ],
    "run_list": [
        Target("first page of 300 runs", "<=", 1),
        Target("one more run", "<=", 20),
    ],
    "status": [
        Target("1,024 pulses on the screen", "<=", 0.5),
        Target("kinetoscope status, 1,024 ranks", "<=", 0.5),
    ],
    "nested": [
        Target("nested() of Kineto's spans", "<=", 30),
        Target("nested() of spans in the order of their ends", "<=", 30),
    ],
    "torch_first_window": [
        Target("first window over torch's first start(), after a warm-up, plain", "<=", 100),
        Target("first window over torch's first start(), without a warm-up, plain", "<=", 100),
        Target("first window over torch's first start(), after a warm-up, with stacks", "<=", 100),
        Target("first window over torch's first start(), without a warm-up, with stacks", "<=", 100),
    ],
    "torch_record_function": [
        Target("record_function off / stock's", "<=", 1 / 10),
        Target("record_function on / stock's", "<=", 1 / 2.5),
        Target("record_function on with shapes / stock's", "<=", 1 / 2.5),
        Target("record_function under an execution trace / stock's", "<=", 1 / 2.5),
    ],
    "system_profiler": [
        Target("of one core at 0.5 s, by default", "<=", 0.2),
        Target("of one core at 0.5 s, with everything", "<=", 0.2),
    ],
    "sources": [
        Target("StackSampler, every 10 ms", "<=", 1.5),
        Target("all of diagnose=True", "<=", 1),
    ],
    "composer_trainer": [
        Target("Trainer slower, ours, skipping", "<=", 5),
        Target("Trainer slower, ours, active", "<=", 15),
    ],
    "lightning": [
        Target("step slower, ours, outside of its window", "<=", 10),
        Target("step slower, ours, without operators, in its window", "<=", 15),
        Target("step slower, ours, in its window", "<=", 90),
    ],
    "torch_results": [
        Target("export .json.gz / our own .json", "<=", 1.3),
        Target("export .json.gz / stock's", "<=", 1 / 8),
        Target("key_averages() / stock's", "<=", 1 / 8),
        Target("memory timeline .json / stock's", "<=", 1 / 5),
        Target("lost at a cycle's end / stock's", "<=", 1 / 4),
        Target("lost at a cycle's end / Kineto's stop alone", "<=", 1.4),
    ],
    "torch_loop": [
        Target(f"recorded step / stock's, {name}, low end", "<=", 1)
        for name in ("plain", "record_shapes", "profile_memory", "with_stack", "with_flops", "all")
    ],
    "torch_memory": [
        Target("peak of export and key_averages() / stock's", "<=", 1 / 3),
        Target("growth over the last 180 of 300 profiles, beyond stock's", "<=", 1),
    ],
    "packets": [
        Target("peak memory, order of their end", "<=", 60),
    ],
    "merging": [
        Target("merge to .json / byte copy", "<=", 3.5),
        Target("merge to .json", ">=", 100),
        Target("merge to .json.gz / to .json", "<=", 1.5),
        Target("plain json loop / merge to .json", ">=", 10),
        Target("merge to .pftrace", ">=", 1),
        Target("64 files / 64 x 1 file, dearer by", "<=", 10),
        Target("peak memory, 8 files", "<=", 150),
        Target("peak memory, 64 files", "<=", 150),
    ],
}


@dataclass(frozen=True)
class Measure:
    """One number. The units F (empty ``with`` on a C type), x (times) and % are ratios; others are of this machine."""

    name: str
    value: float
    unit: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """Result of one suite. ``times_ns`` has each candidate's best and median time per call, with the loop."""

    suite: str
    title: str
    measures: list[Measure]
    recorder: str | None = None
    notes: list[str] = field(default_factory=list)
    times_ns: dict[str, dict[str, float]] = field(default_factory=dict)

    def target_of(self, measure: Measure) -> Target | None:
        return next((target for target in TARGETS.get(self.suite, ()) if target.measure == measure.name), None)


def render_table(result: SuiteResult) -> Table:
    """Return the result as a table for the terminal."""
    recorder = f" (recorder: {result.recorder})" if result.recorder else ""
    table = Table(title=f"{result.suite}: {result.title}{recorder}", title_justify="left", caption_justify="left")
    table.caption = "\n".join(result.notes) or None
    table.add_column("what", overflow="fold")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("in detail", justify="right", no_wrap=True)
    table.add_column("asked for", no_wrap=True)
    for measure in result.measures:
        measured = (
            f"{measure.value:.3g} {measure.unit}" if measure.value < 100 else f"{measure.value:.0f} {measure.unit}"
        )
        table.add_row(measure.name, measured, measure.detail, _format_target(result, measure))
    return table


def write_result(result: SuiteResult, folder: Path, *, quick: bool) -> Path:
    """Write the result as JSON into ``folder``, which is made. Numbers of a ``quick`` run must not be quoted."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.suite}.json"
    path.write_text(json.dumps({**_encode(result), "quick": quick}, indent=2) + "\n")
    return path


def _format_target(result: SuiteResult, measure: Measure) -> str:
    target = result.target_of(measure)
    if target is None:
        return ""
    verdict = "[green]met[/]" if target.is_met_by(measure.value) else "[yellow]not met[/]"
    return f"{target.test} {target.value:g} {measure.unit}: {verdict}"


def _encode(result: SuiteResult) -> dict[str, Any]:
    return {
        "suite": result.suite,
        "title": result.title,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "recorder": result.recorder,
        "ratios": {
            measure.name: round(measure.value, 4) for measure in result.measures if measure.unit in _RATIO_UNITS
        },
        "units": {measure.name: measure.unit for measure in result.measures},
        "figures": {
            measure.name: round(measure.value, 4) for measure in result.measures if measure.unit not in _RATIO_UNITS
        },
        "targets": [_encode_target(result, measure) for measure in result.measures if result.target_of(measure)],
        "times_ns": result.times_ns,
        "notes": result.notes,
    }


def _encode_target(result: SuiteResult, measure: Measure) -> dict[str, Any]:
    target = result.target_of(measure)
    assert target is not None
    return {
        "measure": measure.name,
        "asked_for": f"{target.test} {target.value:g} {measure.unit}",
        "met": target.is_met_by(measure.value),
    }
