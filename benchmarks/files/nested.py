"""Time of `nested()` for 800,000 spans, in Kineto's order and in the order of their ends."""

import os
import tempfile
import time
from pathlib import Path

from benchmarks.files.traces import LARGE_BYTES, write_large_trace
from benchmarks.suite import Measure, SuiteResult

_QUICK_BYTES = 10_000_000
_NUM_SPANS = 800_000

_BY_BEGIN, _BY_END = "nested() of Kineto's spans", "nested() of spans in the order of their ends"


def run(*, quick: bool) -> SuiteResult:
    """Nest the spans of the large trace in both orders."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars as pl

    from kinetoscope.frames.load import read_trace
    from kinetoscope.frames.trace import Trace

    with tempfile.TemporaryDirectory(prefix="nested-") as folder:
        path = write_large_trace(Path(folder, "large.pt.trace.json"), _QUICK_BYTES if quick else LARGE_BYTES)
        read = read_trace(str(path))
    num_spans = (read.frame["kind"] == "span").sum()
    by_end = read.frame.sort(pl.col("ts") + pl.col("dur"), maintain_order=True)
    rounds, times_ns = 3 if quick else 30, {}
    for name, frame in {_BY_BEGIN: read.frame, _BY_END: by_end}.items():
        trace = Trace(path.name, read.about, frame.lazy())
        times_ns[name] = min(_measure_ns(trace) for _ in range(rounds)) * _NUM_SPANS / num_spans
    return SuiteResult(
        suite="nested",
        title=f"spans in spans, of a trace with {num_spans:,} of them",
        measures=[Measure(name, best_ns / 1e6, "ms") for name, best_ns in times_ns.items()],
        notes=[f"One processor. The best of {rounds} rounds, as if there were {_NUM_SPANS:,} spans."],
        times_ns={name: {"best": round(best_ns)} for name, best_ns in times_ns.items()},
    )


def _measure_ns(trace: object) -> int:
    begin = time.perf_counter_ns()
    trace.nested()  # type: ignore[attr-defined] - of a module that is imported late
    return time.perf_counter_ns() - begin
