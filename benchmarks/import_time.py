"""Time that `import kinetoscope` adds to the start of an interpreter."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.interleaved import Candidate, Loop, measure
from benchmarks.suite import Measure, SuiteResult

_BARE = "bare interpreter"
_IMPORT = "import kinetoscope"
_PROFILER = "from kinetoscope import Profiler"


def run(*, quick: bool) -> SuiteResult:
    """Start interpreters, one at a time."""
    candidates = [
        _make_candidate(_BARE, "pass"),
        _make_candidate(_IMPORT, _IMPORT),
        _make_candidate(_PROFILER, _PROFILER),
    ]
    timings = measure(candidates, rounds=3 if quick else 40, round_ms=1)
    measures = [
        Measure(
            candidate.name,
            timings.cost_ns(candidate) / 1e6,
            "ms",
            f"median {timings.median_cost_ns(candidate) / 1e6:.1f} ms",
        )
        for candidate in candidates[1:]
    ]
    for candidate in candidates[1:]:
        ratio = timings.best_ns(candidate.name) / timings.best_ns(_BARE)
        measures.append(
            Measure(f"{candidate.name} / {_BARE}", ratio, "x", f"{timings.best_ns(candidate.name) / 1e6:.1f} ms")
        )
    return SuiteResult(
        suite="import_time",
        title="starting an interpreter, over a bare one",
        measures=measures,
        times_ns=timings.summary(),
    )


def _make_candidate(name: str, code: str) -> Candidate:
    return Candidate(name, partial(_open_interpreter, code), over=_BARE)


@contextmanager
def _open_interpreter(code: str) -> Iterator[Loop]:
    def loop(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in range(count):
            subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter_ns() - begin

    yield loop
