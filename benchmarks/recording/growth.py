"""Time and memory per span, from ten thousand to ten million spans that are saved meanwhile."""

import subprocess
import sys
import textwrap

from benchmarks.recording.profilers import recorder_name
from benchmarks.suite import Measure, SuiteResult

_SPANS_PER_WINDOW = 250_000
# One process for each number of spans, so that memory can be measured. Prints nanoseconds per span and MB added.
_PROGRAM = textwrap.dedent(
    """
    import sys, tempfile, time, psutil
    from kinetoscope import Profiler, ProfilerAction, TraceHandler

    class Discards(TraceHandler):
        def process_cycle(self, cycle):
            cycle.threads

    def record(marker, count):
        begin = time.perf_counter_ns()
        for _ in range(count):
            with marker:
                pass
        return time.perf_counter_ns() - begin

    num_spans, a_window = map(int, sys.argv[1:])
    process, spent_ns = psutil.Process(), 0
    with tempfile.TemporaryDirectory() as folder:
        schedule = lambda state: ProfilerAction.ACTIVE_AND_SAVE
        with Profiler(schedule, Discards(), spool_folder=folder, strict=True) as profiler:
            marker = profiler.marker("span")
            record(marker, 10_000)
            profiler.step()
            before = process.memory_info().rss
            for _ in range(max(1, num_spans // a_window)):
                spent_ns += record(marker, min(num_spans, a_window))
                profiler.step()
            grown = process.memory_info().rss - before
    print(spent_ns / num_spans, grown / 1e6)
    """
)


def run(*, quick: bool) -> SuiteResult:
    """Record more and more spans in windows of 250,000, which are saved in the background.

    The largest number is recorded again in a single window, whose full chunks are compressed while it is open.
    """
    counts = [10_000, 100_000] if quick else [10_000, 100_000, 1_000_000, 10_000_000]
    measures = []
    for count, a_window in [*((num_spans, _SPANS_PER_WINDOW) for num_spans in counts), (counts[-1], counts[-1])]:
        command = [sys.executable, "-c", _PROGRAM, str(count), str(a_window)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        cost_ns, grown_mb = map(float, done.stdout.split())
        where = " in one window" if a_window > _SPANS_PER_WINDOW else ""
        measures.append(Measure(f"{count:,} spans{where}", cost_ns, "ns", f"resident memory grew by {grown_mb:.1f} MB"))
    ratio = measures[len(counts) - 1].value / measures[0].value
    measures.append(Measure(f"a span among {counts[-1]:,} / one among {counts[0]:,}", ratio, "x"))
    return SuiteResult(
        suite="growth",
        title="one span, the loop included, as they grow in number",
        measures=measures,
        recorder=recorder_name(),
        times_ns={},
    )
