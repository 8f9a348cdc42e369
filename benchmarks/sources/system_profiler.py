"""CPU time of reading the machine's counters, in a process that does nothing else.

The profiler reads everything, and far more often than by default, so that the cost can be measured.
"""

import resource
import time
from itertools import count

from benchmarks.suite import Measure, SuiteResult
from kinetoscope import Profiler, ProfilerAction, SystemProfiler
from kinetoscope.testing import MemoryTraceHandler

_INTERVAL_S = 0.02
_DEFAULT_INTERVAL_S = 0.5
_EVERYTHING = {"profile_cpu": True, "profile_memory": True, "profile_disk": True, "profile_net": True}


def run(quick: bool) -> SuiteResult:
    """Measure one reading, with the default settings and with everything on."""
    num_rounds, seconds = (1, 0.5) if quick else (5, 2.0)
    measures, times = [], {}
    for name, options in {"by default": {}, "with everything": _EVERYTHING}.items():
        costs = [_measure_reading_ns(options, seconds) for _ in range(num_rounds)]
        best = min(costs)
        percent = 100 * best / (_DEFAULT_INTERVAL_S * 1e9)
        detail = f"{best / 1e3:.0f} us a reading"
        measures.append(Measure(f"of one core at 0.5 s, {name}", percent, "%", detail))
        times[name] = {"best": best, "median": sorted(costs)[len(costs) // 2]}
    return SuiteResult(
        suite="system_profiler",
        title="what the SystemProfiler takes of a processor",
        measures=measures,
        notes=["Processor time of the process, user and system, over the number of readings; best round."],
        times_ns=times,
    )


def _measure_reading_ns(options: dict[str, bool], seconds: float) -> float:
    """Return the CPU time of reading and recording the counters once."""
    handler = MemoryTraceHandler()
    source = SystemProfiler(stats_thread_interval_seconds=_INTERVAL_S, **options)
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[source], spool_folder=False) as profiler:
        batches = profiler.batches(count())
        next(batches)
        time.sleep(2 * _INTERVAL_S)  # until the first reading, which does more, is over
        before = _read_cpu_ns()
        time.sleep(seconds)
        took = _read_cpu_ns() - before
    return took / (seconds / _INTERVAL_S)


def _read_cpu_ns() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return 1e9 * (usage.ru_utime + usage.ru_stime)
