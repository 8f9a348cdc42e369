"""Cost of `profiler.batches` for a batch that the schedule skips."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from benchmarks.interleaved import Candidate, Loop, measure
from benchmarks.recording.profilers import recorder_name, recording
from benchmarks.suite import Measure, SuiteResult
from kinetoscope import Profiler, ProfilerAction, cyclic_schedule
from kinetoscope.testing import MemoryTraceHandler

_PLAIN = "plain loop"
_SKIPPED = "batch of profiler.batches, skipped"
_SCHEDULED = "batch of profiler.batches, skipped by cyclic_schedule"


def run(*, quick: bool) -> SuiteResult:
    """Loop over a range, with and without a profiler that skips everything."""
    candidates = [
        Candidate(_PLAIN, _open_plain_loop, over=_PLAIN),
        Candidate(_SKIPPED, _open_skipped_loop, over=_PLAIN),
        Candidate(_SCHEDULED, _open_scheduled_loop, over=_PLAIN),
    ]
    timings = measure(candidates, rounds=8 if quick else 60, round_ms=2 if quick else 10)
    measures = [
        Measure(
            candidate.name,
            timings.cost_ns(candidate) / 1e3,
            "us",
            f"median {timings.median_cost_ns(candidate) / 1e3:.2f} us",
        )
        for candidate in candidates[1:]
    ]
    ratio = timings.best_ns(_SCHEDULED) / timings.best_ns(_SKIPPED)
    measures.append(Measure("cyclic_schedule / a schedule that only says SKIP", ratio, "x"))
    return SuiteResult(
        suite="skipped_batch",
        title="one batch, over a plain loop",
        measures=measures,
        recorder=recorder_name(),
        times_ns=timings.summary(),
    )


def _make_loop(batches: Callable[[Iterable[int]], Iterable[int]]) -> Loop:
    def loop(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in batches(range(count)):
            pass
        return time.perf_counter_ns() - begin

    return loop


@contextmanager
def _open_plain_loop() -> Iterator[Loop]:
    yield _make_loop(lambda batches: batches)


@contextmanager
def _open_skipped_loop() -> Iterator[Loop]:
    with recording(ProfilerAction.SKIP) as profiler:
        yield _make_loop(profiler.batches)


@contextmanager
def _open_scheduled_loop() -> Iterator[Loop]:
    schedule = cyclic_schedule(skip_first=10**9)
    with Profiler(schedule, MemoryTraceHandler(), strict=True) as profiler:
        yield _make_loop(profiler.batches)
