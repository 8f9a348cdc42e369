"""Reading a large trace into columns, compared with `json.load`; its memory, cache and Parquet file.

Every reading is a process of its own, on one processor. They take turns, so that other load affects all alike.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.files.traces import LARGE_BYTES, write_large_trace
from benchmarks.suite import Measure, SuiteResult

_QUICK_BYTES = 10_000_000
_TIMEOUT_S = 120

_JSON, _COLUMNS, _CACHED = "json.load", "load to columns", "second load, but args"

# What a process runs with the file's name. Imports are not timed.
_TASKS = {
    _JSON: "import json, sys; file = open(sys.argv[1], encoding='utf-8')\ndef work(): return json.load(file)",
    _COLUMNS: "import sys, kinetoscope, polars\nfrom kinetoscope.frames.load import read_trace\n"
    "def work(): return read_trace(sys.argv[1])",
    _CACHED: "import sys, kinetoscope, polars; polars.LazyFrame({'a': [1]}).collect()\n"
    "def work(): return kinetoscope.load(sys.argv[1]).events.drop('args').collect()",
}
_PROGRAM = """
import os, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
{work}
def memory(field):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(field))
before, begin = memory("VmRSS"), time.perf_counter()
result = work()
seconds = time.perf_counter() - begin
columns = result.frame.estimated_size() if hasattr(result, "frame") else 0
print(seconds, memory("VmHWM") - before - columns, columns)
"""


@dataclass(frozen=True)
class _Reading:
    seconds: float
    over_bytes: float
    """The peak of memory, without what the process had before and what the columns take."""
    columns_bytes: float


def run(*, quick: bool) -> SuiteResult:
    """Read the large trace in every way."""
    with tempfile.TemporaryDirectory(dir=_find_memory_folder(), prefix="reading-") as folder:
        trace = write_large_trace(Path(folder, "large.pt.trace.json"), _QUICK_BYTES if quick else LARGE_BYTES)
        cache = Path(folder, "cache")
        parquet_bytes = _write_cache(trace, cache)
        readings: dict[str, list[_Reading]] = {name: [] for name in _TASKS}
        for _ in range(1 if quick else 5):
            for name in _TASKS:
                readings[name].append(_read(name, trace, cache))
        return _make_result(readings, trace.stat().st_size, parquet_bytes)


def _find_memory_folder() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _write_cache(trace: Path, cache: Path) -> int:
    """Return the size of the cache, which is a Parquet file."""
    command = [sys.executable, "-c", "import sys, kinetoscope; kinetoscope.load(sys.argv[1])", str(trace)]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, env=environment)
    (kept,) = cache.rglob("*.parquet")
    return kept.stat().st_size


def _read(name: str, trace: Path, cache: Path) -> _Reading:
    environment = os.environ | {"POLARS_MAX_THREADS": "1", "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", _PROGRAM.format(work=_TASKS[name]), str(trace)]
    done = subprocess.run(command, env=environment, check=True, timeout=_TIMEOUT_S, stdout=subprocess.PIPE, text=True)
    return _Reading(*map(float, done.stdout.split()))


def _make_result(readings: Mapping[str, list[_Reading]], trace_bytes: int, parquet_bytes: int) -> SuiteResult:
    return SuiteResult(
        suite="reading",
        title=f"a trace of {trace_bytes / 1e6:.0f} MB into columns",
        measures=[
            _make_ratio(readings, _COLUMNS, trace_bytes),
            _make_memory_measure(readings, _COLUMNS),
            Measure(_CACHED, min(reading.seconds for reading in readings[_CACHED]), "s"),
            Measure("JSON / Parquet", trace_bytes / parquet_bytes, "x", f"{parquet_bytes / 1e6:.1f} MB"),
        ],
        notes=[
            "One processor. Ratios are medians over the rounds; memory is what the process had at its peak,",
            "without what it had before and without the columns themselves.",
        ],
        times_ns={name: _summarize(times) for name, times in readings.items()},
    )


def _make_ratio(readings: Mapping[str, list[_Reading]], name: str, trace_bytes: int) -> Measure:
    pairs = zip(readings[_JSON], readings[name], strict=True)
    ratio = statistics.median(peer.seconds / own.seconds for peer, own in pairs)
    best = min(reading.seconds for reading in readings[name])
    return Measure(f"json.load / {name}", ratio, "x", f"{trace_bytes / 1e6 / best:.0f} MB/s at best")


def _make_memory_measure(readings: Mapping[str, list[_Reading]], name: str) -> Measure:
    worst = max(readings[name], key=lambda reading: reading.over_bytes)
    detail = f"columns {worst.columns_bytes / 1e6:.0f} MB"
    return Measure(f"{name}: memory over the columns", worst.over_bytes / 1e6, "MB", detail)


def _summarize(readings: list[_Reading]) -> dict[str, Any]:
    seconds = [reading.seconds for reading in readings]
    return {"best": round(min(seconds) * 1e9), "median": round(statistics.median(seconds) * 1e9)}
