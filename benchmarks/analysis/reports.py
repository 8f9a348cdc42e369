"""The report on a large trace, compared with `json.load` and HTA's load; and on runs of many ranks.

Every candidate is a process of its own, on one processor, and processor time is what counts, so that other load
matters little. HTA is measured where `make test-hta` has made its environment. The ranks are simulated.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.files.traces import LARGE_BYTES, write_large_trace
from benchmarks.from_tests import simulation
from benchmarks.suite import Measure, SuiteResult

_ROOT = Path(__file__).parents[2]
_HTA = _ROOT / ".venv-hta" / "bin" / "python"
_QUICK_BYTES = 10_000_000
_TIMEOUT_S = 600

_JSON, _LOAD, _ANALYZE, _CACHED = "json.load", "load to columns", "analyze", "analyze from cached columns"
_UNCHANGED, _HTA_LOAD, _BOTH = "summary of an unchanged run", "HTA's load", "load and analyze"

_IMPORTS = "import sys, kinetoscope, polars; polars.LazyFrame({'a': [1]}).collect()\n"
_READ_TRACE = (
    "from kinetoscope.frames.load import read_trace\nfrom kinetoscope.frames.trace import Trace\n"
    "def load():\n    read = read_trace(sys.argv[1])\n    return Trace('large', read.about, read.frame.lazy())\n"
)
# What a process runs with the file's name. Imports are not timed, but for the command.
_TASKS = {
    _JSON: "import json, sys; file = open(sys.argv[1], encoding='utf-8')\ndef work(): return json.load(file)",
    _LOAD: f"{_IMPORTS}{_READ_TRACE}work = load",
    _ANALYZE: f"{_IMPORTS}{_READ_TRACE}import kinetoscope.analysis.analyze\ntrace = load()\n"
    "def work(): return kinetoscope.analyze(trace)",
    _BOTH: f"{_IMPORTS}{_READ_TRACE}import kinetoscope.analysis.analyze\n"
    "def work(): return kinetoscope.analyze(load())",
    _CACHED: f"{_IMPORTS}import kinetoscope.analysis.analyze\n"
    "def work(): return kinetoscope.analyze([kinetoscope.load(sys.argv[1])])",
    _UNCHANGED: "import sys\nclass Nowhere:\n    def write(self, text): ...\n    def flush(self): ...\n"
    "def work():\n    from kinetoscope.cli import main\n    sys.stdout, there = Nowhere(), sys.stdout\n"
    "    main(['summary', sys.argv[1]])\n    sys.stdout = there",
    _HTA_LOAD: "import sys\nfrom hta.common import trace_parser\n"
    "from hta.configs.parser_config import ParserBackend, ParserConfig\n"
    "trace_parser.set_default_trace_parsing_backend(ParserBackend.JSON)\n"
    "def work(): return trace_parser.parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())",
}
_PROGRAM = """
import os, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
{work}
begin = time.process_time()
result = work()
seconds = time.process_time() - begin
print(seconds, next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
_RANKS_PROGRAM = """
import multiprocessing, resource, sys, time
from concurrent.futures import ProcessPoolExecutor
import kinetoscope
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    begin = time.perf_counter(), sum(resource.getrusage(who)[0] for who in (0, resource.RUSAGE_CHILDREN))
    with ProcessPoolExecutor(mp_context=context) as pool:
        report = kinetoscope.analyze(sys.argv[1], cache=False, executor=pool)
    used = sum(resource.getrusage(who)[0] for who in (0, resource.RUSAGE_CHILDREN)) - begin[1]
    peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(used, peak, time.perf_counter() - begin[0])
"""


def run(*, quick: bool) -> SuiteResult:
    """Make the report in every way."""
    with tempfile.TemporaryDirectory(prefix="analysis-") as name:
        folder = Path(name)
        trace = write_large_trace(folder / "large" / "large.pt.trace.json", _QUICK_BYTES if quick else LARGE_BYTES)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        works = {work: text for work, text in _TASKS.items() if work != _HTA_LOAD or _HTA.exists()}
        _measure(_TASKS[_UNCHANGED], trace)  # fills the caches
        readings: dict[str, list[tuple[float, ...]]] = {work: [] for work in works}
        for _ in range(1 if quick else 3):
            for work, text in works.items():
                python = str(_HTA) if work == _HTA_LOAD else sys.executable
                readings[work].append(_measure(text, trace, python))
        _, of_layers_bytes = _measure(_TASKS[_BOTH], _write_layers(folder, num_steps=2 if quick else 13))
        few, more, many = (2, 4, 8) if quick else (16, 64, 1024)
        by_num_ranks = {number: _measure_ranks(folder, number) for number in (few, more, many)}
        return _make_result(readings, by_num_ranks, trace.stat().st_size, of_layers_bytes)


def _measure(work: str, trace: Path, python: str = sys.executable) -> tuple[float, ...]:
    """Return the processor seconds, and the peak of memory in bytes."""
    return _run_program([python, "-c", _PROGRAM.format(work=work), str(trace)])


def _write_layers(folder: Path, num_steps: int) -> Path:
    """Return a trace of one GPU and a float32 network whose kernels have 176 names: 75,000 events in 13 steps.

    The savings of a faster kernel of each name once took 1.3 GB.
    """
    simulated = simulation()
    faults = (simulated.Fault(kind="float32", cost_ns=20_000),)
    settings = simulated.Settings(
        num_ranks=1, num_layers=160, num_steps=num_steps, step_ns=90_000_000, reads_loss="each step", faults=faults
    )
    (path,) = simulated.simulate(settings).write(folder / "layers")
    trace = json.loads(path.read_text(encoding="utf-8"))
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    for index, event in enumerate(kernels):
        event["name"] += f"_{index % 60}"
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path


def _measure_ranks(folder: Path, num_ranks: int) -> tuple[float, ...]:
    """Return the same, and the seconds, for simulated ranks of a thousand events each."""
    program, ranks = folder / "many.py", folder / f"ranks{num_ranks}"
    program.write_text(_RANKS_PROGRAM, encoding="utf-8")
    simulated = simulation()
    simulated.simulate(
        simulated.Settings(num_ranks=num_ranks, num_layers=2, num_warmup_steps=1, step_ns=1_200_000, has_memory=False)
    ).write(ranks)
    return _run_program([sys.executable, str(program), str(ranks)])


def _run_program(command: list[str]) -> tuple[float, ...]:
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, timeout=_TIMEOUT_S, stdout=subprocess.PIPE, text=True)
    return tuple(map(float, done.stdout.split()[-3:]))


def _make_result(
    readings: Mapping[str, list[tuple[float, ...]]],
    by_num_ranks: Mapping[int, tuple[float, ...]],
    trace_bytes: int,
    of_layers_bytes: float,
) -> SuiteResult:
    few, more, many = by_num_ranks
    peak_bytes = max(reading[1] for reading in readings[_BOTH])
    measures = [
        _make_ratio(readings, _ANALYZE, _LOAD),
        _make_ratio(readings, _BOTH, _JSON),
        *([_make_ratio(readings, _BOTH, _HTA_LOAD)] if _HTA_LOAD in readings else []),
        _make_ratio(readings, _CACHED, _JSON),
        Measure(_UNCHANGED, min(reading[0] for reading in readings[_UNCHANGED]), "s", "with all imports"),
        Measure("peak memory of load and analyze", peak_bytes / 1e6, "MB"),
        Measure("peak memory of 75,000 events on one GPU", of_layers_bytes / 1e6, "MB", "kernels of 176 names"),
        Measure(f"{more} ranks / {few} ranks", by_num_ranks[more][0] / by_num_ranks[few][0], "x"),
        Measure(f"{many} ranks", by_num_ranks[many][2], "s", f"{by_num_ranks[many][0]:.0f} s of processors"),
        Measure(
            f"{many} ranks: memory / {more} ranks",
            by_num_ranks[many][1] / by_num_ranks[more][1],
            "x",
            _format_sizes(by_num_ranks),
        ),
    ]
    return SuiteResult(
        suite="analysis",
        title=f"the report on a trace of {trace_bytes / 1e6:.0f} MB, and on many ranks of 1,000 events",
        measures=measures,
        notes=[
            "Processor time on one processor, but for the many ranks, which use all. Ratios are medians over rounds."
        ],
        times_ns={name: _summarize(found) for name, found in readings.items()},
    )


def _make_ratio(readings: Mapping[str, list[tuple[float, ...]]], name: str, peer: str) -> Measure:
    pairs = zip(readings[name], readings[peer], strict=True)
    ratio = statistics.median(own[0] / other[0] for own, other in pairs)
    return Measure(f"{name} / {peer}", ratio, "x", f"{min(reading[0] for reading in readings[name]):.2f} s at best")


def _format_sizes(by_num_ranks: Mapping[int, tuple[float, ...]]) -> str:
    return ", ".join(f"{reading[1] / 1e6:.0f}" for reading in by_num_ranks.values()) + " MB"


def _summarize(readings: list[tuple[float, ...]]) -> dict[str, Any]:
    seconds = [reading[0] for reading in readings]
    return {"best": round(min(seconds) * 1e9), "median": round(statistics.median(seconds) * 1e9)}
